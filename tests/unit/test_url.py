"""URLs of one page have one key."""

from __future__ import annotations

import random

import pytest

from stream.errors import PageError
from stream.text.url import _NORMAL, MAX_URL, normalised, url_key


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("HTTP://Example.COM/Path", "http://example.com/Path"),
        ("http://example.com", "http://example.com/"),
        ("http://example.com#top", "http://example.com/"),
        ("http://example.com?q=1", "http://example.com/?q=1"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com/a#b", "http://example.com/a"),
        ("http://example.com/%7euser/%e4%bd%a0", "http://example.com/~user/%E4%BD%A0"),
        ("http://example.com/你好?q=世", "http://example.com/%E4%BD%A0%E5%A5%BD?q=%E4%B8%96"),
        ("http://example.com/a%2Fb", "http://example.com/a%2Fb"),
        ("http://example.com/a/../b/./c", "http://example.com/b/c"),
        ("http://例え.jp/", "http://xn--r8jz45g.jp/"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        (" http://example.com/ ", "http://example.com/"),
        ("http://example.com/?a=1&a=2&b", "http://example.com/?a=1&a=2&b"),
    ],
)
def test_spellings_of_one_address_have_one_key(url: str, key: str) -> None:
    assert url_key(url) == key
    assert url_key(key) == key


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/path",
        "//example.com/",
        "http://",
        "http:///path",
        "mailto:someone@example.com",
        "javascript:alert(1)",
        "http://a b/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://[::1/",
        "http://[::1]@/",
        "http://example.com/\n",
        "http://example.com/\0",
        "http://example.com/\ud800",
        "http://example.com/" + "a" * MAX_URL,
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(PageError) as caught:
        url_key(url)
    assert caught.value.reason == "bad_url"
    assert len(caught.value.detail) < 1000


def test_urls_that_are_seen_to_be_normal_at_a_glance_are() -> None:
    chosen = random.Random(7)
    hosts, tops, letters = (
        ["a", "0", "1.2", "x-_9", "n..b", "-a."],
        ["com", "a1", "xn--a", "1", ""],
        "aZ0-_.~/?&=:%",
    )
    found = 0
    for _ in range(5000):
        path = "".join(chosen.choices(letters, k=chosen.randrange(9)))
        url = f"http://{chosen.choice(hosts)}.{chosen.choice(tops)}/{path}"
        if _NORMAL.fullmatch(url):
            found += 1
            assert normalised(url) == url
    assert found > 500
