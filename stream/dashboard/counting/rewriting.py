"""Rewrites what the dashboard counted, whenever pages were forgotten (rule 24)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from stream.dashboard.counting.app import Statistics
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.forgotten_ids import ForgottenIds
from stream.dashboard.counting.latest_verdicts import LatestVerdicts
from stream.kafka.rewritten import Rewritten, rewritten_in
from stream.messages.journal import Genesis

LOOK_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class Rewriting:
    """Removes URLs of forgotten pages from tables, changelogs and the latest verdicts, and notes how far it
    has come. Interrupted, it begins anew."""

    def __init__(self, genesis: Genesis, directory: Path) -> None:
        """`directory` is the dashboard's."""
        self._directory = directory
        self._noted: Rewritten = rewritten_in(directory, genesis.journal)
        ids = ForgottenIds.read(directory, genesis.journal)
        self.forgotten: Final = ForgottenPages(genesis, self._noted.decided, ids)
        self._shown = 0

    def begin(self, partitions: int, stored: set[int]) -> None:
        """Say of which partitions, of all, there are rows on the disk before the dashboard begins."""
        if missing := set(range(partitions)) - stored - self._noted.begun:
            self._noted.begun |= missing
            self._noted.write(self._directory)

    async def run(self, statistics: Statistics, recent: LatestVerdicts) -> None:
        """Rewrite until cancelled."""
        before = set[int]()
        while True:
            requests, here = self.forgotten.requests, statistics.open_partitions
            if self._shown < requests:
                await recent.forget(self.forgotten)
                self._note(self._noted.begun)  # also where no partition is behind: ids were read again
                self._shown = requests
            if statistics.ready.is_set():
                # Of what comes from another dashboard, rows are recovered from changelogs.
                self._noted.begun |= here - before if before else set()
                before = here
            for partition in sorted(here):
                is_behind = self._noted.partitions.get(partition, 0) < requests
                if requests and (is_behind or partition in self._noted.begun):
                    await self._rewrite(statistics, partition, requests)
            await asyncio.sleep(LOOK_SECONDS)

    async def _rewrite(self, statistics: Statistics, partition: int, requests: int) -> None:
        whole = partition in self._noted.begun
        self._note(self._noted.begun | {partition})
        rows = await statistics.rewrite(partition, whole=whole)
        if rows is not None:
            self._noted.partitions[partition] = requests
            self._note(self._noted.begun - {partition})
            log.info("rewritten", partition=partition, requests=requests, rows=rows)

    def _note(self, begun: set[int]) -> None:
        self._noted.begun, self._noted.decided = begun, self.forgotten.decided
        self.forgotten.ids.write(self._directory)
        self._noted.write(self._directory)
