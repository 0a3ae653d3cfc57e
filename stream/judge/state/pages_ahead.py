"""Reads the pages that a turn may carry beside the batches before it (rule 23)."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from stream.judge.state.page_log import LoggedPages, PageLog
from stream.tables.arrays import I64


class PagesAhead:
    """Pages of logs that are read in a thread, and asked for later. One thread uses it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "pages-ahead")
        self._read = dict[PageLog, tuple[I64, Future[LoggedPages]]]()

    def begin(self, log: PageLog, numbers: I64) -> None:
        """Start to read the pages with these ascending numbers, in place of those before."""
        self._read[log] = numbers, self._thread.submit(log.pages, numbers)

    def pages(self, log: PageLog, numbers: I64) -> LoggedPages:
        """Return the pages with these ascending numbers, and drop what was read ahead. Raises
        DamagedStateError."""
        if log not in self._read:
            return log.pages(numbers)
        ahead, read = self._read.pop(log)
        pages = read.result()
        place = np.searchsorted(ahead, numbers)
        there = np.append(ahead, -1)[place] == numbers
        held = pages.take(place[there])
        return held if there.all() else held.merged(log.pages(numbers[~there]))

    def close(self) -> None:
        """Wait for what is being read."""
        self._thread.shutdown(cancel_futures=True)
