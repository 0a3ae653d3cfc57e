"""Compiles the judge's loops before pages wait, by judging invented pages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from stream.fingerprint.minima import MINIMA_WORDS
from stream.fingerprint.row import Row, Status
from stream.judge.batch import Entry
from stream.judge.decision.nearest import ALL, nearest_alive
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.judge.state.state import State
from stream.messages.journal import Genesis, Rows, SourceRange
from stream.scratch import ScratchDirectory
from stream.tables.hot.tier import Generation
from stream.tables.reserves.keys import PAIRS
from stream.tables.runs.filters import empty_filter, folded
from stream.tables.search.pair_collector import in_order

_BYTES: Final = 1 << 20


def rehearse(genesis: Genesis) -> None:
    """Judge four pairs of invented pages in a temporary state, and thereby compile all loops.

    The pairs find the first page in the same batch, in RAM and in RocksDB. Then an anchor in a reserve is
    searched, and removed. Compiling takes 10 s unless an earlier process has cached the result.
    """
    rule = Rule(genesis.options, genesis.scheme)
    with ScratchDirectory("rehearsal") as directory:
        state = State(Path(directory), genesis, "rehearsal", memory=0, generation=1, cache=_BYTES)
        try:
            _judge(state, Judge(state, genesis), range(4))
            if rule.reserves:
                _search_reserves(state)
        finally:
            state.close()
    folded(empty_filter(2))
    Generation(rule.design(), 0, 1).enlarge()
    in_order(np.zeros(1, np.uint64), 0)
    none, near = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    nearest_alive(none, none, near, near, near != 0, ALL)


def _judge(state: State, judge: Judge, numbers: range) -> None:
    scheme = judge.rule.scheme
    for number in numbers:
        if number > 1:
            state.maintain(wait=True)
        # A sketch of zeros is empty, and two pages with empty sketches match.
        offsets = range(2 * number, 2 * number + 2)
        rows = [
            Row(
                Status.READY,
                f"{offset}",
                None,
                (offset + 1).to_bytes(16, "big"),
                1,
                sketch=bytes(scheme.sketch_bytes),
            )
            for offset in offsets
        ]
        source = SourceRange(
            "rehearsal", "pages", "0" * 32, 0, offsets.start, offsets.stop, 2, opening=number == 0
        )
        columns = Rows.of(scheme, [source], rows, offsets, [None, None])
        entry = Entry(number + 1, 0, b"", columns)
        turn = judge.decide_turn(entry)
        if turn is not None:
            judge.apply_apart(turn, 0)
        decided = judge.decide([entry])
        decided.json()
        judge.apply([entry], decided.record())


def _search_reserves(state: State) -> None:
    """Search for an anchor that stands in the first reserve in place of the first pair."""
    word, words = np.zeros(1, np.uint64), np.zeros((1, MINIMA_WORDS), np.uint64)
    writes = state.store.batch()
    state.tables.insert(writes, word, {0: 1 | 1 << PAIRS}, words)
    state.store.write(writes)
    for _ in range(2):  # in RAM, and in RocksDB
        state.tables.search(word, words)
        state.maintain(wait=True)
    writes = state.store.batch()
    state.tables.insert(writes, word, {0: 1 | 1 << PAIRS}, words)
    state.tables.kill(writes, np.array([state.tables.count - 1]))
    state.store.write(writes)
