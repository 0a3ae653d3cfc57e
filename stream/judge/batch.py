"""A batch to judge: the admitted rows of consecutive journal records, in columnar form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from stream.judge.ids import allot
from stream.judge.log_time import log_times
from stream.messages.byte_strings import StringColumn
from stream.messages.decision import Decisions
from stream.messages.journal import Rows, SourceRange, columns_of
from stream.messages.row_columns import MAPS, NUMBERS, digests_in

BATCH_BYTES: Final = 32 << 20
"""Bound on the bytes of a batch, beside that on its rows: of its journal records, of the URLs that its
verdicts name, of verdicts that are exported or counted together. 32,768 ordinary rows take 14 MB. A batch
takes about seven times its bytes of memory while it is judged, and the next one is decided meanwhile."""
_NUMBERS: Final = [each.name for each, _ in NUMBERS if each.judged]
_MAPS: Final = [each.name for each in MAPS if each.judged]


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal record of rows, as consumed."""

    offset: int
    time: int
    """LogAppendTime, in milliseconds since the epoch."""
    digest: bytes
    """`digest_of` the value of the record."""
    rows: Rows


class Decided(NamedTuple):
    """Consecutive journal records, and the decisions about them."""

    entries: Sequence[Entry]
    decisions: Decisions
    next: int
    """The offset after that of the decisions."""
    appended: int = 0
    """When these were appended, in milliseconds since the epoch."""


def digest_of(value: bytes) -> bytes:
    """Return a 16-byte digest of a journal record's value (xxh3-128)."""
    return xxhash.xxh3_128_digest(value)


def pages_of(entries: Sequence[Entry]) -> NDArray[np.int64]:
    """Return the packed ids (N,) of all rows of records."""
    sizes = np.array([len(entry.rows) for entry in entries], np.int64)
    return allot(np.array([entry.offset for entry in entries], np.int64), sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The n rows to judge, in journal order. Every column has n entries."""

    place: NDArray[np.int64]
    """Index among all rows of the records, admitted or not."""
    page: NDArray[np.int64]
    """Packed page ids."""
    time: NDArray[np.int64]
    """Log time of the row's record (rule 15)."""
    status: NDArray[np.uint8]
    fingerprint: NDArray[np.uint64]
    """(n, lanes), the upper one first."""
    sketch: NDArray[np.uint64]
    text_hash: NDArray[np.uint8]
    offset: NDArray[np.int64]
    fetched_at: NDArray[np.int64]
    url: StringColumn
    url_digest: NDArray[np.uint8]
    """(n, 16): zeros for none."""
    key: StringColumn
    reason: dict[int, str]
    """Row -> why its page was rejected."""
    traceparent: dict[int, str]
    """Row -> `traceparent` of its page message."""
    source: NDArray[np.int64]
    """Index into `ranges`."""
    ranges: list[SourceRange]

    def __len__(self) -> int:
        return len(self.status)

    def url_digests(self, rows: NDArray[np.int64]) -> list[bytes]:
        """Return the digest of each of these rows' URLs; NO_DIGEST for none."""
        return digests_in(self.url_digest[rows])

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        admitted: Sequence[NDArray[np.bool_]],
        log_time: int,
        cap: int | None = None,
    ) -> Self:
        """Select the rows of `entries` by the masks `admitted`, one per entry.

        `log_time` is the log time before the batch, `cap` what append times count at most.
        """
        rows = [entry.rows for entry in entries]
        keep = np.concatenate(admitted) if admitted else np.zeros(0, bool)
        place = np.flatnonzero(keep)
        sizes = np.array([len(r) for r in rows], np.int64)
        times = log_times(log_time, [entry.time for entry in entries], cap)
        pages = pages_of(entries)
        ranges = [each for r in rows for each in r.ranges]
        everything = len(place) == len(keep)

        # A record of only openings and declared losses has no rows, and hence unknown widths.
        filled = [r for r in rows if len(r)] or rows[:1]

        def column(name: str) -> NDArray[Any]:
            whole = np.concatenate([getattr(r, name) for r in filled])
            return whole if everything else whole[place]

        columns: dict[str, Any] = {name: column(name) for name in _NUMBERS}
        for name in _MAPS:
            columns[name] = _of_some([getattr(r, name) for r in rows], sizes, keep)
        for name, strings in columns_of([r.strings for r in rows])._asdict().items():
            columns[name] = strings if everything else strings.take(place)

        return cls(
            place=place,
            page=pages[place],
            time=np.repeat(times, sizes)[place],
            source=np.repeat(np.arange(len(ranges)), [r.rows for r in ranges])[place],
            ranges=ranges,
            **columns,
        )


def _of_some(
    values: Sequence[dict[int, str]], sizes: NDArray[np.int64], keep: NDArray[np.bool_]
) -> dict[int, str]:
    """Join dicts from a record's rows to what few rows have, as one of kept rows."""
    if not any(values):
        return {}
    rank = np.cumsum(keep) - 1
    firsts = (np.cumsum(sizes) - sizes).tolist()
    places = [
        (first + row, value)
        for first, of_rows in zip(firsts, values, strict=True)
        for row, value in of_rows.items()
    ]
    return {int(rank[place]): value for place, value in places if keep[place]}
