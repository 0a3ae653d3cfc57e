"""Page messages: tolerant on input, strict about what they mean."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stream.errors import PageError
from stream.pages.decompression import MAX_PARTS, inflate
from stream.pages.fields import FIELDS
from stream.pages.page import Page, PageMessageError, decode_page, page_of_fields

LIMIT = 1 << 20
URL = "http://example.com/"
SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "page.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


def message(**fields: Any) -> bytes:
    return json.dumps({"url": URL, **fields}).encode()


def base(data: bytes) -> str:
    return base64.b64encode(data).decode()


GOOD = [
    ({"text": "hello"}, Page(url=URL, text="hello")),
    ({"text": ""}, Page(url=URL, text="")),
    ({"html": "<p>x", "text": None}, Page(url=URL, html="<p>x")),
    ({"body": base(b"\xff\0"), "charset": "gbk"}, Page(url=URL, body=b"\xff\0", charset="gbk")),
    ({"text": "x", "depth": 3, "links": [{"a": 1}]}, Page(url=URL, text="x")),
    ({"text": "x", "fetched_at": 1_700_000_000_123}, Page(url=URL, text="x", fetched_at=1_700_000_000_123)),
    (
        {"text": "x", "fetched_at": "2023-11-14T22:13:20.123Z"},
        Page(url=URL, text="x", fetched_at=1_700_000_000_123),
    ),
    ({"body": base(gzip.compress(b"abc")), "content_encoding": "gzip"}, Page(url=URL, body=b"abc")),
    ({"body": base(zstandard.compress(b"abc")), "content_encoding": "zstd"}, Page(url=URL, body=b"abc")),
    ({"body": base(b"abc"), "content_encoding": "gzip"}, Page(url=URL, body=b"abc")),
    ({"body": base(zlib.compress(b"abc")), "content_encoding": "deflate"}, Page(url=URL, body=b"abc")),
    ({"html": "\1" * LIMIT}, Page(url=URL, html="\1" * LIMIT)),
    ({"text": "ä" * (LIMIT // 2)}, Page(url=URL, text="ä" * (LIMIT // 2))),
    ({"body": base(b"a" * LIMIT)}, Page(url=URL, body=b"a" * LIMIT)),
    ({"text": "x", "fetched_at": "", "charset": "", "content_type": ""}, Page(url=URL, text="x")),
    ({"text": "x", "html": "", "body": "", "canonical_url": ""}, Page(url=URL, text="x")),
    ({"text": "", "html": ""}, Page(url=URL, html="")),
    (
        {"text": "x", "redirected_from": "http://a/", "canonical_url": "/b"},
        Page(url=URL, text="x", redirected_from="http://a/", canonical_url="/b"),
    ),
]

QUALITIES = [
    ("0.5", 0.5),
    ("-3", -3.0),
    ("1.7976931348623157e308", 1.7976931348623157e308),
    ("12345678901234567890123", 1.2345678901234568e22),
    ("0", 0.0),
    ("null", None),
    *((each, nan) for each in ("true", '"0.5"', '"\\ud800"', "[1]", "{}", "1e999", "-1e999")),
    *((each, nan) for each in ("1" + "0" * 400, "NaN", "Infinity", "-Infinity", " NaN ")),
]


@pytest.mark.parametrize(("written", "quality"), QUALITIES)
@pytest.mark.parametrize("text", ["a", '\\"quality\\": NaN, ', "\\ud800"])
def test_what_is_no_finite_number_is_no_quality_and_costs_no_page(
    written: str, quality: float | None, text: str
) -> None:
    page = decode_page(f'{{"quality":{written},"text":"{text}","url":"{URL}"}}'.encode(), LIMIT)
    assert page.text == json.loads(f'"{text}"').replace("\ud800", "\ufffd")
    assert str(page.quality) == str(quality), "NaN is unlike itself"


def test_a_quality_does_not_mend_other_faults() -> None:
    for written in ('"quality":NaN,"x":NaNs', '"quality":NaNs', '"quality":', '"quality":nan'):
        with pytest.raises(PageMessageError, match="malformed_json"):
            decode_page(f'{{"text":"a","url":"{URL}",{written}}}'.encode(), LIMIT)
    with pytest.raises(PageMessageError, match="wrong_type"):
        decode_page(f'{{"text":5,"url":"{URL}","quality":NaN}}'.encode(), LIMIT)


BAD = [
    ({}, "missing_field"),
    ({"text": None}, "missing_field"),
    ({"text": "x", "html": "x"}, "ambiguous_content"),
    ({"text": 5}, "wrong_type"),
    ({"text": "x", "charset": ["gbk"]}, "wrong_type"),
    ({"text": "x", "canonical_url": 5}, "wrong_type"),
    ({"text": "x", "redirected_from": ["http://a/"]}, "wrong_type"),
    ({"text": "x", "fetched_at": "yesterday"}, "wrong_type"),
    ({"body": "not base64!"}, "bad_base64"),
    ({"body": "é"}, "bad_base64"),
    ({"body": base(gzip.compress(b"abc" * 99)[:11]), "content_encoding": "gzip"}, "bad_compression"),
    ({"body": base(b"ab\0"), "content_encoding": "klingon"}, "bad_compression"),
    ({"html": "a" * (LIMIT + 1)}, "too_large"),
    ({"text": "ä" * (LIMIT // 2) + "a"}, "too_large"),
    ({"body": base(b"a" * (LIMIT + 1))}, "too_large"),
    ({"omitted_bytes": 10**10}, "too_large"),
    ({"body": base(gzip.compress(bytes(LIMIT + 1))), "content_encoding": "gzip"}, "too_large"),
    ({"body": base(zstandard.compress(bytes(LIMIT + 1))), "content_encoding": "zstd"}, "too_large"),
]


@pytest.mark.parametrize(("fields", "page"), GOOD)
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_a_page_reads_the_same_plain_or_compressed(fields: dict[str, Any], page: Page, compress: Any) -> None:
    assert decode_page(compress(message(**fields)), LIMIT) == page


@pytest.mark.parametrize(("fields", "reason"), BAD)
def test_a_bad_page_names_its_fault_and_keeps_its_url(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(PageMessageError) as caught:
        decode_page(message(**fields), LIMIT)
    assert caught.value.reason == reason
    assert caught.value.url == URL


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty_message"),
        (b"", "empty_message"),
        (b" \n", "empty_message"),
        (gzip.compress(b""), "empty_message"),
        (b"{", "malformed_json"),
        (b"\xff\xfe", "malformed_json"),
        (b'{"url": "http://example.com/\xff", "text": ""}', "malformed_json"),
        (b'{"url": "u", "x": ' + b"[" * 100_000 + b"}", "malformed_json"),
        (b"[1]", "wrong_type"),
        (b"null", "wrong_type"),
        (b'"text"', "wrong_type"),
        (b'{"url": 5, "text": ""}', "wrong_type"),
        (b'{"text": ""}', "missing_field"),
        (b'{"url": null, "text": ""}', "missing_field"),
        (b"\x1f\x8b", "bad_compression"),
        (b"\x1f\x8bxxxxxxxxxxxxxxxx", "bad_compression"),
        (b"\x28\xb5\x2f\xfdxxxxxxxxxx", "bad_compression"),
        (gzip.compress(b'{"url": "u"}')[:-4], "bad_compression"),
        (zstandard.compress(bytes(1000))[:-4], "bad_compression"),
        (b"x" * (7 * LIMIT + 1), "too_large"),
    ],
)
def test_what_is_no_page_message_says_why(value: bytes | None, reason: str) -> None:
    with pytest.raises(PageMessageError) as caught:
        decode_page(value, LIMIT)
    assert caught.value.reason == reason
    assert caught.value.url is None


def test_a_lone_surrogate_may_stand_in_any_name_and_at_any_depth() -> None:
    named = b'{"url": "http://e.com/", "text": "a", "\\udfff": 1, "meta": [{"\\ud800": "\\ud800"}]}'
    assert decode_page(named, LIMIT).text == "a"
    record = (
        b'{"response_url": "http://e.com/", "appid": "a", "crawlid": "c", "body": "<p>a</p>",'
        b' "response_headers": {"Content-Type": ["text/html\\ud800"]}}'
    )
    assert decode_page(record, LIMIT).content_type == "text/html�"
    with pytest.raises(PageMessageError, match="malformed_json"):
        decode_page(b'{"url": "http://e.com/", "text": "\\ud800", "depth": nan}', LIMIT)


def test_nan_is_a_missing_value() -> None:
    for mark in (b"", b"\xef\xbb\xbf"):
        page = decode_page(mark + b'{"url": "http://a/", "html": NaN, "text": "x", "fetched_at": NaN}', LIMIT)
        assert page == Page(url="http://a/", text="x")
    with pytest.raises(PageMessageError, match="missing_field"):
        decode_page(b'{"url": NaN, "text": "x"}', LIMIT)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_bomb_allocates_no_more_than_the_bound(compress: Any) -> None:
    bomb = compress(bytes(200 << 20))
    tracemalloc.start()
    with pytest.raises(PageMessageError) as caught:
        decode_page(bomb, LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.reason == "too_large"
    assert peak < 2 * 7 * LIMIT


def test_a_window_that_would_eat_the_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress(bytes(1 << 20))
    unfinished = frame or zstandard.ZstdCompressor(compression_params=parameters).compress(bytes(300 << 20))
    with pytest.raises(PageMessageError):
        decode_page(unfinished, LIMIT)


@pytest.mark.parametrize(("fields", "page"), GOOD)
def test_the_schema_accepts_good_pages(fields: dict[str, Any], page: Page) -> None:
    VALIDATOR.validate({"url": URL, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        fields
        for fields, reason in BAD
        if reason in ("missing_field", "ambiguous_content") or "charset" in fields
    ],
)
def test_the_schema_refuses_bad_pages(fields: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({"url": URL, **fields})


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_body_of_too_many_tiny_streams_is_refused(compress: Callable[[bytes], bytes]) -> None:
    """Each takes time without output, so a page full of them would exceed its deadline."""
    assert inflate(compress(b"") * MAX_PARTS, LIMIT, "body") == b""
    with pytest.raises(PageError, match=f"body: more than {MAX_PARTS}"):
        inflate(compress(b"") * (MAX_PARTS + 1), LIMIT, "body")


VALUES = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.sampled_from([URL, base(b"abc"), "\0" * 40, "2024-02-03T04:05:06Z", "windows-1252"])
    | st.binary(max_size=40)
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.booleans()
)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES), st.integers(0, 4000))
def test_fields_make_the_same_page_as_their_json(fields: dict[str, Any], page_bytes: int) -> None:
    def outcome(decode: Callable[..., Page], given: Any) -> Any:
        try:
            return decode(given, page_bytes)
        except PageMessageError as error:
            return error.reason, error.detail, error.url, error.fetched_at

    assert outcome(page_of_fields, fields) == outcome(decode_page, msgspec.json.encode(fields))
