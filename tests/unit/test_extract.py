"""The main content is extracted from HTML in whatever language, without the boxes that sites put beside it.
No HTML takes the process down."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stream.text.extract import extract, extraction
from tests.bench.quality.truth import Truth
from tests.made_kinds import every
from tests.made_posts import BOXES, LANGUAGES, page, sentences, words
from tests.night import cases

ARTICLE = "The journal gives every page one place in one order. " * 8
PAGE = f"""<!doctype html><html><head><title>A title</title><style>p {{ color: red }}</style></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>
<main><article><h1>One order</h1><p>{ARTICLE}</p><img src="x.png" alt="a picture"></article></main>
<footer>Copyright nobody</footer><script>var hidden = 1;</script></body></html>"""


def test_main_content_is_kept_and_its_surroundings_are_not() -> None:
    code = PAGE.replace("</article>", "<code>a</code><code>b</code><code>c</code></article>")
    for html in (PAGE, code):  # a few elements of code do not make it documentation
        text = extract(html)
        assert ARTICLE.strip() in text
        for surrounding in ("About us", "Copyright", "hidden", "color", "picture"):
            assert surrounding not in text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one</p><p>two<br>three</p><div>four</div>five", "one two three four five"),
        *(
            (f"<p>seen</p><div {hidden}><p>not seen</p></div><p>seen too</p>", "seen seen too")
            for hidden in ("hidden", "style='color: red; display: none'", 'style="display:none"')
        ),
        *(
            (f"<p>この<ruby>{ruby}</ruby>は古い。</p>", "この漢字は古い。")
            for ruby in (
                "漢字<rt>かんじ</rt>",
                "漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rp>(<rt>じ<rp>)",
                "<rb>漢字</rb><rtc><rt>かんじ</rtc>",
            )
        ),
        ("<body><nav>only a menu here</nav></body>", "only a menu here"),
    ],
)
def test_what_nobody_reads_as_text_is_none(html: str, text: str) -> None:
    """Neither elements that are hidden nor the sound of characters; blocks stay apart, and a page without
    main content gives its whole text."""
    assert extract(html).split() == text.split()


PICTURES = [
    "<svg/>",
    "<svg class='a' />",
    "<svg><title/><g/></svg>",
    "<svg><style/><script /></svg>",
    "<math/>",
]
ELEMENTS = ["template-view", "textarea-x", "noscript-page", "plaintexts", "datalist-a"]


@pytest.mark.parametrize(
    "html",
    [
        *(f"<body>{before}<p>{ARTICLE}</p>" for before in PICTURES),  # which their start tags close
        *(f"<body><{name}><p>{ARTICLE}</p></{name}>" for name in ELEMENTS),  # of which others have the start
        f"<body style='display: none'><p>{ARTICLE}</p>",  # until a script has run
    ],
    ids=[*PICTURES, *ELEMENTS, "body"],
)
def test_what_hides_nothing_leaves_the_article(html: str) -> None:
    assert ARTICLE.strip() in extract(html)


def test_a_list_that_is_no_main_content_is_kept_without_the_menus() -> None:
    rows = "".join(
        f'<tr><td><a href="/{i}">Part {i} of the catalogue</a></td><td>{i * 7} in stock</td></tr>'
        for i in range(60)
    )
    html = (
        '<div class="menu"><ul><li><a href="/">Home</a></li><li><a href="/basket">Basket</a></li></ul></div>'
        f"<article><p>Our parts.</p></article><table>{rows}</table><div class='footer'>All rights</div>"
    )
    text = extract(f"<html><body>{html}</body></html>")
    assert "Part 59 of the catalogue" in text
    assert "413 in stock" in text
    assert "Basket" not in text
    assert "rights" not in text


def test_a_forum_is_more_than_its_first_post() -> None:
    posts = "".join(
        f'<div class="comment"><p>Answer {i}: try it with more water, {i} cups.</p></div>' for i in range(40)
    )
    main = f"<main><p>How is it done?</p><section id='comments'>{posts}</section></main>"
    assert "Answer 39" in extract(f"<html><body>{main}</body></html>")


SENTENCES = [f"Sentence {i} of the article tells of harbour number {i} and of its ships. " for i in range(60)]
PROSE = "".join(f"<p>{SENTENCES[i]}{SENTENCES[i + 1]}</p>" for i in range(0, 20, 2))


@pytest.mark.parametrize("element", ["p", "div"])
def test_a_long_paragraph_does_not_hide_short_ones_beside_it(element: str) -> None:
    paragraphs = ["".join(SENTENCES[:5]), SENTENCES[5], SENTENCES[6]]
    prose = "".join(f"<{element}>{each}</{element}>" for each in paragraphs)
    menu = "".join(f'<li><a href="/{i}">Part {i}</a></li>' for i in range(5))
    text = extract(f"<body><div><h2>Harbours</h2>{prose}</div><ul>{menu}</ul></body>")
    assert all(each.strip() in text for each in paragraphs)
    assert "Harbours" in text
    assert "Part" not in text


def section(*paragraphs: str, item: str = "div") -> str:
    """A short page of a manual, as DocBook's style sheets make it."""
    text = "".join(f'<{item} class="para">{each}</{item}>' for each in paragraphs)
    links = '<li class="{}"><a href="/1"><strong>{}</strong></a></li>'
    bar = links.format("previous", "Before") + links.format("next", "After")
    return (
        f'<body><div id="banner"><a href="/">Get the book</a></div><ul class="docnav top">{bar}</ul>'
        f'<div class="section"><div class="titlepage"><h2 class="title">A.11. Quays</h2></div>{text}</div>'
        f'<ul class="docnav">{bar}</ul></body>'
    )


QUAYS = (
    "The quays of the harbour are built of stone that came from the hills, and the oldest of them has stood"
    " for three hundred years. The newest one is no longer of stone, though. It was made of concrete, and"
    ' carries the cranes of larger ships. <div class="url"><a href="/q">https://quays.example</a></div>'
)
SHED = "The harbour has two sheds for boats beside them, too."


def test_a_short_page_keeps_its_heading_and_all_of_its_paragraphs() -> None:
    text = extract(section(QUAYS, f'{SHED} <div class="url"><a href="/s">https://sheds.example</a></div>'))
    assert [line.strip()[:20] for line in text.splitlines()] == ["A.11. Quays", QUAYS[:20], SHED[:20]]


@pytest.mark.parametrize(
    ("second", "item"),
    [
        (f'<a href="/s">{SHED}</a>', "div"),
        (f"<form>{SHED}</form>", "div"),
        ("Two sheds.", "div"),
        (SHED, "li"),
    ],
    ids=["links", "form", "short", "item"],
)
def test_what_is_no_prose_beside_content_is_judged_by_itself(second: str, item: str) -> None:
    assert "sheds" not in extract(section(QUAYS, second, item=item))


def test_next_to_nothing_of_a_long_page_is_not_its_text() -> None:
    rows = "".join(f"<tr><td>{i} ships</td><td><a href='/{i}'>quay {i}</a></td></tr>" for i in range(300))
    text = extract(f"<body><article><p>{SHED}</p></article><table>{rows}</table></body>")
    assert "299 ships" in text


NOTE = (
    "A note beside the text says more of the harbour, of its walls, and of those who built them long ago. "
    * 2
)


@pytest.mark.parametrize("box", ["<aside>", '<div class="sidebar">'])
def test_a_box_of_prose_in_an_article_stays_and_one_of_links_goes(box: str) -> None:
    links = "".join(f'<li><a href="/{i}">Another story, number {i}</a></li>' for i in range(20))
    end = "</div>" if "div" in box else "</aside>"
    text = extract(f"<body><div>{PROSE}{box}<p>{NOTE}</p>{end}{PROSE}{box}<ul>{links}</ul>{end}</div></body>")
    assert NOTE.strip() in text
    assert "Another story" not in text


def test_comments_of_readers_are_left_out_of_an_article() -> None:
    comments = "".join(
        f"<li><p>Reader {i} says much about it, and then says it again.</p></li>" for i in range(90)
    )
    text = extract(f"<body><div>{PROSE}</div><ol class='commentlist'>{comments}</ol></body>")
    assert SENTENCES[19].strip() in text
    assert "Reader" not in text


def test_a_name_of_a_bar_on_the_whole_article_takes_nothing_from_it() -> None:
    for name in ("nav", "sidebar", "widget", "footer"):
        assert SENTENCES[19].strip() in extract(f"<body><div class='{name}'>{PROSE}</div></body>")


def test_reference_documentation_keeps_signatures_tables_and_boxes_whatever_the_template() -> None:
    rows = "".join(
        f"<dt><code>int size{i}(List values)</code></dt><dd>Returns size {i}.</dd>" for i in range(30)
    )
    box = "<p>A box in the text is a part of it.</p>"
    menu = '<ul><li><a href="/">Overview</a></li><li><a href="/tree">Tree</a></li></ul>'
    old = f'<div class="nav">{menu}</div><div><dl>{rows}</dl><div class="sidebar">{box}</div></div>'
    new = f"<nav>{menu}</nav><main><article><dl>{rows}</dl><aside>{box}</aside></article></main>"
    texts = [extract(f"<html><body>{each}</body></html>").split() for each in (old, new)]
    assert texts[0] == texts[1]
    assert "size29(List" in texts[0]
    assert "box" in texts[0]
    assert "Overview" not in texts[0]


def test_a_class_of_a_manual_is_more_than_its_name() -> None:
    """Its markup is too long for reference documentation, and only its name looks like prose."""
    name = "SilentShipException"
    links = ", ".join(
        f'<a href="Throwable.html#{each}()">{each}</a>'
        for each in ("addSuppressed", "getCause", "getMessage")
    )
    constructors = "".join(
        f'<div><code><a href="#{each}">{name}</a>({each})</code></div>'
        for each in ("String message", "Throwable cause")
    )
    details = "".join(
        f'<li><section class="detail"><h3>{name}</h3><div>public {name}({each})</div></section></li>'
        for each in ("String message", "Throwable cause")
    )
    text = extract(
        f"""<body><main role="main"><div class="header"><div>Package <a href="a.html">org.harbour</a></div><h1
class="title">Class {name}</h1></div><section class="class-description"><dl class="notes">
<dt>All Implemented Interfaces:</dt><dd><code>Serializable</code></dd></dl><div>public class {name}</div>
<dl class="notes"><dt>See Also:</dt><dd><ul><li><a href="a.html">Serialized Form</a></li></ul></dd></dl>
</section><section class="summary"><h2>Constructor Summary</h2><div>{constructors}</div>
<h2>Method Summary</h2><div><h3>Methods inherited from Throwable</h3><code>{links}</code></div>
</section><section class="details"><h2>Constructor Details</h2><ul>{details}</ul></section></main>
<script>{"menu.push(1);" * 900}</script></body>"""
    )
    for each in ("org.harbour", "Serializable", "getMessage", "Throwable cause"):
        assert each in text


def test_pictures_in_lists_of_terms_do_not_make_a_post_documentation() -> None:
    pictures = (
        "<dl class='gallery-item'><dt class='gallery-icon'><a href='/1'><img src='/1.jpg'></a></dt></dl>" * 40
    )
    ferries = "".join(f"<li><a href='/t{i}'>Ferry number {i} to the islands</a></li>" for i in range(12))
    text = extract(
        "<div id='content'><div class='post hentry'><h2 class='entry-title'>Ships in the fog</h2>"
        f"<div class='entry-content'><p>{SENTENCES[0]}{SENTENCES[1]}</p>{pictures}</div></div>"
        f"<div class='extra'><h3>Timetable</h3><ul>{ferries}</ul></div></div>"
    )
    assert SENTENCES[1].strip() in text
    assert "Ferry" not in text


def test_a_share_says_how_much_of_the_visible_text_is_content() -> None:
    assert extraction(PAGE).share == pytest.approx(0.91, abs=0.03)
    assert extraction("<p>all of it, and nothing besides</p>").share == 1
    assert extraction("").share == 1


@pytest.mark.parametrize("html", ["<p>\ud800 lone</p>", "\udfff\0\ud800", "<a href='"])
def test_broken_html_gives_a_text(html: str) -> None:
    extract(html).encode()


@pytest.mark.parametrize("around", ["", "<form action='/default.aspx'>"])
def test_a_form_is_no_content_unless_it_is_the_page(around: str) -> None:
    form = (
        "<form><p>Leave a comment below, we read all of them with pleasure.</p><textarea></textarea></form>"
    )
    text = extract(
        f"<body>{around}<main><h1>Heading</h1><p>{ARTICLE}</p></main>{'' if around else form}</body>"
    )
    assert ARTICLE.strip() in text
    assert "Leave" not in text


SIZES = [8, 20, 60, 200]
ALL_SIZES = [*range(8, 201, 8)]
sizes = pytest.mark.parametrize("sizes", cases([SIZES, ALL_SIZES], by_day=[SIZES]), ids=len)


def made(code: str, theme: int, size: int, seed: int, box: str = "") -> str:
    language = LANGUAGES[code]
    title = " ".join(words(language, 3, seed + 1000))
    menu = [" ".join(words(language, 2, 2000 + place)) for place in range(6)]
    text = sentences(language, size, seed)
    return page(theme, title, [text], menu, BOXES[box](language) if box else "")


@sizes
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("code", LANGUAGES)
def test_two_posts_with_one_box_are_not_alike(code: str, box: str, sizes: Sequence[int]) -> None:
    for theme in range(3):
        for size in sizes:
            one, other = (extract(made(code, theme, size, seed, box)) for seed in (1, 2))
            assert Truth([one, other]).similarity(0, 1) < 0.5, (theme, size, one)


@sizes
def test_a_post_is_alike_with_and_without_a_box(sizes: Sequence[int]) -> None:
    likenesses = []
    for code in LANGUAGES:
        for theme in range(3):
            for size in sizes:
                for seed, box in enumerate(BOXES):
                    texts = [extract(made(code, theme, size, seed, each)) for each in ("", box)]
                    likenesses.append(Truth(texts).similarity(0, 1))
    assert sum(each >= 0.8 for each in likenesses) >= 0.98 * len(likenesses)


def test_pages_of_every_kind_have_their_text_and_little_around_it() -> None:
    """In eight scripts and three kinds of markup. A word of a menu may stand in the text by chance."""
    wrong = total = 0
    for kind, code, theme, made_page in every():
        text = " ".join(extract(made_page.html).split())
        assert [each for each in made_page.has if " ".join(each.split()) not in text] == [], (
            kind,
            code,
            theme,
        )
        wrong += sum(each in text for each in made_page.lacks)
        total += len(made_page.lacks)
    assert wrong < 0.01 * total
