"""What a page is: by its header Content-Type as browsers read it, or by its bytes."""

from __future__ import annotations

import pytest

from stream.errors import PageError
from stream.pages.content import page_content
from stream.pages.content_type import content_type
from stream.pages.page import Page

HEADERS = [  # header, type, label of its charset
    ("text/html", "text/html", None),
    ("TEXT/Html ;Charset=UTF-8", "text/html", "UTF-8"),
    (" \ttext/html\t;\tcharset\t=\tutf-8 ", "text/html", "utf-8"),
    ('text/html;charset="utf-8"', "text/html", "utf-8"),
    ('text/html;charset="gbk', "text/html", "gbk"),
    ("text/html;charset='gbk'", "text/html", "'gbk'"),
    ('text/html;x="a;charset=gbk";charset=utf-8', "text/html", "utf-8"),
    ("text/html;x=charset=gbk", "text/html", None),
    ("text/html;charset=gbk;charset=utf-8", "text/html", "gbk"),
    ("text/html;charset=;charset=utf-8", "text/html", "utf-8"),
    ("text/html;charset", "text/html", None),
    ("text/html;;;charset=gbk;", "text/html", "gbk"),
    ("text/html;xcharset=gbk", "text/html", None),
    ("text/html charset=utf-8", "text/html", None),
    ("text/html(comment)", "text/html", None),
    ("text/html, charset=utf-8", "text/html", None),
    ("text/html;charset=utf-8,gbk", "text/html", "utf-8"),
    ("text/html;charset=gbk, text/html", "text/html", "gbk"),
    ("text/html;charset=gbk, text/html;charset=utf-8", "text/html", "utf-8"),
    ("text/html;charset=gbk, text/plain", "text/plain", None),
    ("image/png, text/html", "text/html", None),
    ("text/html, image/png", "image/png", None),
    ("text/html, */*", "text/html", None),
    ('text/html;x="a, image/png", nonsense', "text/html", None),
    ("application/xhtml+xml;profile=x", "application/xhtml+xml", None),
    ("application/octet-stream", "application/octet-stream", None),
    ("x/y", "x/y", None),
    *(
        (header, None, None)
        for header in (
            None,
            "",
            " ",
            ";",
            ",",
            ";charset=gbk",
            "charset=gbk",
            "html",
            "text",
            "/",
            "text/",
            "/html",
            "text /html",
            "text/ html",
            "None",
            "null",
            "\0",
            "text/ht\0ml",
            "é/é",
            "<text/html>",
            "*/*",
            "unknown/unknown",
            "application/unknown;charset=gbk",
            '"text/html"',
            "\ud800",
        )
    ),
]
"""The charset beside a type that says nothing does not count."""


@pytest.mark.parametrize(("header", "kind", "charset"), HEADERS)
def test_a_header_is_read_as_browsers_read_it(
    header: str | None, kind: str | None, charset: str | None
) -> None:
    read = content_type(header)
    assert read.kind == kind
    if kind is not None:
        assert read.charset == charset


TEXT = "The harbour authority will repair the old lighthouse on the north pier."
HTML = f"<html><head><title>t</title></head><body><p>{TEXT}</p></body></html>"
HTML_TYPES = (
    "text/html",
    "TEXT/HTML",
    "text/html charset=utf-8",
    "text/html;level=1",
    "text/xml",
    "application/xml",
    "application/xhtml+xml",
    "application/vnd.wap.xhtml+xml",
    "x, text/html",
    "text/html;",
)
NO_TYPES = (None, "", "html", "*/*", "unknown/unknown", "utf-8", ";charset=utf-8", "None")
TEXT_TYPES = (
    "text/plain",
    "text/markdown",
    "text/x-unheard-of",
    "application/json",
    "application/javascript",
)
OTHER_TYPES = (
    "application/octet-stream",
    "image/png",
    "image/svg+xml",
    "application/pdf",
    "x/y",
    "video/mp4",
    "application/zip",
    "multipart/form-data",
    "text/html, image/png",
    "font/woff2",
)
BINARY = [
    b"\x89PNG\r\n\x1a\n\0",
    b"GIF89a\1\0",
    b"\xff\xd8\xff\xe0\0\x10JFIF",
    b"%PDF-1.7 a",
    b"PK\3\4",
    b"\x1f\x8b\x08",
    b"RIFF\0\0\0\0WEBP",
    b"\0asm\1\0\0\0",
    b"ID3\3",
    b"%!PS-Adobe-3.0",
    b"a" * 1444 + b"\0",
]


STARTS = (
    "<!-- a -->", "  <!doctype html>", "<iframe src=a></iframe>", "<font>", "<b>", "<a>", "\ufeff<p>",
    "<?xml?>",
)  # fmt: skip
READ = [
    *((header, HTML, True, TEXT) for header in (*HTML_TYPES, *NO_TYPES)),
    *((None, f"{start}{TEXT}", True, TEXT) for start in STARTS),
    *((header, TEXT, False, TEXT) for header in (*NO_TYPES, *TEXT_TYPES)),
    *((header, HTML, False, HTML) for header in TEXT_TYPES),
]


@pytest.mark.parametrize(("header", "body", "is_html", "text"), READ)
def test_a_page_is_html_or_text_by_its_type_and_without_one_by_its_tags(
    header: str | None, body: str, is_html: bool, text: str
) -> None:
    content = page_content(Page(url="u", body=body.encode(), content_type=header))
    assert (content.is_html, content.main_text().strip()) == (is_html, text)


@pytest.mark.parametrize("header", OTHER_TYPES)
def test_what_browsers_do_not_display_is_no_page(header: str) -> None:
    for page in (
        Page(url="u", body=HTML.encode(), content_type=header),
        Page(url="u", html=HTML, content_type=header),
    ):
        with pytest.raises(PageError) as caught:
            page_content(page)
        assert caught.value.reason == "unsupported_content"
    assert page_content(Page(url="u", text=TEXT, content_type=header)).main_text() == TEXT


@pytest.mark.parametrize("body", BINARY)
@pytest.mark.parametrize(
    "header", [*NO_TYPES, "text/plain", "text/plain; charset=ISO-8859-1", "text/plain;charset=utf-8"]
)
def test_binary_content_that_is_sent_as_text_or_as_nothing_is_no_page(
    body: bytes, header: str | None
) -> None:
    with pytest.raises(PageError) as caught:
        page_content(Page(url="u", body=body, content_type=header))
    assert caught.value.reason == "unsupported_content"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"\x89PNG\0", {"content_type": "text/html"}),
        (b"a\0b", {"content_type": "text/plain;charset=windows-1251"}),
        (b"a" * 1445 + b"\0", {}),
        (b"a\x0c\x1b[0m\r\n\t\x7f\x80\xff", {}),
        (TEXT.encode("utf-16"), {}),
        (TEXT.encode("utf-16-le"), {}),
        (TEXT.encode("utf-16-be"), {"content_type": "text/plain"}),
        ("灯塔".encode("utf-16-le"), {"charset": "utf-16"}),
        ("\n灯塔".encode("utf-16-le"), {"content_type": "text/plain;charset=utf-16"}),
        (b"", {}),
    ],
)
def test_text_may_have_zeros_where_its_charset_has_them(body: bytes, fields: dict[str, str]) -> None:
    page_content(Page(url="u", body=body, **fields))
