"""Turns fingerprinted pages that are loaded into journal records, as a source of their own (rule 21).

Pure: no Kafka, no clock, no tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import RowsError
from stream.fingerprint.row import Row
from stream.messages.appends import APPEND_BYTES, APPEND_ROWS, weight_of
from stream.messages.journal import LOAD, LOAD_PARTITIONS, Corpus, Rows, SourceRange

if TYPE_CHECKING:
    from stream.fingerprint.scheme import Scheme
    from stream.rows.arrow import PlacedRow

BLOCK_ROWS: Final = APPEND_ROWS
"""Rows of a block. Blocks take turns at the LOAD_PARTITIONS pseudo-partitions."""
LARGEST: Final = 512 << 10
"""Maximum weight of a row, below the size of a journal record. No fingerprinter makes such a row."""
NO_CLUSTER: Final = ""
"""Kafka cluster of loaded rows, which come from none."""


class LoadedSource(NamedTuple):
    """What is loaded."""

    digest: str
    """Digest of the manifest, 32 hex digits."""
    corpus: Corpus


class LoadedRecord(NamedTuple):
    """A journal record."""

    value: bytes
    end: int
    """Number of the row after its last one."""


def range_of(source: LoadedSource, first: int, end: int) -> SourceRange:
    """The source range of the rows numbered [first, end), which are all of one block.

    Offsets are the numbers of rows in the order of the corpus. Ranges chain (rule 1): a block's starts at the
    end of the block before it in the same pseudo-partition, and the first one of each is its opening.
    """
    block, inside = divmod(first, BLOCK_ROWS)
    start = first if inside else max(0, (block - LOAD_PARTITIONS + 1) * BLOCK_ROWS)
    return SourceRange(
        NO_CLUSTER, LOAD, source.digest, block % LOAD_PARTITIONS, start, end, end - first, opening=start == 0
    )


def records(
    source: LoadedSource, scheme: Scheme, rows: Iterable[PlacedRow], start: int
) -> Iterator[LoadedRecord]:
    """Yield the journal records of `rows`, of which the first is number `start` of the corpus. A block is one
    record, or several if its rows are large.

    Raises RowsError for a row that fits no record.
    """
    batch = _Batch(start)
    for number, (place, row, key) in enumerate(rows, start):
        weight = weight_of(row, key)
        if weight > LARGEST:
            raise RowsError(f"rows: {place}: takes {weight:,} bytes, at most {LARGEST:,} fit the journal")
        if batch.rows and (number % BLOCK_ROWS == 0 or batch.size + weight > APPEND_BYTES):
            yield batch.record(source, scheme)
            batch = _Batch(number)
        batch.rows.append(row)
        batch.keys.append(key)
        batch.size += weight
    if batch.rows:
        yield batch.record(source, scheme)


@dataclass(slots=True)
class _Batch:
    """The content of a journal record."""

    first: int
    rows: list[Row] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    size: int = 0

    def record(self, source: LoadedSource, scheme: Scheme) -> LoadedRecord:
        end = self.first + len(self.rows)
        numbers = range(self.first, end)
        covered = range_of(source, self.first, end)
        rows = Rows.of(scheme, [covered], self.rows, numbers, self.keys)
        return LoadedRecord(replace(rows, corpus=source.corpus).encode(), end)
