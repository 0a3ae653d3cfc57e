"""The scene of faults: one namespace with its roles, brokers, load and checker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.chaos.checker.checker import Checker
from tests.chaos.kafka_cluster.admin import BrokerAdmin
from tests.chaos.kafka_cluster.brokers import KafkaCluster
from tests.chaos.load import Load
from tests.chaos.report import Report
from tests.chaos.roles import Role
from tests.chaos.schedule import PlannedFault
from tests.waiting import HANG_SECONDS


class HangError(AssertionError):
    """There was no progress for HANG_SECONDS."""


@dataclass(slots=True)
class Scene:
    """Everything a fault may touch."""

    kafka: KafkaCluster
    admin: BrokerAdmin
    namespace: str
    roles: dict[str, Role]
    load: Load
    checker: Checker
    report: Report
    neardup: Callable[..., Awaitable[bool]]
    """Runs a command, and returns whether it succeeded."""

    @property
    def pages(self) -> str:
        """The topic of pages."""
        return f"{self.namespace}.pages"

    async def until(self, condition: Callable[[], object], *, hang: float = HANG_SECONDS) -> None:
        """Wait for something that happens in another process. Raises HangError."""
        ends = time.monotonic() + hang
        while not condition():
            if time.monotonic() > ends:
                raise HangError(f"waited for {hang:.0f} s in {condition.__qualname__}")
            await asyncio.sleep(0.1)

    async def until_progress(self, over: asyncio.Event | None = None) -> None:
        """Wait for another verdict, if any page waits for one, unless it is over. Raises HangError."""
        before, moved = self.checker.count, time.monotonic()
        while self.checker.count == before and self.load.backlog and not (over and over.is_set()):
            if time.monotonic() - moved > HANG_SECONDS:
                raise HangError(f"no verdict for {HANG_SECONDS} s, {self.load.backlog} pages wait")
            await asyncio.sleep(0.2)


Fault = Callable[[Scene, PlannedFault], Awaitable[bool]]
"""Causes a fault, and repairs what a person or the machine would. Returns False if there was nothing to act
on."""
