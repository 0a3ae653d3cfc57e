"""The elector's core: rows a second on one core, elections in a large cluster, bytes of state and records.

No Kafka here: journal records and decisions are decoded and applied as the role does, and everything that is
due is told after each million rows. A judge has decided before; three in ten rows are near-duplicates.
A second pass has the same URLs again, a day later.
"""

from __future__ import annotations

import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from stream.elector.elector import Elector
from stream.elector.state import State
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Decided, Entry
from stream.messages.best import encode_best
from stream.messages.decision import Decisions, decode_decisions, encode_decisions
from stream.messages.journal import Genesis, Rows, decode_journal
from stream.messages.verdict import Verdict
from tests.bench.journal import ROWS
from tests.bench.made_rows import MadeRows, hashes
from tests.genesis import genesis_of

RECORDS = 16
"""Journal records a decision."""
DECISIONS = 2
"""Decisions a batch."""
CACHE = 256 << 20
MILLION = 1_000_000
SECOND_PASS = 86_400_000
CHANGED = 10
"""One page of so many has another length when it is fetched again."""
Encoded = tuple[list[tuple[int, bytes]], bytes]
"""Journal records with their offsets, and the decisions about them."""


class MadeVerdicts:
    """A journal of made rows with verdicts: of ten rows seven are unique, and three duplicates of one of the
    last rows that are. Rows are numbered from 0 on; those from `rows` on are recrawls of the first ones."""

    def __init__(self, rows: int, genesis: Genesis) -> None:
        self.records = rows // ROWS
        self._made, self.genesis = MadeRows(genesis.scheme), genesis

    def encoded(self, first: int) -> Encoded:
        """RECORDS records from this one on."""
        numbers = range(first, first + RECORDS)
        values = [(number + 1, self._record(number).encode()) for number in numbers]
        rows = np.arange(first * ROWS, (first + RECORDS) * ROWS) % (self.records * ROWS)
        unique = (rows % 10 < 7) | (rows < 10)
        base = (
            rows
            - 1
            - (hashes(rows, 1, 7)[:, 0] % np.uint64(min(1 << 20, self.records * ROWS))).astype(np.int64)
        )
        base = np.maximum(base - base % 10, 0)
        cluster = np.where(unique, rows, base)
        again = first >= self.records
        verdict = np.where(unique, Verdict.UNIQUE, Verdict.DUPLICATE)
        codes = np.full(len(rows), Verdict.RECRAWL) if again else verdict
        named = _pages(cluster[codes != Verdict.UNIQUE])
        last = numbers[-1] + 1
        return values, encode_decisions(_decisions(self.genesis, first + 1, last, codes, named))

    def _record(self, number: int) -> Rows:
        rows = self._made.record(number % self.records)
        numbers = np.arange(ROWS) + number * ROWS
        urls = numbers % (self.records * ROWS)
        changed = hashes(numbers, 1, 4)[:, 0] % np.uint64(CHANGED) == 0
        rows.length[:] = hashes(np.where(changed, numbers, urls), 1, 3)[:, 0] % np.uint64(9000)
        rows.fetched_at[:] += number // self.records * SECOND_PASS
        return rows


def _pages(rows: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return (rows // ROWS + 1) << 16 | rows % ROWS


def _decisions(genesis: Genesis, start: int, last: int, codes: Any, named: Any) -> Decisions:
    m = len(named)
    return Decisions(
        journal=genesis.journal, options=genesis.options.id, start=start, end=last + 1,
        last=last.to_bytes(16, "big"), time=last, sources=[], ledger=None,
        codes=codes.astype(np.uint8).tobytes(),
        other=named.astype("<i8").tobytes(), numbers=bytes(8 * m), distance=bytes(m), similarity=bytes(2 * m),
        clusters=b"", anchors=b"", nearest=b"", nearest_numbers=b"", nearest_similarity=b"",
        superseded=[], skipped=[],
    )  # fmt: skip


def decode(encoded: Encoded) -> Decided:
    """Decode journal records and decisions, as a follower does."""
    entries = []
    for offset, value in encoded[0]:
        rows = decode_journal(value, offset)
        assert isinstance(rows, Rows)
        entries.append(Entry(offset, offset, offset.to_bytes(16, "big"), rows))
    return Decided(entries, decode_decisions(encoded[1], 0), entries[-1].offset)


def run(rows: int = MILLION, elect: str = "longest", members: int = MILLION) -> dict[str, Any]:
    """Apply rows twice, and elect in a cluster of so many members."""
    return _apply(rows, elect) | {"milliseconds_an_election_in_a_large_cluster": _elections(members)}


def _apply(rows: int, elect: str) -> dict[str, Any]:
    genesis = genesis_of(Scheme())
    verdicts = MadeVerdicts(rows, genesis)
    found: dict[str, Any] = {"policy": elect, "urls": verdicts.records * ROWS}
    with tempfile.TemporaryDirectory() as directory:
        state = State.open(Path(directory) / "elector", genesis, "c", elect, cache=CACHE)
        elector = Elector(state, genesis)
        for name, first in (("first", 0), ("again", verdicts.records)):
            found[name] = _measure(elector, verdicts, first)
            state.store.flush()
            found[name]["state_bytes_a_url"] = round(state.store.disk_bytes() / state.meta.urls, 1)
        state.close()
    return found


def _measure(elector: Elector, verdicts: MadeVerdicts, first: int) -> dict[str, Any]:
    taken = {"decode": 0.0, "apply": 0.0, "tell": 0.0}
    rows = told = size = since = 0
    processor = 0.0
    for start in range(first, first + verdicts.records, RECORDS * DECISIONS):
        made = [verdicts.encoded(start + i * RECORDS) for i in range(DECISIONS)]
        begun, used = time.perf_counter(), time.process_time()
        batch = [decode(each) for each in made]
        decoded = time.perf_counter()
        rows += elector.apply(batch)
        applied = time.perf_counter()
        if rows - since >= MILLION or rows == verdicts.records * ROWS:
            since = rows
            while due := elector.due(8192):
                size += sum(len(encode_best(each.record)) for each in due)
                told += len(due)
                elector.tell(due, {})
            elector.state.store.flush()
        taken["tell"] += time.perf_counter() - applied
        taken["apply"] += applied - decoded
        taken["decode"] += decoded - begun
        processor += time.process_time() - used
    return {
        "rows_a_second": round(rows / sum(taken.values())),
        "rows_a_processor_second": round(rows / processor),
        "microseconds_a_row": {name: round(1e6 * each / rows, 2) for name, each in taken.items()},
        "records": told,
        "record_bytes_a_page": round(size / rows, 1),
    }


def _elections(members: int, rounds: int = 200) -> dict[str, float]:
    """Milliseconds of elections in a cluster of so many members, of which the best one leaves each time."""
    genesis = genesis_of(Scheme())
    made, taken = MadeVerdicts(-(-members // ROWS) * ROWS, genesis), []
    with tempfile.TemporaryDirectory() as directory:
        state = State.open(Path(directory) / "elector", genesis, "c", "longest", cache=CACHE)
        elector = Elector(state, genesis)
        for start in range(0, made.records, RECORDS):
            elector.apply([_one_cluster(made, start)])
        state.store.flush()
        kept = state.kept(_FIRST)
        assert kept is not None
        assert kept.members == made.records * ROWS
        for number in range(rounds):
            leaving = _leave(state, genesis, made.records + RECORDS + number)
            begun = time.perf_counter()
            elector.apply([leaving])
            taken.append(1e3 * (time.perf_counter() - begun))
        state.close()
    return {"median": round(sorted(taken)[rounds // 2], 2), "longest": round(max(taken), 2)}


_FIRST = 1 << 16
"""The first page."""


def _one_cluster(made: MadeVerdicts, start: int) -> Decided:
    """Records of which all pages but the first are its duplicates."""
    decided = decode(made.encoded(start))
    count = len(decided.decisions.codes)
    codes = np.full(count, Verdict.DUPLICATE)
    codes[0] = Verdict.UNIQUE if start == 0 else Verdict.DUPLICATE
    named = np.full(count - (start == 0), _FIRST)
    return decided._replace(
        decisions=_decisions(made.genesis, start + 1, decided.entries[-1].offset, codes, named)
    )


def _leave(state: State, genesis: Genesis, offset: int) -> Decided:
    """A page of the URL that is kept, too short to compare; other rows of its record are not admitted."""
    (_, digest), *_ = islice(state.members(_FIRST), 1)
    rows = MadeRows(genesis.scheme).record(0)
    rows.url_digest[0] = np.frombuffer(digest, np.uint8)
    codes = np.zeros(ROWS)
    codes[0] = Verdict.INSUFFICIENT
    decisions = _decisions(genesis, offset, offset, codes, np.zeros(0))
    return Decided([Entry(offset, offset, offset.to_bytes(16, "big"), rows)], decisions, offset)
