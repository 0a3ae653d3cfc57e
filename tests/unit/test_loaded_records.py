"""Rows that are loaded have one verdict each, wherever the load is killed and resumed (rule 21)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from stream.errors import RowsError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.ledger import Admission, Ledger
from stream.kafka.backlog import KEY_BYTES
from stream.kafka.decided_positions import judged_rows
from stream.kafka.loaded_records import (
    BLOCK_ROWS,
    LARGEST,
    PARTITIONS,
    LoadedRecord,
    LoadedSource,
    range_of,
    records,
)
from stream.messages.decision import Decisions, SourceProgress, encode_decisions
from stream.messages.journal import Corpus, Rows, decode_journal
from stream.rows.columns import Place, PlacedRow
from tests.topic_in_memory import TopicInMemory

SOURCE = LoadedSource("cd" * 16, Corpus("rows/", 10**10))
SCHEME = Scheme()
REJECTED = Row(Status.REJECTED, None, None, None, reason="test")


def placed(first: int, end: int, row: Row = REJECTED, key: bytes | None = None) -> Iterator[PlacedRow]:
    return (PlacedRow(Place(number, "", 0), row, key) for number in range(first, end))


def made(rows: Iterable[PlacedRow], start: int) -> list[LoadedRecord]:
    return list(records(SOURCE, SCHEME, rows, start, uncertain=False))


def decoded(record: LoadedRecord) -> Rows:
    found = decode_journal(record.value, 0)
    assert isinstance(found, Rows)
    return found


def judge(ledger: Ledger, rows: Rows) -> tuple[list[int], int]:
    """The numbers of the rows that are judged, and up to where the decision says that the corpus is."""
    admission = Admission()
    found = rows.offset[ledger.admit(rows, admission)].tolist()
    assert not admission.gaps
    ledger.apply(admission.progress.values())
    return found, max((each.expected for each in admission.progress.values()), default=0)


@pytest.mark.parametrize("seed", range(20))
def test_rule_21_a_load_resumed_anywhere_leaves_no_hole_and_repeats_no_row(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Loaders stop anywhere, or go on beside a later one; each begins behind what was judged by then."""
    rng = random.Random(seed)
    monkeypatch.setattr("stream.kafka.loaded_records.PARTITIONS", 3)
    monkeypatch.setattr("stream.kafka.loaded_records.BLOCK_ROWS", 4)
    monkeypatch.setattr("stream.kafka.loaded_records.APPEND_BYTES", rng.choice([250, 10_000]))
    total, ledger, judged = 61, Ledger(), 0
    journal: list[Rows] = []
    found: list[int] = []
    loaders: list[list[LoadedRecord]] = []
    while judged < total:
        if not loaders or rng.random() < 0.1:
            loaders.append(made(placed(judged, total), judged))
        loader = rng.choice(loaders)
        some = rng.randrange(6)
        journal += [decoded(record) for record in loader[:some]]
        del loader[:some]
        if not loader or rng.random() < 0.2:
            loaders.remove(loader)
        for _ in range(rng.randrange(len(journal) + 1)):
            rows, end = judge(ledger, journal.pop(0))
            found += rows
            judged = max(judged, end)
            assert len(found) == judged
    assert found == list(range(total))


def test_blocks_take_turns_at_the_partitions_and_open_each_once() -> None:
    turns = [
        range_of(SOURCE, block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS) for block in range(PARTITIONS + 2)
    ]
    assert [each.partition for each in turns] == [*range(PARTITIONS), 0, 1]
    assert [each.opening for each in turns] == [True] * PARTITIONS + [False] * 2
    assert [(each.start, each.end) for each in turns[-2:]] == [
        (BLOCK_ROWS, (PARTITIONS + 1) * BLOCK_ROWS),
        (2 * BLOCK_ROWS, (PARTITIONS + 2) * BLOCK_ROWS),
    ]


def test_numbers_above_two_to_the_31_are_kept() -> None:
    first = 2**33 + 5 * BLOCK_ROWS
    (record,) = made(placed(first, first + BLOCK_ROWS), first)
    rows = decoded(record)
    assert (record.end, rows.offset[-1]) == (first + BLOCK_ROWS, first + BLOCK_ROWS - 1)
    before = range_of(SOURCE, first - PARTITIONS * BLOCK_ROWS, first - (PARTITIONS - 1) * BLOCK_ROWS)
    assert (rows.ranges[0].partition, rows.ranges[0].start) == (before.partition, before.end)


def test_a_record_names_what_it_was_loaded_from_and_older_readers_pass_over_it() -> None:
    (record,) = made(placed(0, 3), 0)
    assert decoded(record).corpus == SOURCE.corpus
    (source,) = decoded(record).ranges
    assert (source.cluster, source.topic, source.topic_id) == ("", "load", SOURCE.digest)
    fields = msgspec.msgpack.decode(record.value)
    del fields["corpus"]
    assert decode_journal(msgspec.msgpack.encode(fields), 0).ranges == [source]  # type: ignore[union-attr]


def test_rows_that_are_too_large_cost_themselves_or_stop_the_load() -> None:
    key = bytes(KEY_BYTES + 1)
    (record,) = made(placed(0, 1, key=key), 0)
    rows = decoded(record)
    assert rows.reason == {0: "key_too_large"}
    assert rows.strings.sizes.tolist() == [[-1], [-2], [-2]]
    vast = Row(Status.REJECTED, "u" * LARGEST, None, None, reason="test")
    with pytest.raises(RowsError, match=r"order=7.*takes 524,\d+ bytes"):
        made(placed(7, 8, row=vast), 7)


async def test_the_position_of_a_corpus_is_that_of_its_last_decision() -> None:
    def decision(number: int, *progress: tuple[str, int, int]) -> bytes:
        sources = [SourceProgress("", "load", *each, 0) for each in progress]
        return encode_decisions(
            Decisions(
                journal="ab" * 16, options="o", start=number, end=number + 1, last=b"", time=0,
                sources=sources, codes=b"", other=b"", distance=b"", similarity=b"", clusters=b"",
                superseded=[], skipped=[],
            )
        )  # fmt: skip

    values = [
        decision(0, (SOURCE.digest, 0, 512)),
        decision(1, (SOURCE.digest, 2, 1536), (SOURCE.digest, 1, 1024), ("another", 3, 9000)),
        *(decision(number, ("another", 3, 9000 + number)) for number in range(2, 200)),
    ]
    topic = TopicInMemory("decisions", values)
    assert await judged_rows(topic, SOURCE.digest) == 1536
    assert await judged_rows(topic, "unknown") == 0
