"""Rows that are loaded have one verdict each, wherever the load is killed and resumed (rule 21)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from stream.errors import RowsError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.state.ledger import Admission, Ledger
from stream.messages.appends import APPEND_BYTES
from stream.messages.journal import LOAD_PARTITIONS, Corpus, Rows, decode_journal
from stream.roles.loader.records import (
    BLOCK_ROWS,
    LARGEST,
    LoadedRecord,
    LoadedSource,
    range_of,
    records,
)
from stream.roles.loader.resume import JudgedRows
from stream.rows.arrow import Place, PlacedRow

SOURCE = LoadedSource("cd" * 16, Corpus("rows/", 10**10))
SCHEME = Scheme()
REJECTED = Row(Status.REJECTED, None, None, reason="test")


def placed(first: int, end: int, row: Row = REJECTED, key: bytes | None = None) -> Iterator[PlacedRow]:
    return (PlacedRow(Place(number, "", 0), row, key) for number in range(first, end))


def made(rows: Iterable[PlacedRow], start: int) -> list[LoadedRecord]:
    return list(records(SOURCE, SCHEME, rows, start))


def decoded(record: LoadedRecord) -> Rows:
    found = decode_journal(record.value, 0)
    assert isinstance(found, Rows)
    return found


def judge(ledger: Ledger, rows: Rows, judged: JudgedRows) -> list[int]:
    """The numbers of the rows that are judged. What the decision says is noted."""
    admission = Admission()
    found: list[int] = rows.offset[ledger.admit(rows, admission)].tolist()
    ledger.apply(admission.progress.values())
    judged.note({key: each.expected for key, each in admission.progress.items()})
    return found


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_rule_21_a_load_resumed_anywhere_leaves_no_hole_and_repeats_no_row(
    monkeypatch: pytest.MonkeyPatch, seed: int, lossy: bool
) -> None:
    """Loaders stop anywhere, or go on beside a later one; each begins behind what was judged by then. If the
    journal loses records that it had acknowledged, what is missing is found by the next loader."""
    rng = random.Random(seed)
    partitions = rng.randrange(1, 5)
    monkeypatch.setattr("stream.roles.loader.records.LOAD_PARTITIONS", partitions)
    monkeypatch.setattr("stream.roles.loader.resume.LOAD_PARTITIONS", partitions)
    monkeypatch.setattr("stream.roles.loader.records.BLOCK_ROWS", 4)
    monkeypatch.setattr("stream.roles.loader.records.APPEND_BYTES", rng.choice([250, 10_000]))
    total, ledger = rng.randrange(1, 90), Ledger()
    judged = JudgedRows(SOURCE._replace(corpus=Corpus("rows/", total)))
    journal: list[Rows] = []
    found: list[int] = []
    loaders: list[list[LoadedRecord]] = []
    while judged.rows < total:
        if not loaders or rng.random() < 0.1:
            loaders.append(made(placed(judged.rows, total), judged.rows))
        loader = rng.choice(loaders)
        some = rng.randrange(6)
        journal += [decoded(record) for record in loader[:some]]
        del loader[:some]
        if not loader or rng.random() < 0.2:
            loaders.remove(loader)
        if lossy and journal and rng.random() < 0.2:
            journal.pop()
        for _ in range(rng.randrange(len(journal) + 1)):
            found += judge(ledger, journal.pop(0), judged)
            assert set(range(judged.rows)) <= set(found)
            assert lossy or len(found) == judged.rows
    assert len(found) == len(set(found)) == total
    assert lossy or found == list(range(total))


def test_blocks_take_turns_at_the_partitions_and_open_each_once() -> None:
    turns = [
        range_of(SOURCE, block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS) for block in range(LOAD_PARTITIONS + 2)
    ]
    assert [each.partition for each in turns] == [*range(LOAD_PARTITIONS), 0, 1]
    assert [each.opening for each in turns] == [True] * LOAD_PARTITIONS + [False] * 2
    assert [(each.start, each.end) for each in turns[-2:]] == [
        (BLOCK_ROWS, (LOAD_PARTITIONS + 1) * BLOCK_ROWS),
        (2 * BLOCK_ROWS, (LOAD_PARTITIONS + 2) * BLOCK_ROWS),
    ]


def test_a_gap_says_that_the_rows_are_to_be_loaded_again() -> None:
    first = (LOAD_PARTITIONS + 1) * BLOCK_ROWS
    (record,) = made(placed(first, first + 3), first)
    admission = Admission()
    Ledger().admit(decoded(record), admission)
    (gap,) = admission.gaps
    why = f"digest {SOURCE.digest}: rows from its opening up to 1024 are missing; run `neardup load`"
    assert why in str(gap)


def test_numbers_above_two_to_the_31_are_kept() -> None:
    first = 2**33 + 5 * BLOCK_ROWS
    (record,) = made(placed(first, first + BLOCK_ROWS), first)
    rows = decoded(record)
    assert (record.end, rows.offset[-1]) == (first + BLOCK_ROWS, first + BLOCK_ROWS - 1)
    before = range_of(
        SOURCE, first - LOAD_PARTITIONS * BLOCK_ROWS, first - (LOAD_PARTITIONS - 1) * BLOCK_ROWS
    )
    assert (rows.ranges[0].partition, rows.ranges[0].start) == (before.partition, before.end)


def test_a_record_names_what_it_was_loaded_from_and_older_readers_pass_over_it() -> None:
    (record,) = made(placed(0, 3), 0)
    assert decoded(record).corpus == SOURCE.corpus
    (source,) = decoded(record).ranges
    assert (source.cluster, source.topic, source.topic_id) == ("", "load", SOURCE.digest)
    fields = msgspec.msgpack.decode(record.value)
    del fields["corpus"]
    assert decode_journal(msgspec.msgpack.encode(fields), 0).ranges == [source]  # type: ignore[union-attr]


def test_records_of_large_rows_are_no_larger_than_an_append() -> None:
    large = Row(Status.REJECTED, "u" * (APPEND_BYTES // 3), None, reason="test")
    assert [each.end for each in made(placed(0, 5, row=large), 0)] == [2, 4, 5]


def test_a_row_that_fits_no_record_stops_the_load() -> None:
    vast = Row(Status.REJECTED, "u" * LARGEST, None, reason="test")
    with pytest.raises(RowsError, match=r"order=7.*takes 524,\d+ bytes"):
        made(placed(7, 8, row=vast), 7)
