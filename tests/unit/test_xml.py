"""XML is read as XML if its type says so: its text is that of the same page in HTML."""

from __future__ import annotations

import time

import pytest

from stream.pages.content import page_content
from stream.pages.page import Page
from stream.text.xml import as_html

XML_TYPES = ("application/xhtml+xml", "application/xml; charset=utf-8", "text/xml", "APPLICATION/XHTML+XML")
PAGES = [  # page, its text as XML, and as HTML if that is another
    ("<html><head><script src='a'/></head><body>x</body></html>", "x", ""),
    ("<html><head><title/></head><body>x</body></html>", "x", ""),
    ("<style type='text/css' /><p>x</p>", "x", ""),
    ("<STYLE\n/><textarea/><iframe src='>'/><p/>x<p />y", "x y", ""),
    ("<template/>x<select/><svg/>y", "x y", ""),
    ("<div hidden='hidden'/>x", "x", ""),
    ("a<br/>b<hr/>c<img src='/'/>d<input/><wbr/>e", "a b cde", None),
    ("<p><![CDATA[a < b && <p> &amp; ]] > c]]></p>", "a < b && <p> &amp; ]] > c", "& ]] > c]]>"),
    ("<![CDATA[]]>x<![CDATA[y]]>", "xy", "x"),
    ("<script>//<![CDATA[\nif (a < b) write('</script>')\n//]]></script>x", "x", "') //]]>x"),
    ("<script><![CDATA[ '<br/>' ]]></script><style/>x", "x", ""),
    ("<?xml version='1.0'?><?xml-stylesheet href='a>b'?>x", "x", "b'?>x"),
    ("<!DOCTYPE html [ <!ENTITY nbsp '&#160;'> <!ELEMENT a ANY> ]><p>x</p>", "x", "]> x"),
    ("<!-- c --><!DOCTYPE html PUBLIC 'a' 'b'><p>x</p>", "x", None),
    ("<!-- <script/> -->x<!-- <![CDATA[ -->y<p>]]></p>", "xy ]]>", None),
    ("<a title='/>'>x</a><a title='a/'>y</a>", "xy", None),
    ("<p>x &lt;br/&gt; &amp;amp; y</p>", "x <br/> &amp; y", None),
]
SOUP = [
    "<script>if (a<b && c == '</p>') d = \"x\"</script><p>x</p>",
    "<script>a = '<![CDATA[';</script><p>x</p>",
    "<style>p:before { content: '<' }</style><p>x",
    "<p>x<br><img src=a><input disabled>",
    "<p title=it's>x</p>",
    "<a href=http://a.example/>x</a>",
    "<p>x &nbsp; & <",
    "<?php echo 1 > <p>x",
    "<!DOCTYPE html [ <p>x</p>",
    "<!-- a -- b --><p>x</p>",
    "<P CLASS=a>x</div></p></html>",
    "<![CDATA[ <p>x",
    "<p>x<script",
    "<html><body><div>x</p></body>",
]


def main_text(body: str, header: str | None) -> list[str]:
    return page_content(Page(url="u", body=body.encode(), content_type=header)).main_text().split()


@pytest.mark.parametrize(("page", "as_xml", "as_html"), PAGES)
def test_a_page_is_xml_by_its_type_alone(page: str, as_xml: str, as_html: str | None) -> None:
    for header in XML_TYPES:
        assert main_text(page, header) == as_xml.split()
    in_html = as_xml if as_html is None else as_html
    assert main_text(page, "text/html") == in_html.split()
    declared = f"<?xml version='1.0' encoding='utf-8'?>{page}"
    assert main_text(declared, "text/html") == in_html.split()
    assert main_text(declared, None) == as_xml.split(), "without a type, the declaration is one"


@pytest.mark.parametrize("page", SOUP)
def test_what_is_not_well_formed_costs_nothing(page: str) -> None:
    for header in XML_TYPES:
        assert main_text(page, header) == main_text(page, "text/html")


def test_decoded_html_is_xml_by_its_type() -> None:
    page = Page(url="u", html="<title/><p>x</p>", content_type="application/xhtml+xml")
    assert page_content(page).main_text().split() == ["x"]


TIMES = 200_000
TRAPS = [
    "<!--",
    "<![CDATA[",
    "<?",
    "<!doctype[",
    "<!doctype",
    "<a '",
    "<a/>",
    "<script>",
    "<a ",
    "<a b='",
    "<!-- -->",
    "]]>",
    "<![CDATA[]]>",
    "<!doctype a [ '",
    "/>",
    "<script/>",
    "<style '>",
    "<",
    "<a \"'",
    "<script ",
]


@pytest.mark.parametrize("piece", TRAPS)
@pytest.mark.parametrize("start", ["", "<a/>"])
@pytest.mark.parametrize("end", ["", "/>", "]]>", "?>", "-->", "]", "\"'>"])
def test_xml_takes_linear_time(start: str, piece: str, end: str) -> None:
    began = time.process_time()
    as_html(start + piece * TIMES + end)
    assert time.process_time() - began < 5, "quadratic, it would take minutes"
