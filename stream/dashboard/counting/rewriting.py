"""Rewrites what the dashboard counted, whenever pages were forgotten (rule 24)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from stream.dashboard.counting.app import Statistics
from stream.dashboard.counting.forgotten import ForgottenPages
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
        self.forgotten: Final = ForgottenPages(genesis, self._noted.decided)
        self._shown = 0
        self._sound = set[int]()
        """Partitions whose files have no earlier versions of rows than those that were rewritten."""

    def trust(self, partitions: set[int]) -> None:
        """Say whose rows are on the disk before the dashboard begins: others are recovered from changelogs,
        with earlier versions of rows."""
        self._sound = partitions & self._noted.partitions.keys()

    async def run(self, statistics: Statistics, recent: LatestVerdicts) -> None:
        """Rewrite until cancelled."""
        while True:
            requests, here = self.forgotten.requests, statistics.open_partitions
            if self._shown < requests:
                await recent.forget(self.forgotten)
                self._shown = requests
            if statistics.ready.is_set():
                self._sound &= here
            for partition in sorted(here):
                done = self._noted.partitions.get(partition, 0)
                if requests and (done < requests or partition not in self._sound):
                    rows = await statistics.rewrite(partition, whole=partition not in self._sound)
                    if rows is not None:
                        self._note(partition, requests)
                        log.info("rewritten", partition=partition, requests=requests, rows=rows)
            await asyncio.sleep(LOOK_SECONDS)

    def _note(self, partition: int, requests: int) -> None:
        self._sound.add(partition)
        self._noted.partitions[partition] = requests
        self._noted.decided = self.forgotten.decided
        self._noted.write(self._directory)
