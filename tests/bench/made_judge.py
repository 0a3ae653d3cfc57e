"""A judge of made records without Kafka: they are decided and applied batch after batch, with turns between
them where pages expire, and flushed beside that, as a judge does."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.batch_rows import BatchRows
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.journal import Rows, decode_journal
from stream.messages.verdict_options import VerdictOptions
from stream.settings import Settings
from tests.bench.bench_judge import TRANSACTION
from tests.bench.made_rows import ROWS, MadeRows
from tests.genesis import genesis_of

FIRST: Final = 1
"""Offset of the first record, after the genesis."""
EPOCH: Final = 1_790_000_000_000
MEMORY: Final = 1 << 30
"""The default of `tables_memory`."""


class Part(msgspec.Struct):
    """What was measured of a stretch of a run, and what there is at its end."""

    rows: int = 0
    """Judged so far, since the first record."""
    anchors: int = 0
    """That are live."""
    judged: int = 0
    """Rows of this stretch."""
    seconds: float = 0.0
    """That deciding and applying took."""
    turn_seconds: float = 0.0
    carried: int = 0
    """Pages that turns carried."""
    longest_turn_ms: int = 0
    longest_batch_ms: int = 0
    groups_a_row: float = 0.0
    """Groups read from RocksDB a row, those of near-duplicates among them."""
    ram_mib: int = 0
    """What the process has to itself: pages of table files that it maps are the page cache's."""
    disk_bytes: int = 0
    hot_anchors: int = 0
    cold_anchors: int = 0
    runs: int = 0

    @property
    def rows_per_second(self) -> float:
        return self.judged / self.seconds if self.seconds else 0.0


class Flushes:
    """Flushes beside the work, as often as a judge's."""

    def __init__(self) -> None:
        self._beside = ThreadPoolExecutor(1, "flush")
        self._flushing: Future[None] | None = None
        self._begun = time.monotonic()
        self._seconds = Settings().flush_seconds

    def begin_if_due(self, state: State) -> None:
        """Begin one, unless one is under way or the last one is not long ago."""
        under_way = self._flushing is not None and not self._flushing.done()
        if not under_way and time.monotonic() - self._begun > self._seconds:
            self.end()
            self._begun, self._flushing = time.monotonic(), self._beside.submit(state.flush)

    def end(self) -> None:
        """Wait for what is under way."""
        if self._flushing is not None:
            self._flushing.result()
            self._flushing = None


class MadeJudge:
    """A judge that goes on where its state is, or begins with an empty one."""

    def __init__(
        self,
        directory: Path,
        options: VerdictOptions,
        *,
        scheme: Scheme | None = None,
        memory: int = MEMORY,
        generation: int = 1_000_000,
        millis_a_record: float = 0.0,
    ) -> None:
        """`millis_a_record` is how much log time passes with each record."""
        genesis = genesis_of(scheme or Scheme(), options)
        self.made = MadeRows(genesis.scheme)
        self._millis_a_record = millis_a_record
        self._limit, self._flushes = BatchRows(TRANSACTION), Flushes()
        self._waiting: list[Entry] = []
        began = time.perf_counter()
        self.state = State(
            directory, genesis, "c", memory=memory, generation=generation, cache=Settings().tables_cache
        )
        self.judge = Judge(self.state, genesis)
        self.seconds_to_start = time.perf_counter() - began

    @property
    def next(self) -> int:
        """Offset of the next record."""
        return max(FIRST, self.state.meta.applied)

    def close(self) -> None:
        self._flushes.end()
        self.state.close()

    def entry(self, offset: int, record: Rows) -> Entry:
        """A record as a judge reads it."""
        when = EPOCH + int((offset - FIRST) * self._millis_a_record)
        rows = decode_journal(record.encode(), offset)
        assert isinstance(rows, Rows)  # no genesis
        return Entry(offset, when, offset.to_bytes(16, "big"), rows)

    def batch(self) -> list[Entry]:
        """The next records; those that were not decided come again."""
        wanted, first = max(1, self._limit.limit // ROWS), self.next
        waiting = [entry for entry in self._waiting if entry.offset >= first]
        first += len(waiting)
        more = range(first, first + wanted - len(waiting))
        self._waiting = [
            *waiting, *(self.entry(offset, self.made.record(offset - FIRST)) for offset in more)
        ]  # fmt: skip
        return self._waiting

    def measure(self, rows: int) -> Part:
        """Judge so many rows, and return what it took."""
        part, before = Part(), self.state.tables.stats.rocks_probes
        while part.judged < rows:
            batch = self.batch()
            began = time.perf_counter()
            if (record := self.judge.decide_turn(batch[0])) is not None:
                assert record.turn is not None
                self.judge.apply_apart(record, 0)
                took = time.perf_counter() - began
                part.carried += len(record.turn.anchors) // 8
                part.turn_seconds += took
                part.longest_turn_ms = max(part.longest_turn_ms, round(1000 * took))
            middle = time.perf_counter()
            decided = self.judge.decide(batch)
            self.judge.apply(decided.entries, decided.record())
            end = time.perf_counter()
            self._limit.note(len(decided.batch), end - middle)
            self._flushes.begin_if_due(self.state)
            part.longest_batch_ms = max(part.longest_batch_ms, round(1000 * (end - middle)))
            part.seconds += end - began
            part.judged += len(decided.batch)
        self._flushes.end()
        stats = self.state.tables.stats
        part.rows, part.anchors = (self.next - FIRST) * ROWS, self.state.tables.anchors
        part.groups_a_row = round((stats.rocks_probes - before) / max(1, part.judged), 3)
        part.hot_anchors, part.cold_anchors, part.runs = stats.hot_anchors, stats.cold_anchors, stats.runs
        part.ram_mib, part.disk_bytes = own_mib(), self.state.store.disk_bytes()
        return part


def own_mib() -> int:
    """Memory of this process alone."""
    with open("/proc/self/status") as lines:
        (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) >> 10
