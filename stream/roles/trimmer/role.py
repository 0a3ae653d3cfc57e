"""The trimmer as a role, which trims at an interval, and a single trim."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from stream.errors import BrokerError, CheckpointError, OpenTransactionError, SecurityError
from stream.kafka import acl_check, clients, topics
from stream.kafka.outage import patience, retry_until_answered
from stream.ops.server import ops_server
from stream.ops.signals import run_unless_stopped, stop_event_on_signals
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


class TrimRole:
    """One process that trims the logs at an interval."""

    def __init__(self, settings: Settings, keep: float, every: float) -> None:
        """Nothing is deleted that was appended within the last `keep` seconds; `every` is in seconds."""
        self._settings, self._keep, self._every = settings, keep, every
        self._stop = asyncio.Event()
        self.watch = TrimWatch(keep, every)
        self.ops_url: str | None = None
        """Where its metrics and health are served."""

    def stop(self) -> None:
        """Ask `run` to return. A verification that is under way is given up."""
        self._stop.set()

    async def run(self) -> None:
        """Trim until SIGTERM, SIGINT or `stop()`. If the store or brokers fail, that is logged and tried
        again; any other error is raised, such as SettingsError without a store of checkpoints."""
        watch, trimmer = self.watch, Trimmer(self._settings, self._keep)
        with stop_event_on_signals(self._stop), clients.translated_errors():
            async with ops_server(self._settings, watch.metrics, watch.health) as self.ops_url:
                await run_unless_stopped(self._stop, self._run(trimmer))

    async def _run(self, trimmer: Trimmer) -> None:
        settings, watch = self._settings, self.watch
        with watch.health.excuse("waiting for the genesis"):
            genesis = await topics.wait_for_genesis(settings)
            await retry_until_answered("a broker", lambda: acl_check.check(settings, "trim"))
        pause = FIRST_PAUSE
        while True:
            try:
                with (
                    watch.health.excuse("trimming"),
                    clients.translated_errors(),
                    patience(PATIENCE_SECONDS),
                ):
                    watch.note(await trimmer.trim(genesis))
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
