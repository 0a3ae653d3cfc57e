"""The pages of journal records that are read and not decided."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import FINGERPRINTED
from stream.judge.batch import Entry, pages_of
from stream.judge.decision.candidates_compared import FingerprintedPages
from stream.judge.rule import Rule
from stream.judge.segments.answer import Run, between
from stream.tables.arrays import is_among
from stream.tables.search.probing import keys_by
from stream.tables.search.queries import TableKeys


class RecordPages(NamedTuple):
    """The n pages of a journal record that have a fingerprint."""

    offset: int
    ids: NDArray[np.int64]
    """Packed ids (n,), ascending."""
    pages: FingerprintedPages
    all_rows: int
    """Rows of the record, with a fingerprint or without."""

    def within(self, run: Run) -> RecordPages:
        """Those in a run that has a part of the record."""
        some = between(self.ids, run.first, run.until)
        return self._replace(ids=self.ids[some], pages=self.pages.take(some))

    @classmethod
    def of(cls, entry: Entry) -> RecordPages:
        """Those of a record."""
        rows = entry.rows
        ready = np.flatnonzero(is_among(rows.status, FINGERPRINTED))
        # Copies, so that nothing else of the record stays in memory.
        columns = FingerprintedPages(
            rows.fingerprint[ready], rows.uncertain[ready], rows.sketch[ready], rows.status[ready]
        )
        return cls(entry.offset, pages_of([entry])[ready], columns, len(rows))


class RunPages(NamedTuple):
    """The n pages of a run of records that have a fingerprint."""

    ids: NDArray[np.int64]
    """Packed ids (n,), ascending."""
    pages: FingerprintedPages
    keys: TableKeys


class UndecidedPages:
    """Pages by record, in journal order."""

    def __init__(self, rule: Rule) -> None:
        self._rule, self._design, self._records = rule, rule.design(), list[RecordPages]()
        self._last: tuple[Run, RunPages] | None = None
        """The run that was asked for last: of several segments, each mostly asks for the same one."""

    def add(self, record: RecordPages) -> None:
        """Add those of the next record."""
        self._records.append(record)

    def drop(self, end: int) -> None:
        """Forget the records before this offset."""
        del self._records[: self._place(end)]
        if self._last is not None and self._last[0].start < end:
            self._last = None

    def rows(self, run: Run) -> int:
        """Return the number of pages of a run."""
        return sum(len(each.ids) for each in self._of(run))

    def of(self, run: Run) -> RunPages:
        """Return the pages of a run of which at least one record is there."""
        if self._last is None or self._last[0] != run:
            self._last = run, self._joined(run)
        return self._last[1]

    def _joined(self, run: Run) -> RunPages:
        some = self._of(run)
        # A record without rows has unknown widths.
        filled: Sequence[RecordPages] = [each for each in some if len(each.ids)] or some[:1]
        columns = zip(*(each.pages for each in filled), strict=True)
        pages = FingerprintedPages._make(map(np.concatenate, columns))
        words = self._rule.table_words(pages.fingerprint, pages.sketch)
        return RunPages(np.concatenate([each.ids for each in filled]), pages, keys_by(words, self._design))

    def _of(self, run: Run) -> list[RecordPages]:
        some = self._records[self._place(run.start) : self._place(run.end + (run.end_row > 0))]
        if run.row:
            some[0] = some[0].within(run)
        if run.end_row:
            some[-1] = some[-1].within(run)
        return some

    def _place(self, offset: int) -> int:
        return bisect_left(self._records, offset, key=lambda each: each.offset)
