"""A deployment made of real processes, to be killed, and a crawler that keeps publishing meanwhile."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

from aiokafka import AIOKafkaProducer

from stream.fingerprint.scheme import Scheme
from stream.kafka import topics
from stream.messages.verdict_options import VerdictOptions
from stream.settings import Settings
from tests.chaos.load import PageMaker
from tests.chaos.processes import Process, fork
from tests.waiting import HANG_SECONDS


class Crawler:
    """Publishes pages of our own making. Seeded."""

    def __init__(self, seed: int) -> None:
        self._random, self._pages = random.Random(seed), PageMaker(str(seed))
        self.published = 0

    def page(self) -> bytes:
        return self._pages.next()[1]

    async def crawl(
        self, settings: Settings, stop: asyncio.Event, pause: float, limit: int | None = None, fast: int = 0
    ) -> None:
        """Publish a few pages at a time until told to stop, or up to the limit; before that, the first `fast`
        pages without a pause."""
        producer = AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap_servers, enable_idempotence=True, acks="all"
        )
        await producer.start()
        try:
            while self.published < fast:
                sent = [await producer.send(f"{settings.namespace}.pages", self.page()) for _ in range(500)]
                await asyncio.gather(*sent)
                self.published += len(sent)
            while not stop.is_set() and (limit is None or self.published < limit):
                few = self._random.randrange(1, 12)
                for _ in range(few if limit is None else min(few, limit - self.published)):
                    await producer.send_and_wait(f"{settings.namespace}.pages", self.page())
                    self.published += 1
                await asyncio.sleep(pause)
        finally:
            await producer.stop()


class Deployment:
    """Roles in processes of their own, which all are ended with the context."""

    def __init__(self, settings: Settings, logs: Path, options: VerdictOptions | None = None) -> None:
        self.settings, self.logs, self._options = settings, logs, options or VerdictOptions()
        self.running: dict[str, Process] = {}

    async def __aenter__(self) -> Deployment:
        await topics.create(self.settings, Scheme(), self._options, lambda _: None)
        return self

    async def __aexit__(self, *exception: object) -> None:
        for name in list(self.running):
            await self.kill(name)

    async def start(self, name: str, failpoint: str | None = None) -> None:
        """Start the role before the first dash of its name; `failpoint` is where it will kill itself."""
        environment = self.settings.environment()
        environment |= {"NEARDUP_FAILPOINT": failpoint} if failpoint else {}
        self.running[name] = await fork((name.split("-")[0],), environment, self.logs / f"{name}.log")

    async def kill(self, name: str) -> None:
        """End a role by SIGKILL."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def stop(self, name: str) -> int:
        """End a role by SIGTERM, and return its exit code."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(HANG_SECONDS):
            return await process.wait()

    async def wait_for_end(self, name: str) -> int:
        """Wait until a role ends by itself, and return its exit code."""
        async with asyncio.timeout(HANG_SECONDS):
            code = await self.running[name].wait()
        del self.running[name]
        return code

    def log(self, name: str) -> str:
        """Return the log of a role."""
        return (self.logs / f"{name}.log").read_text(encoding="utf-8")
