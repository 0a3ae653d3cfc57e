"""A segment whose tables this process has, in a directory of their own that is built from its file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from stream.errors import DamagedStateError, DamagedTablesError, StateBusyError, StateError
from stream.fingerprint.lanes import first_words
from stream.judge.decision.candidates_compared import FingerprintedPages
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Run
from stream.judge.segments.answering import Answerer
from stream.judge.segments.deaths_decided import DecidedDeaths
from stream.judge.segments.file import SegmentFile
from stream.judge.state.baselines import Anchors
from stream.judge.state.page_log import LoggedPages
from stream.tables.arrays import distinct
from stream.tables.search.queries import TableKeys
from stream.tables.store.failures import CURE
from stream.tables.store.rocks import DEFAULT, Store, Writes
from stream.tables.tables import IndexKind, Tables

STEP: Final = 1 << 14
"""Anchors inserted at a time."""
_BUILT: Final = b"segment/built"
"""There once all anchors are in the tables. The value is the number of the first of them."""
_DECIDED: Final = b"segment/decided"
"""The position in the decisions up to which deaths are applied."""

_DAMAGED: Final = "damaged"
"""A file in the directory of tables that were found damaged while they were read."""


class TablesRoom(NamedTuple):
    """What the tables of a segment may take."""

    memory: int
    """Bytes of RAM."""
    cache: int
    """Bytes of RocksDB's block cache."""
    generation: int
    """Anchors that are frozen into RocksDB at once."""


class HeldSegment:
    """A segment that answers, as of the deaths that were applied to it.

    Its tables number anchors from 0 on, beginning with the first one that had not expired when they were
    built. They outlive the process: what was not flushed is applied again.
    """

    def __init__(
        self, file: SegmentFile, rule: Rule, store: Store, tables: Tables, room: TablesRoom, base: int
    ) -> None:
        """`base` is the number of the first anchor in the tables. See `open` and `build`."""
        self.file, self.segment, self.room = file, file.segment, room
        self._rule, self._store, self._tables, self._base = rule, store, tables, base
        self._records = _Records(file, base)
        self.decided = int.from_bytes(store.get(DEFAULT, [_DECIDED])[0] or b"", "little")
        """The position in the decisions up to which deaths are applied."""
        self._lacks_deaths = False
        """Whether the store lacks deaths that the tables in RAM may have, as writing them failed."""

    @classmethod
    def open(cls, path: Path, file: SegmentFile, rule: Rule, room: TablesRoom) -> Self | None:
        """Open the tables in directory `path`. None if there are none that are complete and whole, of this
        program's format and of these settings. Raises StateBusyError."""
        if not path.exists():
            return None
        try:
            return cls._open(path, file, rule, room)
        except StateBusyError:
            raise
        except StateError:
            return None

    @classmethod
    def _open(cls, path: Path, file: SegmentFile, rule: Rule, room: TablesRoom) -> Self | None:
        if (path / _DAMAGED).exists():
            return None
        store = _store(path, rule, room)
        try:
            built = store.get(DEFAULT, [_BUILT])[0]
            if built is None:
                store.close()
                return None
            tables = _tables(store, rule, room)
            base = int.from_bytes(built, "little")
            if base + tables.count != file.segment.end:
                tables.close()
                raise StateError(f"state directory {path}: has the tables of another segment")
            return cls(file, rule, store, tables, room, base)
        except BaseException:
            store.close()
            raise

    @classmethod
    def build(
        cls,
        path: Path,
        file: SegmentFile,
        rule: Rule,
        room: TablesRoom,
        oldest: int,
        turn: Callable[[int], None] = lambda _: None,
    ) -> Self:
        """Build the tables in directory `path`, in place of what is there. Anchors below `oldest` have
        expired. `turn` is called often, with the number of anchors that are built; it may raise. Raises
        StateError and DiskError."""
        shutil.rmtree(path, ignore_errors=True)
        store, tables = _store(path, rule, room), None
        try:
            tables, base = _tables(store, rule, room), max(oldest, file.segment.first)
            for first in range(base, file.segment.end, STEP):
                turn(first - base)
                _insert(store, tables, file, rule, slice(first, min(first + STEP, file.segment.end)))
                tables.maintain()
            tables.maintain(wait=True)
            batch = store.batch()
            batch.put(DEFAULT, _BUILT, base.to_bytes(8, "little"))
            store.write(batch)
            store.flush()
            return cls(file, rule, store, tables, room, base)
        except BaseException:
            if tables is not None:
                tables.close()
            store.close()
            raise

    def kill(self, deaths: DecidedDeaths, decided: int) -> NDArray[np.int64]:
        """Apply the deaths of a decision record, or of several, up to a position in the decisions. Returns
        the anchors of this segment that were alive. Nothing happens if they were applied before. Raises
        DamagedTablesError and DiskError; then they are applied again when the tables are next opened."""
        if decided <= self.decided:
            return np.zeros(0, np.int64)
        with self._built_anew_if_damaged():
            return self._kill(deaths, decided)

    def _kill(self, deaths: DecidedDeaths, decided: int) -> NDArray[np.int64]:
        tables = self._tables
        first = min(max(deaths.oldest - self._base, tables.first), tables.count)
        expired = np.arange(tables.first, first)
        expired = expired[tables.is_alive(expired)]
        dead = distinct(deaths.numbers) - self._base
        dead = dead[(dead >= first) & (dead < tables.count)]
        dead = dead[tables.is_alive(dead)]
        is_change = first > tables.first or len(dead) > 0
        if is_change:
            self._apply(first, dead, decided)
        self.decided = decided
        if is_change:
            tables.maintain()
        return np.concatenate([expired, dead]) + self._base

    def _apply(self, first: int, dead: NDArray[np.int64], decided: int) -> None:
        """Let the anchors before `first` be gone, and these be dead, in RAM and in the store."""
        batch = self._store.batch()
        try:
            self._tables.raise_first(batch, first)
            if len(dead):
                self._tables.kill(batch, dead)
            self._write(batch, decided)
        except BaseException:
            self._lacks_deaths = True
            raise

    def _write(self, batch: Writes, decided: int) -> None:
        """Write a batch, and up to which position deaths are applied. Records without any, which are most,
        write nothing: they may be applied again. Once deaths are lacking, the position stays before them."""
        if not self._lacks_deaths:
            batch.put(DEFAULT, _DECIDED, decided.to_bytes(8, "little"))
        self._store.write(batch)

    def answer(
        self,
        run: Run,
        ids: NDArray[np.int64],
        pages: FingerprintedPages,
        most: int,
        keys: TableKeys | None = None,
    ) -> Answer:
        """Return the answer about the n pages of a run of records that have a fingerprint, or about the first
        of them (see `Answerer.answer`). `ids` are their packed ids (n,), ascending. At most `most` pairs of a
        page are listed. `keys` are those of the pages, if the caller has them. Raises DamagedTablesError."""
        answerer = Answerer(self.segment, self._tables, self._records, self._rule, most, self._base)
        with self._built_anew_if_damaged():
            return answerer.answer(run, ids, pages, self.decided, keys)

    @contextmanager
    def _built_anew_if_damaged(self) -> Iterator[None]:
        """Note in the directory that its tables are damaged if this is raised of them."""
        try:
            yield
        except DamagedStateError as error:
            (self._store.path / _DAMAGED).touch()
            what = str(error).removesuffix(f"; {CURE}")
            raise DamagedTablesError(f"{self.segment}: built anew at the next start: {what}") from error

    def close(self) -> None:
        """Release the directory."""
        try:
            self._write(self._store.batch(), self.decided)
        finally:
            try:
                self._tables.close()
            finally:
                self._store.close()


class _Records:
    """The records of a segment's anchors, as the tables number them."""

    def __init__(self, file: SegmentFile, base: int) -> None:
        self._file, self._shift = file, base - file.segment.first

    def anchors(self, numbers: NDArray[np.int64]) -> Anchors:
        """Return the records of the distinct anchors among `numbers`."""
        numbers = distinct(numbers)
        of, columns = numbers + self._shift, self._file.columns
        without = cast(LoggedPages, None)  # as a segment has no URLs
        return Anchors(
            numbers, numbers, columns.fingerprint[of], columns.skipped[of], columns.sketch[of], without
        )


def _store(path: Path, rule: Rule, room: TablesRoom) -> Store:
    return Store(path, rule.design().tables + rule.triples, room.cache)


def _tables(store: Store, rule: Rule, room: TablesRoom) -> Tables:
    return Tables(
        store,
        rule.design(),
        rule.search_options(),
        memory=room.memory,
        generation=room.generation,
        kind=IndexKind(rule.triples),
    )


def _insert(store: Store, tables: Tables, file: SegmentFile, rule: Rule, numbers: slice) -> None:
    """Insert some anchors as if all were alive."""
    first, columns = file.segment.first, file.columns
    some = slice(numbers.start - first, numbers.stop - first)
    fingerprints, masks = columns.fingerprint[some], columns.skipped[some]
    skipped = {at: int(masks[at]) for at in np.flatnonzero(masks).tolist()}
    batch = store.batch()
    tables.insert(
        batch, first_words(fingerprints), skipped, rule.table_words(fingerprints, columns.sketch[some])
    )
    store.write(batch)
