"""Segments are exported beside checkpoints: their files have what the state has, and all exporters agree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from stream.checkpoints import segments
from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.segments import SegmentExport
from stream.checkpoints.uploads import linked
from stream.errors import CheckpointError, StateError
from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.judge.segments.answer import Segment
from stream.judge.segments.dead_file import decode_dead
from stream.judge.segments.file import Origin, SegmentFile
from stream.judge.state.page_log import URL_DIGEST
from stream.messages.decision import Forgotten, NamedDigests
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.messages.verdict_options import VerdictOptions
from tests.checkpointed import flip
from tests.judged_crawls import crawl, entries_of, judge_at_once, open_state

SIZE = 32


@dataclass
class Topic:
    """What is announced, in memory."""

    records: dict[int, SegmentRecord] = field(default_factory=dict)
    log: list[tuple[str, int]] = field(default_factory=list)
    before: Callable[[SegmentRecord], None] = lambda _: None

    def read(self) -> dict[int, SegmentRecord]:
        return dict(self.records)

    def announce(self, record: SegmentRecord) -> None:
        self.before(record)
        self.log.append(("announced", record.first))
        self.records[record.first] = record

    def withdraw(self, record: SegmentRecord) -> None:
        self.log.append(("withdrawn", record.first))
        del self.records[record.first]


class Exporter:
    """A judge's state, and exports of its segments to the store `objects`."""

    def __init__(
        self, path: Path, name: str, topic: Topic, options: VerdictOptions, size: int = SIZE, **state: Any
    ) -> None:
        sizes = {"memory": 1 << 20, "generation": 64} | state
        self.state, self.genesis = open_state(path / name, options, **sizes)
        self.judge, self.topic, self.objects = Judge(self.state, self.genesis), topic, path / "objects"
        self.catalogue = Catalogue(str(self.objects))
        self.segments = SegmentExport(self.catalogue, self.genesis, size, topic)

    def export(self) -> None:
        self.state.flush()
        with linked(self.state.store, JUDGE) as moment:
            assert moment is not None
            count = self.segments.export(moment, lambda _: None, lambda: None)
            assert not moment.path.with_name("segment").exists()
        assert count == len(self.topic.records)
        assert self.segments.decided == self.state.meta.decided

    def check(self) -> int:
        """Compare what is announced with the state. Returns how many anchors are dead."""
        state, dead, ends = self.state, 0, list[int]()
        for first, record in sorted(self.topic.records.items()):
            segment = Segment(first, record.end)
            assert ends[-1:] in ([], [first]), "segments abut"
            ends.append(record.end)
            assert record.oldest == max(first, state.first.anchors) < record.end
            assert record.decided == state.meta.decided
            content = (self.objects / record.dead_object).read_bytes()
            assert len(content) == record.dead_size
            numbers = np.arange(record.oldest, record.end)
            found = decode_dead(content, "it", self.genesis.journal, segment)
            assert found.tolist() == numbers[~state.tables.is_alive(numbers)].tolist()
            dead += len(found)
            path = self.objects / record.object
            assert path.stat().st_size == record.size
            file = SegmentFile(path, Origin.of(self.genesis))
            assert file.segment == segment
            stored, anchors = file.anchors(numbers), state.anchors(numbers)
            for name in ("number", "fingerprint", "skipped", "sketch"):
                np.testing.assert_array_equal(getattr(stored, name), getattr(anchors, name))
        return dead


def crawled(options: VerdictOptions, pages: int = 500, seed: int = 9) -> list[Entry]:
    entries = entries_of(crawl(seed, pages, dense=False, skew=0.4), seed, sizes=(1, 3, 12))
    if options.lifetime:
        entries = [replace(entry, time=10**12 + 15_000 * at) for at, entry in enumerate(entries)]
    return entries


def judge_on(exporter: Exporter, entries: list[Entry], decided: int, *, at_once: bool = True) -> None:
    """Judge records, up to a position in the decisions."""
    for some in [entries] if at_once else [[each] for each in entries]:
        judge_at_once(exporter.judge, some, decided)
        exporter.state.maintain(wait=True)


@pytest.mark.parametrize(
    "options",
    [VerdictOptions(bucket_cap=2), VerdictOptions(lifetime=600, bucket_cap=2), VerdictOptions.paper()],
    ids=["default", "lifetime", "strict"],
)
def test_files_have_what_the_state_has_and_two_exporters_agree(
    tmp_path: Path, options: VerdictOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "DEAD_A_TURN", 3)
    entries, topic, other = crawled(options), Topic(), Topic()
    one = Exporter(tmp_path, "one", topic, options)
    two = Exporter(tmp_path, "two", other, options, memory=0, generation=16)
    files, dead = dict[int, str](), 0
    for start in range(0, len(entries), 40):
        for each in (one, two):
            judge_on(each, entries[start : start + 40], start + 40, at_once=each is one)
            each.export()
        dead += one.check()
        two.check()
        for first, record in topic.records.items():
            assert other.records[first] == structs.replace(
                record, exported_at=other.records[first].exported_at
            )
            assert files.setdefault(first, record.digest) == record.digest, "it stays the same"
    assert dead > 10
    assert len(files) > 3
    assert bool(options.lifetime) == (("withdrawn", 0) in topic.log)
    for each in (one, two):
        each.state.close()


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    """A judge that has judged some pages, with five segments that were never exported."""
    made = Exporter(tmp_path, "judge", Topic(), OPTIONS)
    judge_on(made, crawled(OPTIONS, 300), 7)
    yield made
    made.state.close()


OPTIONS = VerdictOptions(bucket_cap=2)


def test_forgotten_pages_are_not_exported(exporter: Exporter) -> None:
    state = exporter.state
    anchors = np.array([3, 5, 40])
    words = state.page_logs[0].pages(anchors).words[:, URL_DIGEST]
    digests = sorted({each.tobytes() for each in words.astype("<u8")})
    forgotten = Forgotten(
        requests=1,
        anchors=anchors.astype("<i8").tobytes(),
        duplicates=b"",
        urls=b"".join(digests),
        ids=b"",
        pages=[],
        named=NamedDigests(),
    )
    state.forget(forgotten, 8)
    state.maintain(wait=True)
    exporter.export()
    files = [record.digest for record in exporter.topic.records.values()]
    for number in anchors.tolist():
        record = exporter.topic.records[number // SIZE * SIZE]
        file = SegmentFile(exporter.objects / record.object, Origin.of(exporter.genesis))
        place = number - record.first
        assert not file.columns.fingerprint[place].any()
        assert not file.columns.sketch[place].any()
        assert file.columns.skipped[place] == (1 << 10) - 1, "it is in no bucket"
        dead = (exporter.objects / record.dead_object).read_bytes()
        assert number in decode_dead(dead, "it", record.journal, Segment(record.first, record.end))
    while state.blank_forgotten():
        pass
    state.note_erased(state.forgotten.compact())
    exporter.topic.records.clear()
    exporter.export()
    assert [record.digest for record in exporter.topic.records.values()] == files, "erased or not yet"


def test_what_is_announced_is_not_exported_again(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter.export()
    firsts = list(range(0, exporter.state.tables.count // SIZE * SIZE, SIZE))
    assert exporter.topic.log == [("announced", first) for first in firsts]
    monkeypatch.setattr(Catalogue, "put_file", None)
    exporter.export()
    assert len(exporter.topic.log) == len(firsts), "nothing is new"
    exporter.state.note_ledger(0, 9)
    exporter.export()
    assert exporter.topic.log[len(firsts) :] == exporter.topic.log[: len(firsts)], "as of a later position"
    exporter.check()
    monkeypatch.undo()
    exporter.state.hold_from(SIZE + 3)
    exporter.state.note_ledger(0, 10)
    exporter.export()
    exporter.check()  # also of anchors without tables


def test_another_size_goes_on_where_the_last_segment_ends(exporter: Exporter) -> None:
    exporter.export()
    end = max(each.end for each in exporter.topic.records.values())
    exporter.segments = SegmentExport(exporter.catalogue, exporter.genesis, 4, exporter.topic)
    exporter.export()
    added = sorted(first for first in exporter.topic.records if first >= end)
    assert added == list(range(end, exporter.state.tables.count - 3, 4))
    assert len(added) > 1
    exporter.check()


def test_a_judge_that_was_slower_takes_what_the_other_one_announced(exporter: Exporter) -> None:
    """Holders may have loaded it already."""
    exporter.export()
    theirs = {first: structs.replace(each, digest="9" * 64) for first, each in exporter.topic.records.items()}
    exporter.topic.records.clear()
    exporter.topic.log.clear()
    read, turns = exporter.topic.read, 0

    def read_later() -> dict[int, SegmentRecord]:
        nonlocal turns
        turns += 1
        if turns == 2:
            exporter.topic.records |= theirs
        return read()

    exporter.topic.read = read_later  # type: ignore[method-assign]
    exporter.export()
    assert exporter.topic.records == theirs
    assert exporter.topic.log == []


def test_a_file_that_comes_back_different_is_not_announced(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Catalogue.put_file

    def spoil(self: Catalogue, name: str, *arguments: Any) -> None:
        put(self, name, *arguments)
        flip(exporter.objects / name)

    monkeypatch.setattr(Catalogue, "put_file", spoil)
    with pytest.raises(
        CheckpointError, match=r"^checkpoints: .*/segments/[0-9a-f]{64}: is not what was stored"
    ):
        exporter.export()
    assert not exporter.topic.records
    monkeypatch.undo()
    exporter.export()
    exporter.check()


def test_what_nothing_names_is_removed_after_a_day(exporter: Exporter) -> None:
    exporter.export()
    journal = exporter.genesis.journal
    before = {each.digest for each in exporter.catalogue.segments(journal)}
    old = time.time() - SPARED_SECONDS - 60
    for each in exporter.catalogue.segments(journal):
        os.utime(exporter.objects / each.name, (old, old))
    replaced, kept = exporter.topic.records[SIZE], exporter.topic.records[0]
    alive = np.flatnonzero(exporter.state.tables.is_alive(np.arange(SIZE, 2 * SIZE))) + SIZE
    writes = exporter.state.store.batch()
    exporter.state.tables.kill(writes, alive[:1])
    exporter.state._write_meta(writes, decided=8)
    exporter.export()
    after = {each.digest for each in exporter.catalogue.segments(journal)}
    assert before - after == {replaced.dead}
    assert after - before == {exporter.topic.records[SIZE].dead}
    assert kept.dead in after
    exporter.check()


def test_a_state_of_another_journal_is_refused(exporter: Exporter) -> None:
    genesis: Genesis = structs.replace(exporter.genesis, journal="0c" * 16)
    exporter.segments = SegmentExport(exporter.catalogue, genesis, SIZE, exporter.topic)
    with pytest.raises(StateError, match=r"is of .*, not of"):
        exporter.export()
    assert not exporter.topic.records
