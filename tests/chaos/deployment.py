"""A deployment made of real processes, to be killed, and a crawler that keeps publishing meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path

from aiokafka import AIOKafkaProducer

from stream.fingerprint.scheme import Scheme
from stream.kafka import topics
from stream.messages.verdict_options import VerdictOptions
from stream.settings import Settings
from tests.chaos.processes import Process, fork
from tests.waiting import HANG_SECONDS

WORDS = [a + b + c for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u") for c in ("n", "r", "l", "s")]


class Crawler:
    """Pages of our own making: new, edited, mirrored, re-crawled, empty and malformed ones. Seeded."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._texts: list[tuple[str, list[str]]] = []
        self.published = 0

    def page(self) -> bytes:
        rng, kind = self._random, self._random.random()
        if kind < 0.02:
            return b'{"url": "http://broken.example/", "text": '
        url = f"http://site-{rng.randrange(40)}.example/{rng.randrange(100_000)}"
        if kind < 0.04:
            return json.dumps({"url": url, "text": "too short"}).encode()
        if kind < 0.55 or not self._texts:
            words = [rng.choice(WORDS) for _ in range(rng.randrange(60, 200))]
        else:
            known, words = rng.choice(self._texts[-400:])
            url = known if kind < 0.75 else url
            words = list(words)
            for _ in range(rng.choice([0, 0, 1, 1, 2, 4, 30])):
                words[rng.randrange(len(words))] = rng.choice(WORDS)
        self._texts.append((url, words))
        return json.dumps({"url": url, "text": " ".join(words)}).encode()

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
