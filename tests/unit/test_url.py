"""URLs of one page have one key."""

from __future__ import annotations

import itertools
import random
from importlib.resources import files

import pytest
import xxhash

from stream.errors import PageError
from stream.fingerprint.scheme import BEHAVIOUR, Scheme
from stream.text.url import (
    _NORMAL,
    COARSEST,
    MAX_URL,
    PLAIN,
    URL_RULES,
    UrlRules,
    normalised,
    url_key,
    url_rules,
)

ALL = url_rules(",".join(URL_RULES))


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
        ("\x00 http://example.com/ \x1f", "http://example.com/"),
        ("http://exam\nple.com/a\tb\r", "http://example.com/ab"),
        ("http://example.com/\x01\x7f\x80", "http://example.com/%01%7F%C2%80"),
        ("HTTP:\\\\example.com\\a\\b?c=\\", "http://example.com/a/b?c=%5C"),
        ("ftp://example.com/a\\b", "ftp://example.com/a%5Cb"),
        ("http://example.com/?a=1&a=2&b", "http://example.com/?a=1&a=2&b"),
        ("http:///example.com", "http://example.com/"),
        ("https:example.com/a", "https://example.com/a"),
        ("http://%65x%C3%A4mple.com/", "http://xn--exmple-cua.com/"),
        ("http://exam\u00adple.com/", "http://example.com/"),
        ("http://user@0x7f.1:80/", "http://user@127.0.0.1/"),
        ("http://０177.0.258/", "http://127.0.1.2/"),
        ("http://3232235521./", "http://192.168.0.1/"),
        ("foo://127.1/", "foo://127.1/"),
        ("http://example.com/a%20b?c=d%20e f", "http://example.com/a%20b?c=d+e+f"),
        ("http://example.com/?=c&a=&&b&d==", "http://example.com/?=c&a&b&d=="),
        ("http://example.com/?a=1&amp;b&#38;c&AMP;amp;d", "http://example.com/?a=1&b&c&d"),
        ("http://example.com/&amp;a?a&amp;", "http://example.com/&amp;a?a&amp;"),
    ],
)
def test_spellings_of_one_address_have_one_key(url: str, key: str) -> None:
    for rules in (PLAIN, ALL):
        assert url_key(url, rules) == key
        assert url_key(key, rules) == key


@pytest.mark.parametrize(
    ("rule", "url", "key"),
    [
        ("routes", "http://a.com/#!/news/7", "http://a.com/#!/news/7"),
        ("routes", "http://a.com#/news?q=%7e", "http://a.com/#/news?q=~"),
        ("routes", "http://a.com/?x=1#!7", "http://a.com/?x=1#!7"),
        ("routes", "http://a.com/#news", "http://a.com/"),
        ("routes", "http://a.com/#", "http://a.com/"),
        ("sorted", "http://a.com/?b=2&a=9&b=1&a=1", "http://a.com/?a=9&a=1&b=2&b=1"),
        ("sorted", "http://a.com/?b&a#x", "http://a.com/?a&b"),
        ("tracking", "http://a.com/?b=1&utm_source=x&a=2", "http://a.com/?b=1&a=2"),
        ("tracking", "http://a.com/?utm_source=x&", "http://a.com/"),
        ("tracking", "http://a.com/?&utm_source=x#!/route", "http://a.com/"),
        ("tracking", "http://a.com/?utm_source=x&&", "http://a.com/"),
        ("tracking", "http://a.com/?UTM_Whatever=x&%66bclid=y", "http://a.com/"),
        ("tracking", "http://a.com/p?gclid", "http://a.com/p"),
        ("tracking", "http://a.com/p?a&amp;utm_source=x&amp;__hstc=1", "http://a.com/p?a"),
        ("tracking", "http://a.com/?gclid_of=1&xutm_a=2", "http://a.com/?gclid_of=1&xutm_a=2"),
    ],
)
def test_each_rule_does_what_its_name_says_and_no_other_does(rule: str, url: str, key: str) -> None:
    assert url_key(url, url_rules(rule)) == key
    if url_key(url, PLAIN) != key:
        assert url_key(url, url_rules(",".join(each for each in URL_RULES if each != rule))) != key
    for others in itertools.chain.from_iterable(itertools.combinations(URL_RULES, n) for n in range(4)):
        rules = url_rules(",".join(others))
        assert url_key(url_key(url, rules), rules) == url_key(url, rules)


def test_all_rules_apply_together_and_leave_routes_alone() -> None:
    url = "http://a.com/p?b=1&utm_source=x&a=2#!/q?z=1&utm_source=2&a=3"
    assert url_key(url, ALL) == "http://a.com/p?a=2&b=1#!/q?z=1&utm_source=2&a=3"
    assert url_key(url, COARSEST) == "http://a.com/p?a=2&b=1"
    assert url_key("http://a.com/p#/q?z=1&a=2", ALL) == "http://a.com/p#/q?z=1&a=2"


def test_rules_are_an_option_of_the_scheme() -> None:
    assert Scheme().url_rules == ALL
    assert Scheme(url_key="").url_rules == PLAIN
    assert Scheme(url_key="tracking,routes").url_rules == UrlRules(routes=True, sorted=False, tracking=True)
    assert len({Scheme(url_key=each).id for each in ("", "routes", "routes,sorted")}) == 3
    with pytest.raises(ValueError, match="url_key=routes,x: unknown rule 'x'"):
        Scheme(url_key="routes,x")
    with pytest.raises(ValueError, match=r"url_key=anywhere: .* canonical is missing"):
        Scheme(url_key="anywhere")


def test_the_list_of_tracking_parameters_changes_with_the_version_of_keys() -> None:
    """Another list gives other keys: raise `url_key` in `scheme.BEHAVIOUR` with it."""
    listed = files("stream.text").joinpath("tracking_parameters.txt").read_bytes()
    assert (BEHAVIOUR["url_key"], xxhash.xxh3_64_hexdigest(listed)) == (4, "2f9c02b987e1eabb")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/path",
        "//example.com/",
        "http://",
        "foo:///path",
        "http://256.1.1.1/",
        "http://1.2.3.4.5/",
        "http://1..2/",
        "http://09.1/",
        "http://a.1/",
        "http://a%2Fb/",
        "http://a%00b/",
        "http://%FF.com/",
        "mailto:someone@example.com",
        "javascript:alert(1)",
        "http://a b/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://[::1/",
        "http://[::1]@/",
        "http://exam\x01ple.com/",
        "http:\\\\",
        "http://example.com/\ud800",
        "http://example.com/" + "a" * MAX_URL,
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(PageError) as caught:
        url_key(url, ALL)
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
            assert normalised(url, routes=True) == url
    assert found > 500
