"""Tables of a segment in a prober's directory, with damaged files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from stream.errors import DamagedTablesError
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Run, Segment
from stream.judge.segments.deaths_decided import DecidedDeaths
from stream.judge.segments.file import AnchorColumns, Origin, SegmentFile, write_segment_file
from stream.judge.segments.held_segment import HeldSegment, TablesRoom
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober.undecided_pages import RecordPages
from tests.judged_crawls import crawl, entries_of, judge_at_once, open_state

ROOM = TablesRoom(0, 1 << 20, 48)
SEGMENT = Segment(64, 160)
DATA = 100
"""Bytes at the beginning of a data file that are data, not its index."""


def test_damage_that_is_found_late_is_mended_by_the_next_start(tmp_path: Path) -> None:
    state, genesis = open_state(tmp_path / "state", VerdictOptions(), memory=1 << 20, generation=64)
    entries = entries_of(crawl(9, 400, dense=False, skew=0.4), 9, sizes=(1, 3, 12))
    judge_at_once(Judge(state, genesis), entries, 1)
    numbers = np.arange(*SEGMENT)
    anchors, dead = state.anchors(numbers), numbers[~state.tables.is_alive(numbers)]
    rule, origin = Rule(genesis.options, genesis.scheme), Origin.of(genesis)
    columns = AnchorColumns(anchors.fingerprint, anchors.skipped, anchors.sketch)
    write_segment_file(tmp_path / "file", origin, SEGMENT, [columns])
    file, path = SegmentFile(tmp_path / "file", origin), tmp_path / "tables"
    records = [each for each in map(RecordPages.of, entries) if len(each.ids)]

    def answers(held: HeldSegment) -> list[Answer]:
        held.kill(DecidedDeaths(dead, 0), 1)
        return [held.answer(Run(each.offset, each.offset + 1), each.ids, each.pages, 9) for each in records]

    held = HeldSegment.build(path, file, rule, ROOM, SEGMENT.first)
    want = answers(held)
    held.close()
    assert sum(len(each.pairs.page) for each in want) > len(dead) > 0
    whole, opened = path.rename(tmp_path / "whole"), None
    for each in sorted(whole.glob("*.sst")):  # some are read when tables are opened, and so not opened
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        content = bytearray(each.read_bytes())
        content[1:DATA:7] = bytes(byte ^ 1 for byte in content[1:DATA:7])
        (path / each.name).write_bytes(content)
        if (opened := HeldSegment.open(path, file, rule, ROOM)) is not None:
            break
    assert opened is not None
    message = r"anchors \[64, 160\): built anew at the next start: .*damaged: .*sst"
    with pytest.raises(DamagedTablesError, match=message):
        answers(opened)
    opened.close()
    assert HeldSegment.open(path, file, rule, ROOM) is None
    held = HeldSegment.build(path, file, rule, ROOM, SEGMENT.first)
    for one, other in zip(answers(held), want, strict=True):
        for mine, its in zip(one.pairs, other.pairs, strict=True):
            np.testing.assert_array_equal(mine, its)
    held.close()
    opened = HeldSegment.open(path, file, rule, ROOM)
    assert opened is not None
    opened.close()
    state.close()
