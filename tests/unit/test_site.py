"""What the hook of the documentation's site makes of pages."""

from __future__ import annotations

from docs.site.pages import on_page_content

WIDE = """<table>
<thead><tr><th>stage</th><th style="text-align: right;">us &quot;a page&quot;</th><th></th></tr></thead>
<tbody><tr><td>text</td><td style="text-align: right;">133</td><td>met</td></tr></tbody>
</table>"""


def test_cells_of_a_wide_table_name_their_headings() -> None:
    page = on_page_content(f"<p>a</p>{WIDE}{WIDE}")
    assert page.count("<table data-wide>") == 2
    assert page.count('<td data-heading="stage">text</td>') == 2
    assert 'data-heading="us &quot;a page&quot;" style="text-align: right;">133' in page
    assert "<td>met</td>" in page


def test_a_narrow_table_stays_as_it_is() -> None:
    narrow = "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    assert on_page_content(narrow) == narrow
