"""Tables of a segment in a prober's directory, with damaged files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from stream.errors import DamagedTablesError, DiskError
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Run, Segment
from stream.judge.segments.deaths_decided import DecidedDeaths
from stream.judge.segments.file import AnchorColumns, Origin, SegmentFile, write_segment_file
from stream.judge.segments.held_segment import HeldSegment, TablesRoom
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober.undecided_pages import RecordPages
from stream.tables import tables
from stream.tables.store.rocks import Store
from tests.judged_crawls import crawl, entries_of, judge_at_once, open_state

ROOM = TablesRoom(0, 1 << 20, 48)
SEGMENT = Segment(64, 160)
DATA = 100
"""Bytes at the beginning of a data file that are data, not its index."""


class Given:
    """The file of a segment, which anchors of it are dead, and records to answer about."""

    def __init__(self, directory: Path) -> None:
        state, genesis = open_state(directory / "state", VerdictOptions(), memory=1 << 20, generation=64)
        entries = entries_of(crawl(9, 400, dense=False, skew=0.4), 9, sizes=(1, 3, 12))
        judge_at_once(Judge(state, genesis), entries, 1)
        numbers = np.arange(*SEGMENT)
        anchors, self.dead = state.anchors(numbers), numbers[~state.tables.is_alive(numbers)]
        self._rule, origin = Rule(genesis.options, genesis.scheme), Origin.of(genesis)
        columns = AnchorColumns(anchors.fingerprint, anchors.skipped, anchors.sketch)
        write_segment_file(directory / "file", origin, SEGMENT, [columns])
        self._file = SegmentFile(directory / "file", origin)
        self._records = [each for each in map(RecordPages.of, entries) if len(each.ids)]
        state.close()

    def build(self, path: Path) -> HeldSegment:
        return HeldSegment.build(path, self._file, self._rule, ROOM, SEGMENT.first)

    def open(self, path: Path) -> HeldSegment | None:
        return HeldSegment.open(path, self._file, self._rule, ROOM)

    def answers(self, held: HeldSegment, oldest: int = 0) -> list[Answer]:
        """The answers about all records, once the dead are dead, and those before `oldest` gone."""
        held.kill(DecidedDeaths(self.dead, oldest), 9)
        return [
            held.answer(Run(each.offset, each.offset + 1), each.ids, each.pages, 9) for each in self._records
        ]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return Given(tmp_path)


def assert_equal(answers: list[Answer], others: list[Answer]) -> None:
    for one, other in zip(answers, others, strict=True):
        for mine, its in zip((*one.pairs, *one.counts), (*other.pairs, *other.counts), strict=True):
            np.testing.assert_array_equal(mine, its)


def test_damage_that_is_found_late_is_mended_by_the_next_start(given: Given, tmp_path: Path) -> None:
    path = tmp_path / "tables"
    held = given.build(path)
    want = given.answers(held)
    held.close()
    assert sum(len(each.pairs.page) for each in want) > len(given.dead) > 0
    whole, opened = path.rename(tmp_path / "whole"), None
    for each in sorted(whole.glob("*.sst")):  # some are read when tables are opened, and so not opened
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        content = bytearray(each.read_bytes())
        content[1:DATA:7] = bytes(byte ^ 1 for byte in content[1:DATA:7])
        (path / each.name).write_bytes(content)
        if (opened := given.open(path)) is not None:
            break
    assert opened is not None
    message = r"anchors \[64, 160\): built anew at the next start: .*damaged: .*sst"
    with pytest.raises(DamagedTablesError, match=message):
        given.answers(opened)
    opened.close()
    assert given.open(path) is None
    held = given.build(path)
    assert_equal(given.answers(held), want)
    held.close()
    opened = given.open(path)
    assert opened is not None
    opened.close()


@pytest.mark.parametrize(
    ("fails", "oldest"),
    [
        pytest.param((Store, "write"), 0, id="write of the dead"),
        pytest.param((Store, "write"), 100, id="write of the dead and the expired"),
        pytest.param((tables, "first_entry_from"), 100, id="read for the expired"),
    ],
)
def test_deaths_that_could_not_be_written_are_applied_by_the_next_start(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: tuple[object, str], oldest: int
) -> None:
    alive = np.setdiff1d(np.arange(100, SEGMENT.end), given.dead)
    held, later = given.build(tmp_path / "whole"), DecidedDeaths(alive[-1:], 0)
    held.kill(later, 1)
    want = given.answers(held, oldest)
    held.close()

    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise DiskError("state directory: Input/output error")

    held, deaths = given.build(tmp_path / "tables"), DecidedDeaths(given.dead, oldest)
    monkeypatch.setattr(*fails, fail)
    with pytest.raises(DiskError):
        held.kill(deaths, 1)
    assert held.decided == 0
    held.kill(later, 2)
    held.close()
    opened = given.open(tmp_path / "tables")
    assert opened is not None
    assert opened.decided == 0
    assert_equal(given.answers(opened, oldest), want)
    opened.close()
