"""The parsing cost of markup is estimated in advance; if it is too high, text is taken without a parser."""

from __future__ import annotations

import random

import pytest

from stream.text import extract as extracting
from stream.text.extract import extract
from stream.text.markup import MAX_DEPTH, NODES, STEPS, cost, stripped, too_costly
from tests.fuzz.decoders.html import tree_of

TIMES = 20_000
DISTINCT = "".join(f"<b a={number}>" for number in range(400))

TRAPS = {
    # Formatting elements are opened again in each paragraph: 17 KB took 680 MB.
    "formatting": "<p>" + DISTINCT + "<p>x" * TIMES,
    "formatting in cells": "<table><tr><td><p>" + DISTINCT + "<p>x" * TIMES,
    "adoption": "<a>".join(DISTINCT.split(">")) + "<div></b></a>x" * TIMES,
    # Main content takes a time that grows with the square of the depth.
    "nesting": "<div>" * TIMES,
    "nesting in comments": "<div><!--</div>-->" * TIMES,
    "nesting in odd comments": "<div><!-- > </div> -- > <-- </div> --!>" * TIMES,
    "nesting in attributes": "<div a='</div>'>" * TIMES,
    "nesting in scripts": "<div><script></div></script>" * TIMES,
    "nesting in scripts twice": "<div><script><!--<script></script></div>--></script>" * TIMES,
    "nesting in styles": "<div><style></div></style><title></div></title>" * TIMES,
    "nesting in text fields": "<div><textarea></div></textarea>" * TIMES,
    "nesting in sections": "<div><svg><![CDATA[</svg></div>]]></svg>" * TIMES,
    "nesting in pictures": "<svg><title>" + "<div><script></div></script>" * TIMES,
    "nesting in titles of pictures": "<svg><title><title></title>" * TIMES,
    "nesting past raw text that is none": "<template><col><plaintext></template>" + "<div>" * TIMES,
    "nesting past a column": "<col><table></table><i><tr><table><td>" * TIMES,
    "nesting past an end tag": "<span><div></span></div>" * TIMES,
    "nesting past a cell": "<div><table><tr><td></div>" * TIMES,
    "nesting past a list": "<ul><li><span><p></span></p>" * TIMES,
    "many chains": ("<div>" * 900 + "x" + "</div>" * 900) * 50,
    # Each attribute is compared with those before it, each option looks at those before it.
    "attributes": "<div " + " ".join(f"a{number}" for number in range(TIMES)) + ">",
    "attributes that touch": "<div " + "".join(f"a{number}=''" for number in range(TIMES)) + ">",
    "attributes of the page": "".join(f"<html a{number}>" for number in range(TIMES)),
    "options": "<select>" + "<option>x" * TIMES,
    "options after others": "<select>" + "<hr>" * TIMES + "<option>" * TIMES,
    # Each end tag looks through all that is open.
    "end tags of nothing": "<span>" * 900 + "</x>" * TIMES,
}  # fmt: skip
HARMLESS = {
    "flat": "<div><p>one<p>two<br></div>" * 5000,
    "closed by others": "<p>one<li>two<br><img src=x>" * 5000,
    "odd tags": "<P\n>one<Li/>two<a href=x><td\t>three" * 5000,
    "tables": "<table><tr><td>one<td><b>two</b><tr><th>three</table>" * 3000,
    "nested a little": ("<div>" * 60 + "<p>x" + "</div>" * 60) * 100,
    "inline left open": "<div><span><font>one</div>" * 300,
    "pictures": "<svg><title>a</title><path d='M 0 0'/><g><circle/></g></svg>" * 3000,
    "formulas": "<math><mrow><mi>x</mi><mo>=</mo><mn>1</mn></mrow></math>" * 2000,
    "scripts": "<script>if (a < b) document.write('<div>'.repeat(9))</script><p>x</p>" * 3000,
    "comments": "<!-- <div> --><p>x</p>" * 5000,
    "names": "".join(f"<x{number}></x{number}>" for number in range(5000)),
    "a list of options": "<select>" + "<option value=1>x</option>" * 2000 + "</select>",
    "bold paragraphs": "<p><b><i>x</i></b>" * 5000,
    "text": "a < b && c > d " * 9000,
}


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_seen_before_a_parser_sees_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        pytest.fail("a parser was given the page")

    monkeypatch.setattr(extracting, "HTMLTree", type("Refused", (), {"parse": staticmethod(refuse)}))
    page = TRAPS[name] + "<p>the text"
    assert too_costly(page.encode())
    assert extract(page).split()[-2:] == ["the", "text"] or "script" in name or "pictures" in name
    assert len(extract(page)) <= len(page)


@pytest.mark.parametrize("name", TRAPS)
def test_looking_for_traps_is_no_trap(name: str) -> None:
    page = TRAPS[name].encode()
    found = cost(page)
    assert found.depth <= MAX_DEPTH + 1
    assert found.nodes <= 2 * (NODES + len(page))
    assert found.steps <= 2 * STEPS + len(page) ** 2


@pytest.mark.parametrize("name", HARMLESS)
def test_pages_that_cost_what_others_do_are_parsed(name: str) -> None:
    found = cost(HARMLESS[name].encode())
    assert found.whole
    assert found.nodes < NODES / 2
    assert found.steps < STEPS / 2


TAGS = [
    "p",
    "div",
    "span",
    "b",
    "i",
    "a",
    "nobr",
    "font",
    "table",
    "tr",
    "td",
    "th",
    "tbody",
    "tfoot",
    "caption",
    "colgroup",
    "col",
    "ul",
    "ol",
    "li",
    "dd",
    "dt",
    "option",
    "optgroup",
    "select",
    "svg",
    "math",
    "template",
    "script",
    "style",
    "title",
    "textarea",
    "noscript",
    "iframe",
    "object",
    "form",
    "input",
    "button",
    "h1",
    "h2",
    "br",
    "hr",
    "img",
    "head",
    "body",
    "html",
    "foreignObject",
    "desc",
    "mi",
    "mtext",
    "annotation-xml",
    "g",
    "path",
    "ruby",
    "rt",
    "rtc",
    "applet",
    "marquee",
    "xmp",
    "center",
    "x-y",
    "dialog",
    "summary",
    "details",
    "mglyph",
    "malignmark",
    "address",
    "em",
    "strong",
    "section",
    "keygen",
]
ATTRIBUTES = [
    "",
    "",
    "",
    " a=1",
    " b='</div>'",
    ' c="</span>"',
    " color=1",
    " encoding=text/html",
    "/",
    " x=/",
]
ODD = [
    "<!--",
    "-->",
    "--!>",
    "<!-->",
    "<!--->",
    "<![CDATA[",
    "]]>",
    "<!doctype~html>",
    "<?x",
    "</",
    "<!",
    ">",
    "</>",
    "</script>",
    "</style>",
    "</title>",
    "<!--<script>",
    "</select>",
    "</svg>",
    "</math>",
    "</table>",
    "</template>",
]
REPEATED = 40


def piece(chosen: random.Random) -> str:
    tag, attribute = chosen.choice(TAGS), chosen.choice(ATTRIBUTES)
    return chosen.choice(
        (
            *[f"<{tag}{attribute}>"] * 6,
            *[f"</{tag}>"] * 4,
            chosen.choice(ODD).replace("~", " "),
            chosen.choice("x \n"),
            f"<{tag}{attribute}></{tag}>",
            f"<{tag}{attribute}>x",
        )
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_soup_of_tags_makes_a_deeper_or_larger_tree_than_was_counted(seed: int) -> None:
    """The tree also has `html`, `body` and parts of tables whose tags were omitted."""
    chosen = random.Random(seed)
    for _ in range(40):
        page = "".join(piece(chosen) for _ in range(chosen.choice((2, 3, 4, 6, 10)))) * REPEATED
        found = cost(page.encode())
        depth, elements = tree_of(page)
        if found.whole:
            assert depth <= 2 * found.depth + 12, page[: len(page) // REPEATED]
            assert elements <= 3 * found.nodes + 12, page[: len(page) // REPEATED]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<b>b</b>c", "a b c"),
        (
            "<p title='>'>x &amp; y&nbsp;z &#65;&#x42; &unknown; &#99999999999;",
            "x & y z AB &unknown; &#99999999999;",
        ),
        ("<script>if (a<b) '</p>'</script>x<style>p</style>y<title>t</title>z", "x y z"),
        ("<!-- <p> -->x<!doctype html>y<?z?><![CDATA[q]]>", "x y"),
        ("1 < 2 <3 </ 4>5", "1 < 2 <3 5"),
        ("<plaintext>a</plaintext>", "a"),
        ("灯塔<br>é<p", "灯塔 é"),
        ("", ""),
    ],
)
def test_text_without_a_parser_has_no_markup(page: str, text: str) -> None:
    assert stripped(page.encode()).split() == text.split()
