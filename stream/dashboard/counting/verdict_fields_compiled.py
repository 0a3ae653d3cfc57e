"""Compiled parser for the counted fields of verdicts in JSON.

The judge writes all verdicts in one layout (`stream.judge.verdict_json_compiled`). Those in this layout and
in plain ASCII are parsed here; others are left to a JSON decoder.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.messages.byte_strings import Texts
from stream.messages.verdict import VERDICTS, VERSION
from stream.text.url import MAX_URL

NONE: Final = -1
"""Marks a missing number or position."""
_STRING, _NULL, _INTEGER, _DECIMAL = 1, 2, 4, 8
_LAYOUT: Final = (
    (f'{{"v":{VERSION},"id":', _STRING),
    (',"url":', _STRING | _NULL),
    (',"verdict":', _STRING),
    (',"change":', _STRING | _NULL),
    (',"cluster":', _STRING | _NULL),
    (',"duplicate_of":', _NULL),  # or an object with the next two
    ('{"url":', _STRING),
    (',"id":', _STRING),
    (',"distance":', _INTEGER | _NULL),
    (',"similarity":', _INTEGER | _DECIMAL | _NULL),
    (',"fingerprint":', _STRING | _NULL),
    (',"text_hash":', _STRING | _NULL),
    (',"scheme":', _STRING),
    (',"source":{"topic":', _STRING),
    (',"topic_id":', _STRING),
    (',"partition":', _INTEGER),
    (',"offset":', _INTEGER),
    ('},"fetched_at":', _STRING | _NULL),
    (',"decided_at":', _STRING),
    (',"reason":', _STRING | _NULL),
    ("}", 0),
)
_NAMES: Final = [name for name, _ in _LAYOUT]
(_URL, _VERDICT, _CLUSTER, _OTHER, _OTHER_ID, _DISTANCE, _SIMILARITY, _DECIDED_AT, _REASON, _END) = (
    _NAMES.index(name)
    for name in (
        ',"url":', ',"verdict":', ',"cluster":', ',"duplicate_of":', ',"id":', ',"distance":',
        ',"similarity":', ',"decided_at":', ',"reason":', "}",
    )
)  # fmt: skip
_KINDS: Final = np.array([kinds for _, kinds in _LAYOUT], np.int64)
_DATA, _EDGES = Texts.of([name.encode() for name in _NAMES])
_VERDICT_DATA, _VERDICT_EDGES = Texts.of([each.encode() for each in VERDICTS])
_VERDICTS: Final = len(VERDICTS)
_DUPLICATE: Final = VERDICTS.index("duplicate")
_TIME: Final = np.frombuffer(bytearray(b"0000-00-00T00:00:00.000Z"), np.uint8)
_DIGITS: Final = 5
"""Maximum number of digits of an integer, which suffices for distances."""
_DECIMALS: Final = 8
"""Maximum number of decimals of a similarity. With more, truncation might not equal rounding down."""
_HASH_BASE: Final = np.uint64(0x9E3779B97F4A7C15)

# Classes of bytes in URLs that are equal to their key (`stream.text.url`).
_HOST, _PATH, _QUERY = 1, 2, 4


def _classes() -> NDArray[np.uint8]:
    kinds = np.zeros(256, np.uint8)
    lower, digits, upper = (
        b"abcdefghijklmnopqrstuvwxyz",
        b"0123456789",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    )
    for kind, members in (
        (_HOST, lower + digits + b"_-"),
        (_PATH, lower + digits + upper + b"._~-"),
        (_QUERY, lower + digits + upper + b"._~=&-"),
    ):
        kinds[list(members)] |= kind
    return kinds


_CLASS: Final = _classes()


class Scanned(NamedTuple):
    """Fields of n verdicts. Positions refer to the parsed text. Rows with `read` False were not parsed."""

    read: NDArray[np.bool_]
    verdict: NDArray[np.int64]
    """Index into VERDICTS."""
    distance: NDArray[np.int64]
    hundredths: NDArray[np.int64]
    """Hundredths of the similarity, rounded down."""
    seconds: NDArray[np.int64]
    """`decided_at`, in whole seconds since the epoch."""
    clustered: NDArray[np.bool_]
    """Whether the verdict is a duplicate with a cluster."""
    url: NDArray[np.int64]
    """(n, 2): start and end of the URL, or NONE if it is null."""
    host: NDArray[np.int64]
    """(n, 2): start and end of its host, or NONE if the URL differs from its key."""
    reason: NDArray[np.int64]
    """(n, 2): start and end of the reject reason."""
    same_host: NDArray[np.int64]
    """Index of the first row with the same host."""


def scan(text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Scanned:
    """Parse n verdicts, the i-th of which is `text[starts[i]:ends[i]]`. Releases the GIL."""
    n = len(starts)
    numbers, spans = np.full((4, n), NONE, np.int64), np.full((3, n, 2), NONE, np.int64)
    read, clustered = np.zeros((2, n), np.bool_)
    verdict, distance, hundredths, seconds = numbers
    url, host, reason = spans
    scanned = Scanned(
        read, verdict, distance, hundredths, seconds, clustered, url, host, reason, np.arange(n)
    )
    # A hash table at most half full, so that probing stays short.
    places = np.full(1 << (2 * n + 1).bit_length(), NONE, np.int64)
    _scan(text, starts, ends, scanned, places)
    return scanned


@compiled
def _scan(
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    scanned: Scanned,
    places: NDArray[np.int64],
) -> None:
    at = np.full((len(_KINDS), 2), NONE, np.int64)
    for row in range(len(starts)):
        if not _find_fields(text, starts[row], ends[row], at):
            continue
        verdict = _which_verdict(text, at[_VERDICT, 0], at[_VERDICT, 1])
        distance = _integer(text, at[_DISTANCE, 0], at[_DISTANCE, 1])
        hundredths = _hundredths(text, at[_SIMILARITY, 0], at[_SIMILARITY, 1])
        seconds = _seconds(text, at[_DECIDED_AT, 0], at[_DECIDED_AT, 1])
        if verdict == NONE or distance < NONE or hundredths < NONE or seconds == NONE:
            continue
        scanned.verdict[row], scanned.seconds[row] = verdict, seconds
        scanned.distance[row], scanned.hundredths[row] = distance, hundredths
        cluster = at[_CLUSTER, 1] > at[_CLUSTER, 0]
        scanned.clustered[row] = verdict == _DUPLICATE and cluster
        scanned.url[row, 0], scanned.url[row, 1] = at[_URL, 0], at[_URL, 1]
        scanned.reason[row, 0], scanned.reason[row, 1] = at[_REASON, 0], at[_REASON, 1]
        if at[_URL, 0] != NONE:
            first, end = _host(text, at[_URL, 0], at[_URL, 1])
            scanned.host[row, 0], scanned.host[row, 1] = first, end
            if first != NONE:
                scanned.same_host[row] = _first_of_host(text, scanned.host, row, places)
        scanned.read[row] = True


@compiled
def _find_fields(text: NDArray[np.uint8], at: int, end: int, spans: NDArray[np.int64]) -> bool:
    """Find the start and end of all values of a verdict. Returns False if it is not in the layout."""
    field = 0
    while field < len(_KINDS):
        size = _EDGES[field + 1] - _EDGES[field]
        if at + size > end:
            return False
        for place in range(size):
            if text[at + place] != _DATA[_EDGES[field] + place]:
                return False
        at += size
        if field == _END:
            return at == end
        if at >= end:
            return False
        if field == _OTHER and text[at] == ord("{"):
            field += 1
            continue
        first, last, at = _value(text, at, end, _KINDS[field])
        if at == NONE:
            return False
        spans[field, 0], spans[field, 1] = first, last
        if field == _OTHER:
            field = _OTHER_ID  # null: skip the fields of the object
        elif field == _OTHER_ID:
            if at >= end or text[at] != ord("}"):
                return False
            at += 1
        field += 1
    return False


@compiled
def _value(text: NDArray[np.uint8], at: int, end: int, kinds: int) -> tuple[int, int, int]:
    """Return start and end of a value without quotes, and the position after it; NONE if not of `kinds`."""
    if text[at] == ord('"') and kinds & _STRING:
        first = at + 1
        at = first
        while at < end and text[at] != ord('"'):
            if text[at] == ord("\\") or not 0x20 <= text[at] < 0x7F:
                return NONE, NONE, NONE
            at += 1
        return (first, at, at + 1) if at < end else (NONE, NONE, NONE)
    if text[at] == ord("n") and kinds & _NULL:
        if at + 4 <= end and text[at + 1] == ord("u") and text[at + 2] == text[at + 3] == ord("l"):
            return NONE, NONE, at + 4
        return NONE, NONE, NONE
    if kinds & (_INTEGER | _DECIMAL):
        first = at
        at = _after_digits(text, at, end)
        if at - first > 1 and text[first] == ord("0"):
            return NONE, NONE, NONE
        if at < end and text[at] == ord(".") and kinds & _DECIMAL and at > first:
            point = at
            at = _after_digits(text, at + 1, end)
            if at == point + 1:
                return NONE, NONE, NONE
        if at > first and at < end:
            return first, at, at
    return NONE, NONE, NONE


@compiled
def _after_digits(text: NDArray[np.uint8], at: int, end: int) -> int:
    while at < end and ord("0") <= text[at] <= ord("9"):
        at += 1
    return at


@compiled
def _which_verdict(text: NDArray[np.uint8], first: int, end: int) -> int:
    for which in range(_VERDICTS):
        begin, size = _VERDICT_EDGES[which], _VERDICT_EDGES[which + 1] - _VERDICT_EDGES[which]
        if size == end - first:
            same = True
            for place in range(size):
                same &= text[first + place] == _VERDICT_DATA[begin + place]
            if same:
                return which
    return NONE


@compiled
def _integer(text: NDArray[np.uint8], first: int, end: int) -> int:
    """Parse an integer. Returns NONE for null, and less than NONE for too many digits."""
    if first == NONE:
        return NONE
    if end - first > _DIGITS:
        return NONE - 1
    number = 0
    for place in range(first, end):
        number = 10 * number + int(text[place]) - ord("0")
    return number


@compiled
def _hundredths(text: NDArray[np.uint8], first: int, end: int) -> int:
    """Parse a decimal number to hundredths, rounded down.

    Returns NONE for null, and less than NONE for too many digits.
    """
    if first == NONE:
        return NONE
    point = _after_digits(text, first, end)
    whole = _integer(text, first, point)
    if whole < 0 or end - point - 1 > _DECIMALS:
        return NONE - 1
    tenths = int(text[point + 1]) - ord("0") if point + 1 < end else 0
    hundredths = int(text[point + 2]) - ord("0") if point + 2 < end else 0
    return 100 * whole + 10 * tenths + hundredths


@compiled
def _seconds(text: NDArray[np.uint8], first: int, end: int) -> int:
    """Parse a time as written by `rfc3339` to seconds since the epoch. Returns NONE if it is malformed."""
    if end - first != len(_TIME):
        return NONE
    for place in range(len(_TIME)):
        byte = text[first + place]
        if _TIME[place] == ord("0"):
            if not ord("0") <= byte <= ord("9"):
                return NONE
        elif byte != _TIME[place]:
            return NONE
    year, month = _integer(text, first, first + 4), _integer(text, first + 5, first + 7)
    day, hour = _integer(text, first + 8, first + 10), _integer(text, first + 11, first + 13)
    minute, second = _integer(text, first + 14, first + 16), _integer(text, first + 17, first + 19)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 30 + (month + month // 8) % 2 if month != 2 else 28 + leap
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= longest):
        return NONE
    if hour > 23 or minute > 59 or second > 59:
        return NONE
    # Days of the Gregorian calendar, with years that start in March.
    if month <= 2:
        year, month = year - 1, month + 12
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719469
    return ((days * 24 + hour) * 60 + minute) * 60 + second


@compiled
def _host(text: NDArray[np.uint8], first: int, end: int) -> tuple[int, int]:
    """Find the host in a URL that is equal to its key (`stream.text.url`), as most URLs are.

    Returns its start and end, or NONE for other URLs.
    """
    if end - first > MAX_URL or end - first < 8:
        return NONE, NONE
    if not (text[first] == ord("h") and text[first + 1] == text[first + 2] == ord("t")):
        return NONE, NONE
    at = first + 4
    if text[first + 3] != ord("p"):
        return NONE, NONE
    if text[at] == ord("s"):
        at += 1
    if not (text[at] == ord(":") and text[at + 1] == text[at + 2] == ord("/")):
        return NONE, NONE
    begin = label = at = at + 3
    labels = 0
    while at < end and text[at] != ord("/"):
        if text[at] == ord("."):
            if at == label:
                return NONE, NONE
            label, labels = at + 1, labels + 1
        elif not _CLASS[text[at]] & _HOST:
            return NONE, NONE
        at += 1
    if at in (end, label) or not labels or not ord("a") <= text[label] <= ord("z"):
        return NONE, NONE
    host_end = at
    while at < end and text[at] != ord("?"):  # at a slash, which starts a segment
        at += 1
        if at < end and (text[at] == ord(".") or text[at] == ord("/")):
            return NONE, NONE
        while at < end and _CLASS[text[at]] & _PATH:
            at += 1
        if at < end and text[at] != ord("/") and text[at] != ord("?"):
            return NONE, NONE
    if at < end:
        at += 1
        if at == end:
            return NONE, NONE
        while at < end:
            if not _CLASS[text[at]] & _QUERY:
                return NONE, NONE
            at += 1
    return begin, host_end


@compiled
def _first_of_host(
    text: NDArray[np.uint8], hosts: NDArray[np.int64], row: int, places: NDArray[np.int64]
) -> int:
    """Return the first row with the host of this row. `places` is a hash table of first rows."""
    first, size = hosts[row, 0], hosts[row, 1] - hosts[row, 0]
    hashed = np.uint64(size)
    for place in range(first, first + size):
        hashed = (hashed ^ np.uint64(text[place])) * _HASH_BASE
    mask = len(places) - 1
    place = int(np.int64(hashed >> np.uint64(40))) & mask
    while places[place] != NONE:
        other = int(places[place])
        if hosts[other, 1] - hosts[other, 0] == size:
            same = True
            for byte in range(size):
                if text[first + byte] != text[hosts[other, 0] + byte]:
                    same = False
                    break
            if same:
                return other
        place = (place + 1) & mask
    places[place] = row
    return row


def rehearse() -> None:
    """Compile the loops that `scan` uses."""
    none = np.zeros(0, np.int64)
    scan(np.frombuffer(b"[]", np.uint8), none, none)
