"""What a judge and its probers spend on a row, and what answers take, with segments or without.

    python -m tests.bench.bench_probers [anchors] [measured rows]

All is in one process, and no broker is there: the tables of a state are searched as a whole (0 segments), and
then in segments of equal size. Answers go through their records. Rows are made, and three in ten are near a
stored one; the judge has no tables of its own, so that all candidates come from answers. Beside answers there
is the journal, all of which each prober fetches.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import cramjam
import numpy as np

from stream.checkpoints.digests import digest_of_file
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.decision.candidates_compared import FingerprintedPages, TablesSearch
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Run, Segment
from stream.judge.segments.answer_records import DIGEST_BYTES, SentAnswer, decode_answer, encode_answer
from stream.judge.segments.deaths import Deaths
from stream.judge.segments.file import AnchorColumns, Origin, SegmentFile, write_segment_file
from stream.judge.segments.held_segment import HeldSegment, TablesRoom
from stream.judge.segments.merged_search import Answers, MergedSearch
from stream.judge.state.state import State
from stream.messages.journal import Genesis
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober.schedule import RUN_ROWS
from stream.roles.prober.undecided_pages import RecordPages, RunPages, UndecidedPages
from stream.tables.search.nearest import ALL
from stream.tables.search.probing import keys_by
from stream.tables.store.anchors import CHUNK
from stream.tables.store.rocks import Store
from stream.tables.tables import IndexKind, Tables
from tests.bench.journal import ROWS
from tests.bench.made_rows import MadeRows
from tests.first_numbers import begin_at
from tests.genesis import genesis_of

SEGMENTS: Final = (1, 2, 4)
MEMORY: Final = 512 << 20
LARGE: Final = 1 << 24
"""Anchors of a segment in a large deployment."""
SHARE: Final = 8e8
"""Anchors of one of ten machines, of 8e9."""
POSITION: Final = 1
"""The position in the decisions of all answers."""


def run(anchors: int = 1_000_000, rows: int = 65_536) -> dict[str, Any]:
    """Return figures for each number of segments."""
    genesis = genesis_of(Scheme(), VerdictOptions())
    made = MadeRows(genesis.scheme)
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as folder:
        path = Path(folder)
        state = State(path / "state", genesis, "c", memory=MEMORY, generation=1 << 18, cache=64 << 20)
        try:
            first = _fill(Judge(state, genesis), made, anchors)
            runs = list(_runs(Rule(genesis.options, genesis.scheme), made, first, rows))
            whole = _whole(state, genesis, runs)
            found = {
                f"{count}": _split(path / f"{count}", state, genesis, runs, count, MEMORY)
                for count in SEGMENTS
            }
            found["1 on disk"] = _split(path / "disk", state, genesis, runs, 1, 0)
            return {
                "anchors": state.tables.count,
                "rows": rows,
                "journal_bytes_a_row": round(len(made.record(first).encode()) / ROWS, 1),
                "measured, by number of segments": {"0": {"judge_us_a_row": whole}, **found},
                "computed, not measured": _computed(found["1"], found["1 on disk"]),
            }
        finally:
            state.close()


def _fill(judge: Judge, made: MadeRows, anchors: int) -> int:
    """Judge records until there are so many anchors. Returns the number of the next record."""
    number = 0
    while judge.state.tables.count < anchors:
        some = range(number, number + 32)
        entries = [Entry(each + 1, 10**12, b"", made.record(each)) for each in some]
        judge.apply(entries, judge.decide(entries).record())
        number += len(some)
    judge.state.tables.maintain(wait=True)
    return number


_Asked = tuple[Run, RunPages]


def _runs(rule: Rule, made: MadeRows, first: int, rows: int) -> Iterator[_Asked]:
    """The pages of records, in the runs that a prober answers."""
    ahead, each = UndecidedPages(rule), RUN_ROWS // ROWS
    for start in range(first, first + rows // ROWS, each):
        run = Run(start + 1, start + each + 1)
        for number in range(start, start + each):
            ahead.add(RecordPages.of(Entry(number + 1, 10**12, b"", made.record(number))))
        yield run, ahead.of(run)


def _whole(state: State, genesis: Genesis, runs: list[_Asked]) -> float:
    """Processor time of a search of the whole tables, in microseconds a row."""
    rule = Rule(genesis.options, genesis.scheme)
    search, took, rows = TablesSearch(state.tables, state, rule), 0.0, 0
    for warm in (True, False):
        for _, (ids, pages, _) in runs[: 1 if warm else None]:
            began = time.process_time()
            for _ in search.search(ids, pages, _wanted(rule, pages)):
                pass
            if not warm:
                took, rows = took + time.process_time() - began, rows + len(ids)
    return round(1e6 * took / rows, 2)


def _wanted(rule: Rule, pages: FingerprintedPages) -> Any:
    return lambda: ALL._replace(most=rule.selected, within=rule.within(pages.status))


def _computed(in_memory: dict[str, float], on_disk: dict[str, float]) -> dict[str, float]:
    """What a large segment, and one of ten machines with 8e9 anchors, need by the figures of this run."""
    return {
        "loading_seconds_of_a_segment_of_16_million": round(
            in_memory["loading_seconds_a_million_anchors"] * LARGE / 1e6
        ),
        "ram_gb_of_a_tenth_of_8e9_anchors": round(in_memory["ram_bytes_an_anchor"] * SHARE / 1e9),
        "ram_gb_of_these_with_tables_on_disk": round(on_disk["ram_bytes_an_anchor"] * SHARE / 1e9, 1),
    }


def _split(
    path: Path, state: State, genesis: Genesis, runs: list[_Asked], count: int, memory: int
) -> dict[str, float]:
    """Figures for a state whose anchors are divided into so many segments, which share so much memory."""
    path.mkdir()
    rule = Rule(genesis.options, genesis.scheme)
    end = state.tables.count // CHUNK * CHUNK  # where tables may begin
    cuts = [end * each // count for each in range(count + 1)]
    files = [_file(path, state, genesis, Segment(*each)) for each in pairwise(cuts)]
    began, before = time.perf_counter(), _own_memory()
    held = [_held(path, file, rule, memory // count) for file in files]
    loading, own = time.perf_counter() - began, _own_memory() - before
    design, sizes = rule.design(), (0, 0)
    store = Store(path / "tail", design.tables + rule.triples, 1 << 20)
    begin_at(store, end)
    kind = IndexKind(rule.triples)
    tail = Tables(store, design, rule.search_options(), memory=1 << 20, generation=1 << 14, kind=kind)
    spent, rows, deaths = {"prober": 0.0, "decode": 0.0, "merge": 0.0}, 0, Deaths(rule, POSITION)
    for number, (run, (ids, pages, _)) in enumerate([runs[0], *runs]):
        began, values = time.process_time(), []
        keys = keys_by(rule.table_words(pages.fingerprint, pages.sketch), design)
        for each in held:
            each.decided = POSITION
            answer = each.answer(run, ids, pages, rule.selected, keys)
            values.append(encode_answer(_sent(answer, genesis)))
        after = time.process_time()
        answers = Answers([each.segment for each in held])
        for value in values:
            answers.add(decode_answer(value, "candidates").answer)
        decoded = time.process_time()
        merged = MergedSearch(TablesSearch(tail, state, rule), state, rule, answers, deaths)
        for _ in merged.search(ids, pages, _wanted(rule, pages)):
            pass
        if number:  # the first one is warm then
            rows += len(ids)
            spent["prober"] += after - began
            spent["decode"] += decoded - after
            spent["merge"] += time.process_time() - decoded
            compressed = sum(len(bytes(cramjam.zstd.compress(value))) for value in values)
            sizes = sizes[0] + sum(map(len, values)), sizes[1] + compressed
    for each in held:
        each.close()
    tail.close()
    store.close()
    us = {name: round(1e6 * took / rows, 2) for name, took in spent.items()}
    return {
        "prober_us_a_row": round(us["prober"] / count, 2),
        "probers_us_a_row_in_all": us["prober"],
        "judge_us_a_row": round(us["decode"] + us["merge"], 2),
        "of_which_decoding": us["decode"],
        "bytes_a_row": round(sizes[0] / rows, 1),
        "compressed_bytes_a_row": round(sizes[1] / rows, 1),
        "loading_seconds_a_million_anchors": round(1e6 * loading / end, 1),
        "ram_bytes_an_anchor": round(own / end),
    }


def _file(path: Path, state: State, genesis: Genesis, segment: Segment) -> SegmentFile:
    """Write the file of a segment of a state."""
    origin, file = Origin.of(genesis), path / f"{segment.first}"

    def columns() -> Iterator[AnchorColumns]:
        for first in range(segment.first, segment.end, 1 << 16):
            anchors = state.anchors(np.arange(first, min(first + (1 << 16), segment.end)))
            yield AnchorColumns(anchors.fingerprint, anchors.skipped, anchors.sketch)

    write_segment_file(file, origin, segment, columns())
    return SegmentFile(file, origin)


def _held(path: Path, file: SegmentFile, rule: Rule, memory: int) -> HeldSegment:
    """Build the tables of a segment, once its digest is verified."""
    digest_of_file(path / f"{file.segment.first}")
    room = TablesRoom(memory, 1 << 24, 1 << 18)
    tables = path / f"{file.segment.first}.tables"
    return HeldSegment.build(tables, file, rule, room, file.segment.first)


def _own_memory() -> int:
    """Bytes of RAM of this process that are not a file's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def _sent(answer: Answer, genesis: Genesis) -> SentAnswer:
    return SentAnswer(answer, genesis.journal, genesis.scheme_id, "", "host-12345678", bytes(DIGEST_BYTES))


if __name__ == "__main__":
    given = [int(float(each)) for each in sys.argv[1:]]
    sys.stdout.write(json.dumps(run(*given)) + "\n")
