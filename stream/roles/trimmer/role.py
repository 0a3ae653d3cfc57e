"""The trimmer as a role, which trims at an interval, and a single trim."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from stream.errors import BrokerError, CheckpointError, OpenTransactionError, SecurityError
from stream.kafka import acl_check, clients, topics
from stream.kafka.outage import patience
from stream.messages.journal import Genesis
from stream.roles.role import Role
from stream.roles.trimmer.trim import BROKERS, STORE, TRANSACTION, Hold, Outcome, Trimmer
from stream.roles.trimmer.watch import TrimWatch
from stream.settings import Settings

log = structlog.get_logger(__name__)

GENESIS_SECONDS: Final = 30.0
"""Time-out of the genesis for a single trim."""
PATIENCE_SECONDS: Final = 60.0
"""How long a trim waits for a leader, which is longer than an election or the restart of a broker."""
TURN_SECONDS: Final = 5.0
FIRST_PAUSE: Final = 10.0
"""Seconds from a trim that failed to the next attempt. They double with each further failure, up to the
interval."""


@clients.with_translated_errors
async def trim_once(settings: Settings, keep: float, *, dry_run: bool = False) -> Outcome:
    """Trim the logs once. Raises as `Trimmer` and `Trimmer.trim` do, TopicError without a genesis, and
    BrokerError if it waits for more than PATIENCE_SECONDS for something, which it names."""
    trimmer = Trimmer(settings, keep)  # before anything is waited for
    await acl_check.check(settings, "trim")
    genesis = await topics.wait_for_genesis(settings, GENESIS_SECONDS)
    with patience(PATIENCE_SECONDS):
        return await trimmer.trim(genesis, dry_run=dry_run)


class TrimRole(Role[TrimWatch]):
    """One process that trims the logs at an interval."""

    topics, grants = "trim", "trim"

    def __init__(self, settings: Settings, keep: float, every: float) -> None:
        """Nothing is deleted that was appended within the last `keep` seconds; `every` is in seconds. Raises
        SettingsError without a store of checkpoints."""
        super().__init__(settings, TrimWatch(keep, every))
        self._trimmer, self._every = Trimmer(settings, keep), every

    async def _work(self, genesis: Genesis) -> None:
        """Trim until the role is to end, which gives up a verification that is under way. If the store or
        brokers fail, that is logged and tried again."""
        await self._unless_stopped(self._trim_on(genesis))

    async def _trim_on(self, genesis: Genesis) -> None:
        watch, pause = self.watch, FIRST_PAUSE
        while True:
            try:
                with (
                    watch.health.excuse("trimming"),
                    clients.translated_errors(),
                    patience(PATIENCE_SECONDS),
                ):
                    watch.note(await self._trimmer.trim(genesis))
                rest, pause = self._every, FIRST_PAUSE
            except SecurityError:
                raise
            except (CheckpointError, BrokerError) as error:
                watch.note_failure(Hold(_reason(error), str(error)))
                rest = min(pause, self._every)
                pause *= 2
            await self._rest(rest)

    async def _rest(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self.watch.health.turn()
            await asyncio.sleep(min(left, TURN_SECONDS))


def _reason(error: CheckpointError | BrokerError) -> str:
    if isinstance(error, OpenTransactionError):
        return TRANSACTION
    return STORE if isinstance(error, CheckpointError) else BROKERS
