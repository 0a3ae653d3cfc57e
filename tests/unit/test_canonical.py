"""The canonical URL that a page names, and when it is followed."""

from __future__ import annotations

import pytest

from stream import Index, Page, Scheme
from stream.errors import SettingsError
from stream.fingerprint.row import Row
from stream.judge.explain.explain import explain, side_of_page
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.text.canonical import HEAD_CHARACTERS, canonical_link, canonical_of_header
from tests.url_digests import digest_of_url

URL = "https://example.com/a/b?x=1"
C = "https://example.com/a/c"
TEXT = "The harbour authority will repair the old lighthouse at the north pier before the winter storms."
OTHER = "Bakers in the valley sell bread of rye and spelt, which they bake in ovens of clay every Friday."
ALL = Scheme(url_key="routes,sorted,tracking,redirected,canonical")
ANYWHERE = Scheme(url_key="canonical,anywhere")


@pytest.mark.parametrize(
    ("html", "canonical"),
    [
        ("<link rel=canonical href=/c>", "https://example.com/c"),
        ("<!doctype html><html lang=en><head>\n<LINK HREF='c' REL='x Canonical'/>", C),
        ('<link rel="canonical" href="//b.com/?a=1&amp;b=2">', "https://b.com/?a=1&b=2"),
        ('<link href="?y" data-x="<p>" rel=canonical>', "https://example.com/a/b?y"),
        ("<link rel=canonical href='c?a&region=eu&section;&amp;&copy'>", f"{C}?a&region=eu&section;&\xa9"),
        ("<link rel=canonical href='&#47;c&#x2f;&#xd8'>", "https://example.com/c/\xd8"),
        (f"<link rel=canonical href='c#{'&#' + '1' * 5000};'>", f"{C}#&#{'1' * 5000};"),
        ("<link/rel=canonical/href=/c>", None),  # the value is canonical/href=/c
        ("<base href=/z/><link rel=canonical href=c>", "https://example.com/z/c"),
        ("<base target=x><base href=//b.com/><base href=/z/><link rel=canonical href=c>", "https://b.com/c"),
        ("<link rel=canonical><link rel=canonical href=''><link rel=canonical href=c>", C),
        ("<link rel=canonical href=c><link rel=canonical href=d>", C),
        ("<link rel=canonical href=c rel=icon href=d>", C),
        ("<link rel=icon rel=canonical href=c>", None),
        ("<link rel=alternate href=c>", None),
        ("<link rel=canonical href='http://[x'>", None),
        ("<link rel=canonical href=/c", "https://example.com/c"),
        # What is no markup of the head is passed over.
        ("\ufeff<?xml version='1.0'?><!-- <link rel=canonical href=d> --><link rel=canonical href=c>", C),
        ("<!--><link rel=canonical href=/c>", "https://example.com/c"),
        ("<title>a < b <link rel=canonical href=d></title><link rel=canonical href=c>", C),
        ("<script>'<link rel=canonical href=d></scripted>'</SCRIPT ><link rel=canonical href=c>", C),
        ("<noscript><link rel=canonical href=d></noscript></p><link rel=canonical href=c>", C),
        # Nothing is read behind the head: visitors may have written it.
        ("<head></head><link rel=canonical href=c>", None),
        ("<p>comment<link rel=canonical href=c>", None),
        ("comment<link rel=canonical href=c>", None),
        ("<body><link rel=canonical href=c>", None),
        ("<meta name=a content='<link rel=canonical href=c>'>", None),
        ("<title>never closed<link rel=canonical href=c>", None),
        ("<!-- never closed <link rel=canonical href=c>", None),
        (f"<!--{'-' * HEAD_CHARACTERS}--><link rel=canonical href=c>", None),
    ],
)  # fmt: skip
def test_the_first_canonical_link_of_the_head_is_found(html: str, canonical: str | None) -> None:
    assert canonical_link(html, URL) == canonical


@pytest.mark.parametrize(
    "piece",
    ["<", "<a", "<!--", "</", "<link a=", "<link a='", "<link ", "<link rel=canonical ", "<title>",
     "<script></scrip ", "<link a    ", "<link //", "<base href=a>", "<link href='&amp'>",
     " ", "<!x>", "<!-- --", '<link rel="'],
)  # fmt: skip
def test_no_markup_finds_a_link_that_is_not_there(piece: str) -> None:
    assert canonical_link(piece * (2 * HEAD_CHARACTERS // len(piece)), URL) is None


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ('</c>; rel="canonical"', "https://example.com/c"),
        ("<c>;rel=canonical", C),
        ('<d>; title="a, b"; rel=preload, <c>; type=x; rel="next Canonical"', C),
        ('<d>; title="; rel=canonical"', None),
        ("<d>; rel=alternate", None),
        ("canonical", None),
        ("<" * 100_000, None),
        ("<a>;" * 100_000, None),
        ("<c>; a b=; " + "a" * 99 + '=";rel=canonical', C),
    ],
)
def test_the_header_link_names_one_too(value: str, canonical: str | None) -> None:
    assert canonical_of_header(value, URL) == canonical


def key(scheme: Scheme, url: str, canonical: str | None = None, asked: str | None = None) -> str | None:
    page = Page(url=url, text=TEXT, canonical_url=canonical, redirected_from=asked)
    read = PageFingerprinter(scheme).read_page(page)
    return read.url_key


@pytest.mark.parametrize(
    ("url", "canonical", "followed"),
    [
        ("http://a.com/p?id=7", "http://a.com/p", True),
        ("http://a.com/p", "https://A.com:443/q?utm_source=x", True),
        ("http://a.com/p", "http://a.com/p#top", True),
        ("http://a.com:8080/p", "http://a.com:8080/q", True),
        ("http://a.com/?id=7", "http://a.com/", True),
        # Another host or port is another's; and most sites that name their front page do so everywhere.
        ("http://a.com/p", "http://b.com/p", False),
        ("http://a.com/p", "http://www.a.com/p", False),
        ("http://a.com/p", "http://a.com:8080/p", False),
        ("http://a.com/p", "http://a.com@b.com/p", False),
        ("http://a.com/p", "http://b.com\\@a.com/p", False),
        ("http://a.com/p", "http://a.com/", False),
        ("http://a.com/p", "javascript:alert(1)", False),
        ("http://a.com/p", "ftp://a.com/q", False),
        ("http://a.com/p", "http://a.com/" + "q" * 9000, False),
        ("http://a.com/p", "http://a.com/\ud800", False),
        ("http://a.com/p", "", False),
    ],
)
def test_a_canonical_url_is_followed_within_its_host(url: str, canonical: str, followed: bool) -> None:
    own = key(ALL, url)
    assert key(Scheme(), url, canonical) == own
    assert key(ALL, url, canonical) == (key(ALL, canonical) if followed else own)


def test_hosts_are_left_by_an_option_alone() -> None:
    assert key(ANYWHERE, "http://a.com/p", "http://b.com/p") == "http://b.com/p"
    assert key(ANYWHERE, "http://a.com/p", "http://b.com/") == "http://a.com/p"
    with pytest.raises(SettingsError, match="canonical is missing"):
        Scheme.of({"url_key": "anywhere"})


def test_a_redirected_page_has_the_key_of_the_url_that_was_asked_for() -> None:
    moved, asked = "http://b.com/p?sid=1", "http://A.com/p#x"
    assert key(ALL, moved, asked=asked) == "http://a.com/p"
    assert key(Scheme(), moved, asked=asked) == moved
    assert key(ALL, moved, asked="nothing") == moved
    # A canonical URL is compared with the host that named it, not with the one that was asked.
    assert key(ALL, moved, canonical="http://b.com/q", asked=asked) == "http://b.com/q"
    assert key(ALL, moved, canonical="http://a.com/q", asked=asked) == "http://a.com/p"


def test_html_is_read_whatever_it_comes_as_and_text_is_not() -> None:
    html = f"<link rel=canonical href=/q><p>{TEXT} {TEXT}"
    fingerprinter = PageFingerprinter(ALL)
    pages = [
        (Page(url="http://a.com/p", html=html), "http://a.com/q"),
        (Page(url="http://a.com/p", body=html.encode("utf-16"), charset="utf-16"), "http://a.com/q"),
        (Page(url="http://a.com/p", html=html, canonical_url="/r"), "http://a.com/p"),
        (Page(url="http://a.com/p", html=html, canonical_url="http://a.com/r"), "http://a.com/r"),
        (Page(url="http://a.com/p", text=html), "http://a.com/p"),
        (Page(url="http://a.com/p", body=html.encode(), content_type="text/plain"), "http://a.com/p"),
    ]
    for page, expected in pages:
        row = fingerprinter.page(page)
        assert (row.url, row.url_digest) == ("http://a.com/p", digest_of_url(expected))
    rejected = fingerprinter.read_page(Page(url="http://a.com/p", canonical_url="http://a.com/q"))
    assert isinstance(rejected, Row)
    assert (rejected.reason, rejected.url_digest) == ("missing_field", digest_of_url("http://a.com/p"))


def test_the_verdict_shows_the_pages_own_url_and_names_the_page_before() -> None:
    def page(url: str, text: str, canonical: str = "/news") -> Page:
        return Page(url=url, html=f"<link rel=canonical href={canonical}><p>{text} {text}")

    with Index(scheme=ALL) as index:
        pages = [
            page("http://a.com/news", TEXT),
            page("http://a.com/print?id=7", TEXT),
            page("http://a.com/amp", OTHER),
            page("http://evil.com/", TEXT + TEXT[:20], "http://a.com/news"),
            page("http://a.com/news", OTHER),
        ]
        answers = [index.add_page(each) for each in pages]
        assert [(each.name, each.verdict, each.change, each.duplicate_of) for each in answers] == [
            ("http://a.com/news", "unique", "new", None),
            ("http://a.com/print?id=7", "recrawl", "unchanged", "http://a.com/news"),
            ("http://a.com/amp", "unique", "changed", None),
            ("http://evil.com/", "unique", "new", None),
            ("http://a.com/news", "recrawl", "unchanged", "http://a.com/amp"),
        ]


def test_explain_compares_pages_of_one_canonical_url_without_tables() -> None:
    fingerprinter, html = PageFingerprinter(ALL), f"<link rel=canonical href=/q><p>{TEXT} {TEXT}"
    sides = [side_of_page(each, Page(url=f"http://a.com/{each}", html=html), fingerprinter) for each in "pq"]
    assert explain(*sides, ALL, VerdictOptions()).verdict == "recrawl"
