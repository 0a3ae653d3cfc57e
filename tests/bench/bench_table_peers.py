"""The tables beside what others would pick, on one stream: look-ups alone, then look-up and insert.

Fingerprints: every peer finds all within 3 bits. Sets of shingles: MinHash peers have as many bands as find
what ours find. Rounds are interleaved: each turn takes the same batches. All keep their index in memory and
lose it in a crash, but for ours, which writes RocksDB, flushes and freezes as a judge does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.scheme import Scheme
from stream.judge.decision.decide import THREADS
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from stream.tables.design import Design
from stream.tables.search.probing import SearchOptions
from stream.tables.store.rocks import Store
from stream.tables.tables import Tables
from tests.bench.bench_tables import BATCH, INSERTED, SHARES, flip, preloaded
from tests.bench.quality.environments import PeerProcess, ask
from tests.bench.table_peers import K

ROUNDS = 5
TURNS = 4
"""Batches a round and kind."""
FLUSHED = 100_000
SCRIPT = Path(__file__).with_name("table_peers.py")
FINGERPRINT_PEERS = ("faiss MultiHash",)
SET_PEERS = ("datasketch", "rensa")

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


class Ours:
    """Our tables behind a peer's interface: rows are keys of the design and fingerprints."""

    def __init__(
        self, folder: Path, distance: int, stored: int, design: Design, rows: tuple[U64, U64]
    ) -> None:
        self._store = Store(folder, 256 << 20)
        self._tables = Tables(
            self._store, design, SearchOptions(distance, cap=None), memory=4 << 30,
            generation=1_000_000,
        )  # fmt: skip
        self._words, self._rows = rows
        self._stored, self._unflushed = stored, 0
        self._pool = ThreadPoolExecutor(THREADS)
        began = time.perf_counter()
        for first in range(0, stored, INSERTED):
            self._add(slice(first, min(first + INSERTED, stored)))
        self.seconds_to_add = time.perf_counter() - began
        self._tables.maintain(wait=True)

    def _add(self, rows: slice | I64) -> None:
        batch = self._store.batch()
        fingerprints = self._rows[rows]
        self._tables.insert(batch, fingerprints, {}, self._words[rows])
        self._store.write(batch)
        self._tables.maintain()
        self._unflushed += len(fingerprints)
        if self._unflushed >= FLUSHED:
            self._store.flush()
            self._unflushed = 0

    def turns(self, first: int, end: int, *, insert: bool) -> tuple[float, I64]:
        """Seconds for these batches, and the (row, stored) pairs found in them."""
        began = time.perf_counter()
        pairs = []
        for turn in range(first, end):
            start = self._stored + turn * BATCH
            parts = list(self._pool.map(self._find, range(start, start + BATCH, BATCH // THREADS)))
            pairs += parts
            if insert:
                new = np.ones(BATCH, bool)
                new[np.concatenate([part[:, 0] for part in parts]) - start] = False
                self._add(np.flatnonzero(new) + start)
        seconds = time.perf_counter() - began
        found = np.concatenate(pairs)
        return seconds, found[found[:, 1] < self._stored]

    def _find(self, first: int) -> I64:
        rows = slice(first, first + BATCH // THREADS)
        found = self._tables.search(self._rows[rows], self._words[rows])
        return np.column_stack([found.row + first, found.anchor])

    def close(self) -> None:
        self._pool.shutdown()
        self._tables.close()
        self._store.close()


def _measure(
    path: Path, peers: Sequence[str], make: Callable[[Path], Ours], stored: int, planted: dict[int, int]
) -> dict[str, Any]:
    """Everybody's rows a second and recall of the planted pairs, a row each."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="neardup-bench-"))
        ours = make(Path(folder))
        stack.callback(ours.close)
        asked: dict[str, PeerProcess] = {}
        adding = {"ours": ours.seconds_to_add}
        for name in peers:
            peer = stack.enter_context(ask("tables", SCRIPT, name, str(path)))
            if peer is not None and (added := peer.next()) is not None:
                asked[name], adding[name] = peer, added["seconds"]
        seconds: dict[str, dict[bool, list[float]]] = {name: {False: [], True: []} for name in adding}
        pairs: dict[str, list[I64]] = {name: [] for name in adding}
        for turn in range(2 * ROUNDS):
            insert, first = turn >= ROUNDS, turn * TURNS
            spent, found = ours.turns(first, first + TURNS, insert=insert)
            seconds["ours"][insert].append(spent)
            pairs["ours"].append(found)
            for name, peer in asked.items():
                answer = peer.next({"first": first, "end": first + TURNS, "insert": insert})
                seconds[name][insert].append(answer["seconds"])
                pairs[name].append(np.array(answer["pairs"], np.int64).reshape(-1, 2))
    wanted = {row for row in planted if row < stored + 2 * ROUNDS * TURNS * BATCH}
    table: dict[str, Any] = {}
    for name in ("ours", *peers):
        if name not in adding:
            table[name] = {"missing": "not installed"}
            continue
        met = {row for row, other in np.concatenate(pairs[name]).tolist() if planted.get(row) == other}
        rates = {kind: TURNS * BATCH / median(seconds[name][kind]) for kind in (False, True)}
        table[name] = {
            "added_per_second": round(stored / adding[name]),
            "looked_up_per_second": round(rates[False]),
            "looked_up_and_inserted_per_second": round(rates[True]),
            "recall": round(len(met & wanted) / len(wanted), 4),
        }
        mine = table["ours"]
        for kind in ("looked_up", "looked_up_and_inserted"):
            table[name][f"ours_to_it_{kind}_ratio"] = round(
                mine[f"{kind}_per_second"] / table[name][f"{kind}_per_second"], 2
            )
    return table


def _fingerprints(stored: int) -> dict[str, Any]:
    """Random fingerprints, 30 % of the stream 0 to 8 bits from a stored one."""
    rng = np.random.default_rng(3)
    n = 2 * ROUNDS * TURNS * BATCH
    rows = np.concatenate([preloaded(stored), rng.integers(0, 1 << 64, n, dtype=np.uint64)])
    near = stored + np.flatnonzero(rng.random(n) < 0.3)
    base, bits = rng.integers(0, stored, len(near)), rng.choice(9, len(near), p=SHARES)
    rows[near] = flip(rng, rows[base], bits)
    planted = dict(zip(near[bits <= K].tolist(), base[bits <= K].tolist(), strict=True))
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as folder:
        path = Path(folder) / "fingerprints.npz"
        np.savez(path, rows=rows, stored=stored, batch=BATCH)
        design = Design(5, 2)
        return _measure(
            path,
            FINGERPRINT_PEERS,
            lambda place: Ours(place, K, stored, design, (rows, rows)),
            stored,
            planted,
        )


def _sets(stored: int) -> dict[str, Any]:
    """Documents of 100 words; 30 % of the stream have up to 10 words of a stored one replaced at an end, so
    that 0.8 to all of their shingles are the same."""
    rng = np.random.default_rng(4)
    n, length = 2 * ROUNDS * TURNS * BATCH, 100
    words = (rng.zipf(1.2, (stored + n, length)) % 50_000).astype(np.int64)
    near = stored + np.flatnonzero(rng.random(n) < 0.3)
    base, edits = rng.integers(0, stored, len(near)), rng.integers(0, 11, len(near))
    kept = np.arange(length) >= edits[:, None]
    words[near] = np.where(kept, words[base], words[near])
    planted = dict(zip(near.tolist(), base.tolist(), strict=True))
    texts = [" ".join(f"w{word}" for word in row) for row in words.tolist()]
    found = Fingerprinter().texts(texts)
    scheme, rule = Scheme(), Rule(VerdictOptions(), Scheme())
    sketches = np.frombuffer(b"".join(one.sketch for one in found), "<u8")
    sketches = sketches.reshape(len(found), scheme.sketch_bytes // 8)
    prints = np.array([one.fingerprint for one in found], np.uint64)
    keys = rule.table_words(prints[:, None], sketches)
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as folder:
        path = Path(folder) / "sets.npz"
        starts = np.arange(0, words.size + 1, length)
        np.savez(path, words=words.ravel(), starts=starts, stored=stored, batch=BATCH)

        def ours(place: Path) -> Ours:
            return Ours(place, rule.options.within, stored, rule.design(), (keys, prints))

        return _measure(path, SET_PEERS, ours, stored, planted)


def run(thousands: int = 1000, many: int = 10_000, of_sets: int = 50) -> dict[str, Any]:
    """Ours and each peer; `ratio` is how many times as many rows a second ours manages."""
    found = {f"{stored} k fingerprints": _fingerprints(stored * 1000) for stored in (thousands, many)}
    return found | {f"{of_sets} k sets of shingles": _sets(of_sets * 1000)}
