"""A judge's first steps, taken before there is anything to judge."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from stream.fingerprint.row import Row, Status
from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.judge.state import State
from stream.messages.journal import Genesis, Rows, SourceRange
from stream.tables.chains import sweep

_BYTES: Final = 1 << 20


def rehearse(genesis: Genesis) -> None:
    """Judge three invented pages in a state of their own: the first is found in RAM, then in RocksDB.

    What is compiled at its first use has then been compiled before real pages wait: that takes 10 s where no
    earlier process has kept the result.
    """
    with tempfile.TemporaryDirectory(prefix="neardup-rehearsal-") as directory:
        state = State(Path(directory), genesis, "rehearsal", memory=0, generation=1, cache=_BYTES)
        try:
            judge = Judge(state, genesis)
            for number, name in enumerate("abc"):
                # A sketch of zeros says that there is nothing in it, and two such pages are alike.
                row = Row(Status.READY, name, name, None, 1, sketch=bytes(genesis.scheme.sketch_bytes))
                source = SourceRange(
                    "rehearsal", "pages", "0" * 32, 0, number, number + 1, 1, opening=number == 0
                )
                entry = Entry(number + 1, 0, b"", Rows.of(genesis.scheme, [source], [row], [number], [None]))
                decided = judge.decide([entry])
                decided.json()
                judge.apply([entry], decided.record())
                if number:
                    state.tables.maintain(wait=True)
        finally:
            state.close()
    sweep(np.zeros(8, np.uint32), np.zeros(1, np.uint8), 0, 0, 8)
