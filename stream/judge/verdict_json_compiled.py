"""Compiled writer for the JSON of verdicts, byte for byte what `msgspec` writes for a `VerdictRecord`.

Each page has a verdict of half a kilobyte, so encoding them one by one would be a large part of the judge's
work. Instead, the fields are laid out in columns, and a compiled loop that releases the GIL writes the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, copy_bytes
from stream.fingerprint.row import NO_HASH, WORD
from stream.judge.batch import Batch
from stream.judge.decision.decide_rows_compiled import VerdictColumns
from stream.judge.ids import INDEX_BITS, INDEX_MASK, NO_PAGE
from stream.judge.rule import Rule
from stream.messages.byte_strings import StringColumn, Texts
from stream.messages.row_columns import NO_TIME
from stream.messages.verdict import VERDICTS, VERSION, Change, Verdict
from stream.pages.times import rfc3339

_DAY: Final = 86_400_000
"""Milliseconds per day."""
_UNIQUE: Final = int(Verdict.UNIQUE)
_CHANGES: Final = len(Change)
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_NOTHING: Final = np.frombuffer(b"null", np.uint8)
_ESCAPES: Final = np.zeros(256, np.uint8)
"""The letter after the backslash, for the characters that have one."""
_ESCAPE_BYTES: Final = np.zeros(256, np.uint8)
"""By how many bytes a character grows in JSON."""
_ESCAPE_BYTES[: ord(" ")] = 5
for _character, _letter in zip(b'"\\\n\r\t\f\b', b'"\\nrtfb', strict=True):
    _ESCAPES[_character], _ESCAPE_BYTES[_character] = _letter, 1
_LONGEST: Final = 1024
"""Upper bound for the bytes of a verdict except its strings: names, numbers and hex digits."""

# The constant parts between the variable fields, in the order of `_fixed`.
(
    _BEGIN, _URL, _CLUSTER, _NO_CLUSTER, _DUPLICATE_OF, _OTHER_ID, _DISTANCE, _ALONE, _NEAREST, _END_NEAREST,
    _FINGERPRINT, _NO_FINGERPRINT, _HASH, _NO_HASH, _FETCHED_AT, _NULL,
) = range(16)  # fmt: skip


class _Spread(NamedTuple):
    """Strings shared by many rows. Row i has the string at `of[i]`."""

    text: Texts
    of: NDArray[np.int64]


class JsonColumns(NamedTuple):
    """The fields of n verdicts. Strings are encoded as JSON."""

    page: NDArray[np.int64]
    verdict: NDArray[np.uint8]
    change: NDArray[np.uint8]
    cluster: NDArray[np.int64]
    other: NDArray[np.int64]
    distance: NDArray[np.int16]
    fingerprint: NDArray[np.uint8]
    """(n, width / 8): bytes, the most significant first."""
    text_hash: NDArray[np.uint8]
    hashed: NDArray[np.bool_]
    offset: NDArray[np.int64]
    time_of_day: NDArray[np.int64]
    """Milliseconds of `fetched_at` since midnight; -1 for NO_TIME."""
    url: Texts
    other_url: Texts
    similarity: _Spread
    date: _Spread
    """Dates of `fetched_at`, with the opening quote and the `T`."""
    source: _Spread
    decided_at: _Spread
    reason: _Spread
    fixed: Texts
    verdicts: Texts
    """Encoded fields for every combination of verdict and change."""
    public: bool
    """Whether distances and fingerprints are left out, as `nearest` is in `other`."""


def columns(
    batch: Batch, judged: VerdictColumns, other_url: StringColumn, rule: Rule, journal: str
) -> JsonColumns:
    """Lay out the fields of a judged batch. `journal` is the journal's UUID."""
    public = rule.options.public
    return JsonColumns(
        page=batch.page,
        verdict=judged.verdict,
        change=judged.change,
        cluster=judged.cluster,
        other=np.where(judged.verdict == _UNIQUE, NO_PAGE, judged.other) if public else judged.other,
        distance=judged.distance,
        fingerprint=_bytes_of(batch.fingerprint, rule.scheme.width),
        text_hash=np.array(batch.text_hash),
        hashed=(batch.text_hash != np.frombuffer(NO_HASH, np.uint8)).any(axis=1),
        offset=batch.offset,
        time_of_day=np.where(batch.fetched_at == NO_TIME, -1, batch.fetched_at % _DAY),
        url=quoted(batch.url),
        other_url=quoted(other_url),
        similarity=_similarities(judged.similarity, rule),
        date=_dates(batch.fetched_at),
        source=_sources(batch, rule.scheme.id),
        decided_at=_times(batch.time),
        reason=_reasons(batch.reason, len(batch)),
        fixed=_fixed(journal[:8]),
        verdicts=_VERDICTS,
        public=public,
    )


@compiled
def quoted(strings: StringColumn) -> Texts:
    """Write strings in UTF-8 as JSON, with the escapes of `json.encoder`, and None as null."""
    rows, most = len(strings.sizes), 0
    for row in range(rows):
        start, size = strings.starts[row], strings.sizes[row]
        most += max(size, 2) + 2
        for place in range(start, start + size):
            most += _ESCAPE_BYTES[strings.data[place]]
    out, edges = np.empty(most, np.uint8), np.zeros(rows + 1, np.int64)
    at = 0
    for row in range(rows):
        start, size = strings.starts[row], strings.sizes[row]
        if size < 0:
            copy_bytes(out, at, _NOTHING, 0, 4)
            at += 4
        else:
            out[at] = _QUOTE
            at = _escaped(out, at + 1, strings.data, start, start + size)
            out[at] = _QUOTE
            at += 1
        edges[row + 1] = at
    return Texts(out[:at], edges)


@compiled
def _escaped(out: NDArray[np.uint8], at: int, data: NDArray[np.uint8], start: int, end: int) -> int:
    for place in range(start, end):
        byte = data[place]
        if not _ESCAPE_BYTES[byte]:
            out[at] = byte
            at += 1
            continue
        letter = _ESCAPES[byte]
        out[at] = _BACKSLASH
        if letter:
            out[at + 1] = letter
            at += 2
        else:
            out[at + 1], out[at + 2], out[at + 3] = ord("u"), ord("0"), ord("0")
            out[at + 4], out[at + 5] = _DIGITS[byte >> 4], _DIGITS[byte & 15]
            at += 6
    return at


def write(fields: JsonColumns, rows: NDArray[np.int64]) -> Texts:
    """Write the JSON of these rows. Releases the GIL."""
    strings = (
        (fields.url, rows),
        (fields.other_url, rows),
        (fields.source.text, fields.source.of[rows]),
        (fields.reason.text, fields.reason.of[rows]),
    )
    at_most = _LONGEST * len(rows) + sum(int(np.diff(text.edges)[of].sum()) for text, of in strings)
    out, edges = np.empty(at_most, np.uint8), np.zeros(len(rows) + 1, np.int64)
    _write(fields, rows, out, edges)
    return Texts(out[: edges[-1]], edges)


@compiled
def _write(
    fields: JsonColumns, rows: NDArray[np.int64], out: NDArray[np.uint8], edges: NDArray[np.int64]
) -> None:
    at = 0
    for place in range(len(rows)):
        row = rows[place]
        other = fields.other[row]
        at = _copy(out, at, fields.fixed, _BEGIN)
        at = _page(out, at, fields.page[row])
        at = _copy(out, at, fields.fixed, _URL)
        at = _copy(out, at, fields.url, row)
        at = _copy(out, at, fields.verdicts, fields.verdict[row] * _CHANGES + fields.change[row])
        unique = fields.verdict[row] == _UNIQUE
        if other != NO_PAGE or unique:
            at = _copy(out, at, fields.fixed, _CLUSTER)
            at = _page(out, at, fields.cluster[row])
            if other != NO_PAGE:
                at = _copy(out, at, fields.fixed, _NEAREST if unique else _DUPLICATE_OF)
                at = _copy(out, at, fields.other_url, row)
                at = _copy(out, at, fields.fixed, _OTHER_ID)
                at = _page(out, at, other)
                if not unique:
                    at = _copy(out, at, fields.fixed, _DISTANCE)
                    if fields.public:
                        at = _copy(out, at, fields.fixed, _NULL)
                    else:
                        at = _decimal(out, at, fields.distance[row])
                at = _copy(out, at, fields.similarity.text, fields.similarity.of[row])
                if unique:
                    at = _copy(out, at, fields.fixed, _END_NEAREST)
            else:
                at = _copy(out, at, fields.fixed, _ALONE)
            if fields.public:
                at = _copy(out, at, fields.fixed, _NO_FINGERPRINT)
            else:
                at = _copy(out, at, fields.fixed, _FINGERPRINT)
                at = _hex(out, at, fields.fingerprint, row)
        else:
            at = _copy(out, at, fields.fixed, _NO_CLUSTER)
        if fields.hashed[row]:
            at = _copy(out, at, fields.fixed, _HASH)
            at = _hex(out, at, fields.text_hash, row)
        else:
            at = _copy(out, at, fields.fixed, _NO_HASH)
        at = _copy(out, at, fields.source.text, fields.source.of[row])
        at = _decimal(out, at, fields.offset[row])
        at = _copy(out, at, fields.fixed, _FETCHED_AT)
        if fields.time_of_day[row] >= 0:
            at = _copy(out, at, fields.date.text, fields.date.of[row])
            at = _time(out, at, fields.time_of_day[row])
        else:
            at = _copy(out, at, fields.fixed, _NULL)
        at = _copy(out, at, fields.decided_at.text, fields.decided_at.of[row])
        at = _copy(out, at, fields.reason.text, fields.reason.of[row])
        edges[place + 1] = at


# Each of these functions writes at position `at` and returns the position after what it wrote.


@compiled
def _copy(out: NDArray[np.uint8], at: int, texts: Texts, which: int) -> int:
    first: int = texts.edges[which]
    size: int = texts.edges[which + 1] - first
    copy_bytes(out, at, texts.data, first, size)
    return at + size


@compiled
def _page(out: NDArray[np.uint8], at: int, page: int) -> int:
    """Write a page id without the journal's digits, and the closing quote."""
    at = _decimal(out, at, page >> INDEX_BITS)
    out[at] = ord(".")
    at = _decimal(out, at + 1, page & INDEX_MASK)
    out[at] = ord('"')
    return at + 1


@compiled
def _decimal(out: NDArray[np.uint8], at: int, number: int) -> int:
    digits, rest = 1, number // 10
    while rest:
        digits, rest = digits + 1, rest // 10
    _padded(out, at, number, digits)
    return at + digits


@compiled
def _padded(out: NDArray[np.uint8], at: int, number: int, digits: int) -> None:
    for place in range(at + digits - 1, at - 1, -1):
        out[place] = ord("0") + number % 10
        number //= 10


@compiled
def _hex(out: NDArray[np.uint8], at: int, column: NDArray[np.uint8], row: int) -> int:
    """Write the bytes of a row as hex digits, and a quote."""
    for byte in column[row]:
        out[at], out[at + 1] = _DIGITS[byte >> 4], _DIGITS[byte & 15]
        at += 2
    out[at] = ord('"')
    return at + 1


@compiled
def _time(out: NDArray[np.uint8], at: int, milliseconds: int) -> int:
    """Write a time of day, `Z` and a quote."""
    _padded(out, at, milliseconds // 3_600_000, 2)
    out[at + 2] = ord(":")
    _padded(out, at + 3, milliseconds // 60_000 % 60, 2)
    out[at + 5] = ord(":")
    _padded(out, at + 6, milliseconds // 1000 % 60, 2)
    out[at + 8] = ord(".")
    _padded(out, at + 9, milliseconds % 1000, 3)
    out[at + 12] = ord("Z")
    out[at + 13] = ord('"')
    return at + 14


def _texts(*strings: str) -> Texts:
    return Texts.of([each.encode() for each in strings])


def _fixed(journal: str) -> Texts:
    no_duplicate = ',"duplicate_of":null,"distance":null,"similarity":null'
    return _texts(
        f'{{"v":{VERSION},"id":"{journal}.',
        ',"url":',
        f'"{journal}.',
        f'null{no_duplicate},"fingerprint":null',
        ',"duplicate_of":{"url":',
        f',"id":"{journal}.',
        '},"distance":',
        no_duplicate,
        f'{no_duplicate},"nearest":{{"url":',
        "}",
        ',"fingerprint":"',
        ',"fingerprint":null',
        ',"text_hash":"',
        ',"text_hash":null',
        '},"fetched_at":',
        "null",
    )


_VERDICTS: Final = _texts(
    *(
        f',"verdict":"{verdict}","change":{change},"cluster":'
        for verdict in ("", *VERDICTS)
        for change in ("null", *(f'"{each.name.lower()}"' for each in Change if each))
    )
)


def _bytes_of(words: NDArray[np.uint64], width: int) -> NDArray[np.uint8]:
    """Return fingerprints as bytes (n, width / 8), the most significant first."""
    size = 8 * max(1, width // WORD)
    whole = words.astype(">u8").view(np.uint8).reshape(len(words), size)
    return np.ascontiguousarray(whole[:, size - width // 8 :])


def _spread(values: NDArray[np.generic], write: Callable[[NDArray[Any]], list[str]]) -> _Spread:
    """Format the distinct values by `write`."""
    distinct, of = np.unique(values, return_inverse=True)
    return _Spread(_texts(*write(distinct)), of)


def _similarities(values: NDArray[np.int32], rule: Rule) -> _Spread:
    def written(value: int) -> str:
        return msgspec.json.encode(rule.disclosed(value)).decode()

    return _spread(values, lambda distinct: [f',"similarity":{written(each)}' for each in distinct.tolist()])


def _dates(milliseconds: NDArray[np.int64]) -> _Spread:
    days = np.where(milliseconds == NO_TIME, 0, milliseconds // _DAY)
    return _spread(
        days,
        lambda distinct: [f'"{day}T' for day in np.datetime_as_string(distinct.astype("datetime64[D]"))],
    )


def _times(milliseconds: NDArray[np.int64]) -> _Spread:
    return _spread(
        milliseconds,
        lambda distinct: [f',"decided_at":"{rfc3339(each)}","reason":' for each in distinct.tolist()],
    )


def _sources(batch: Batch, scheme: str) -> _Spread:
    written = (
        f',"scheme":"{scheme}","source":{{"topic":{encode_basestring(each.topic)},'
        f'"topic_id":"{each.topic_id}","partition":{each.partition},"offset":'
        for each in batch.ranges
    )
    return _Spread(_texts(*written), batch.source)


def _reasons(reasons: dict[int, str], rows: int) -> _Spread:
    place = {reason: place for place, reason in enumerate(dict.fromkeys(reasons.values()), 1)}
    of = np.zeros(rows, np.int64)
    of[list(reasons)] = [place[reason] for reason in reasons.values()]
    return _Spread(_texts("null}", *(f"{encode_basestring(each)}}}" for each in place)), of)
