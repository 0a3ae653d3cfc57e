"""JSON as suites of parsers have it: each value costs its own line, or nothing beside fields of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.errors import PageError
from stream.pages.columns import Columns
from stream.pages.page import decode_page
from stream.sources.open import open_source

VALID = [
    b"null",
    b"[]",
    b"-0",
    b"-0.0e-0",
    b"1e-10000",
    b"1e10000",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"1" * 400,
    b"0." + b"1" * 400,
    b'[[],{"":[]},[null,1,"1",{}]]',
    b'{"a":1,"a":2}',
    b'{"a\\u0000b":1}',
    b'"\\u0000"',
    b'"\\uD834\\uDd1e"',
    '"\U0010ffff\u2028\u2029\x7f"'.encode(),
    b'"\\u005C\\u0022"',
    b'"[\\"NaN\\"]"',
    b"[" * 90 + b"]" * 90,
]
"""What the standard allows."""
LENIENT = [
    b"NaN",
    b"-Infinity",
    b"[NaN, Infinity]",
    b'{"a": NaN}',
    b'{"a":' * 10_000 + b"NaN" + b"}" * 10_000,
    b"1" + b"0" * 5000,
    b"-1e999999",
    b'"]\\"NaN"',
    b'"\\uD800"',
    b'"\\uDd1e\\uD834"',
    b'{"\\udead": 1}',
    b'["\\ud800\\n", "\\ud800\\ud800\\udc00"]',
    b"[" * 5000 + b"]" * 5000,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'"\xed\xa0\x80"',
    b'"\xff"',
    b'"\xc0\xaf"',
    b"[" * 101 + b'"]"' + b"]" * 101,
]
"""What it does not allow, or no stack, or what is not UTF-8, and is read all the same."""
INVALID = [
    b"",
    b"nul",
    b"nan",
    b"+1",
    b"01",
    b"-",
    b"1.",
    b".5",
    b"1e",
    b"0x1",
    b"Infinit",
    b"NaNa",
    b"++NaN",
    b'"',
    b'"\t"',
    b'"\\u\xc3\xa9"',
    b"[1,]",
    b"[1",
    b'{"a":1,}',
    b"[1] 2",
    b"/**/ 1",
    b"\xef\xbb\xbf1",
    b"[" * 5000,
    b'{"a":' * 5000,
    b"[" * 5000 + b"]" * 4999 + b"}",
]
"""What is no JSON."""


@pytest.mark.parametrize("columns", [Columns(), Columns(url="address")], ids=["plain", "named"])
@pytest.mark.parametrize(
    ("values", "reason"),
    [(VALID, None), (LENIENT, None), (INVALID, "malformed_json")],
    ids=["valid", "lenient", "invalid"],
)
def test_a_value_beside_the_text_costs_nothing_unless_it_is_no_json(
    tmp_path: Path, values: list[bytes], reason: str | None, columns: Columns
) -> None:
    url = (columns.url or "url").encode()
    page = b'{"%b": "http://a/", "text": "t"}' % url
    lines = [b'{"x": %b, "%b": "http://a/", "y": %b, "text": "t"}' % (value, url, value) for value in values]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([page, *lines, page]))
    messages = list(open_source(str(tmp_path / "a.jsonl"), columns=columns))
    assert [each.place for each in messages] == [f"line {number + 1}" for number in range(len(values) + 2)]
    outcomes = [outcome(each.value) for each in messages]
    assert dict(zip(values, outcomes[1:-1], strict=True)) == dict.fromkeys(values, reason)
    assert outcomes[0] is outcomes[-1] is None


@pytest.mark.parametrize("values", [VALID, LENIENT, INVALID], ids=["valid", "lenient", "invalid"])
def test_a_line_that_is_any_value_costs_itself(tmp_path: Path, values: list[bytes]) -> None:
    page = b'{"url": "http://a/", "text": "t"}'
    lines = [value for value in values if value]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([page, *lines, page]))
    outcomes = [outcome(each.value) for each in open_source(str(tmp_path / "a.jsonl"))]
    assert outcomes[0] is outcomes[-1] is None
    assert len(outcomes) == len(lines) + 2
    assert set(outcomes[1:-1]) <= {"malformed_json", "wrong_type", "missing_field", "empty_message"}


def outcome(message: bytes) -> str | None:
    try:
        page = decode_page(message, 1 << 20)
    except PageError as error:
        return error.reason
    assert (page.url, page.text) == ("http://a/", "t")
    return None
