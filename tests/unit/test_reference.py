"""The reference pages that are kept in the repository are those that the code prints, and complete."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docs.site import metrics_page, settings_page, topics_page
from docs.site.pages import on_page_content
from stream.messages import reasons
from stream.settings import Settings, load

DOCS = Path(__file__).parents[2] / "docs"


PRINTED: dict[str, tuple[str, Callable[[], str | list[str]]]] = {
    "reference/settings.md": ("docs.site.settings_page", settings_page.page),
    "reference/neardup.toml": ("docs.site.settings_page sample", settings_page.sample),
    "reference/topics.md": ("docs.site.topics_page", topics_page.page),
    "metrics.md": ("docs.site.metrics_page", metrics_page.page),
    "reasons.md": ("stream.messages.reasons", reasons.page),
}
"""Page -> the module that prints it, as `python -m` takes it, and its function."""


def kept(name: str) -> list[str]:
    return (DOCS / name).read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", PRINTED)
def test_a_page_is_what_the_code_prints(name: str) -> None:
    module, page = PRINTED[name]
    made = page()
    printed = made if isinstance(made, str) else "\n".join(made)
    assert kept(name) == printed.splitlines(), f"python -m {module} > docs/{name}"


def test_every_line_of_the_sample_is_a_setting_with_a_valid_value() -> None:
    """Options that contradict each other, such as those of TLS and of plain text, are tried alone."""
    lines = [line[1:] for line in kept("reference/neardup.toml") if re.match(r"#\w", line)]
    values = tomllib.loads("\n".join(lines))
    assert list(values) == list(Settings.model_fields)
    together = {
        "ssl": {"security_protocol": "SSL", "ssl_certfile": "client.pem"},
        "sasl": {"security_protocol": "SASL_SSL", "sasl_username": "neardup", "sasl_password": "secret"},
        "sasl_token": {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
        "dashboard_user_header": {"dashboard_trusted_proxies": "10.0.0.7"},
    }
    for name, value in values.items():
        needed = next((together[start] for start in reversed(together) if name.startswith(start)), {})
        load(**(needed | {name: value}))


OF_SOURCES = {"damaged_source"}
"""Ends `publish` and `scan`; no verdict has it."""


def given(tree: ast.AST) -> Iterator[str]:
    """Reasons in calls: the first argument of a page's error, the keyword `reason` of a row."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name.endswith("PageError") and call.args:
            yield from constant(call.args[0])
        if name == "Row":
            for keyword in call.keywords:
                if keyword.arg == "reason":
                    yield from constant(keyword.value)


def constant(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def test_every_reason_in_the_code_is_listed_and_no_other() -> None:
    used = set()
    for file in DOCS.with_name("stream").rglob("*.py"):
        used.update(given(ast.parse(file.read_text("utf-8"))))
    assert used - OF_SOURCES == set(reasons.REASONS)


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
