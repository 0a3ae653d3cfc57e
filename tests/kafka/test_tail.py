"""`neardup tail` shows each verdict once, also while partitions are added to their topic."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from stream.cli.tail import _follow
from stream.settings import Settings
from tests.kafka.judge_helpers import add_partitions, append
from tests.kafka.worker_helpers import create
from tests.waiting import until


@pytest.mark.parametrize(
    ("arguments", "waits_for"),
    [
        ((), "waiting for more verdicts on {}, until Ctrl-C; --from-beginning shows those that are there"),
        (("--from-beginning", "--limit", "3"), "waiting for 1 more verdict on {}, until Ctrl-C"),
        (
            ("--limit", "3", "--verdict", "recrawl"),
            "waiting for 3 more recrawl verdicts on {}, until Ctrl-C; --",
        ),
    ],
)
async def test_it_says_what_it_waits_for(
    settings: Settings, arguments: tuple[str, ...], waits_for: str
) -> None:
    names = await create(settings)
    error, out = await waiting_line(settings, *arguments)
    assert error.startswith(f"no verdicts on {names.verdicts} yet; waiting for ")
    assert out == ""
    nearest = {"url": "http://b/", "id": "abababab.2.0", "similarity": 0.71}
    value = {"url": "a", "verdict": "unique", "duplicate_of": None, "nearest": nearest, "reason": None}
    for partition in (0, 2):
        await append(settings, json.dumps(value).encode(), topic=names.verdicts, partition=partition)
    error, out = await waiting_line(settings, *arguments)
    assert error.startswith(waits_for.format(names.verdicts))
    assert out.count("unique") == (2 if "--from-beginning" in arguments else 0)
    assert out.count("~ http://b/  (similarity 0.71)") == out.count("unique")


async def waiting_line(settings: Settings, *arguments: str) -> tuple[str, str]:
    """The first line on stderr of a `tail` that is interrupted then, and its stdout."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stream.cli", "tail", *arguments,
        env=os.environ | settings.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    line = await process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = await process.communicate()
    return line.decode(), out.decode()


pytestmark = pytest.mark.broker


@pytest.mark.night
@pytest.mark.parametrize("from_beginning", [False, True])
async def test_verdicts_on_added_partitions_are_shown_and_none_twice(
    settings: Settings, *, from_beginning: bool
) -> None:
    names = await create(settings)
    shown: list[str] = []

    def show(record: dict[str, Any], _: bytes) -> None:
        shown.append(record["url"])

    async with AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, metadata_max_age_ms=100
    ) as producer:

        async def write(url: str, partition: int) -> None:
            value = json.dumps({"verdict": "unique", "url": url}).encode()
            await producer.send_and_wait(names.verdicts, value, partition=partition)

        await write("before", 0)
        tail = asyncio.create_task(_follow(settings, from_beginning, set(), None, show))
        begun = 0

        async def begins() -> bool:
            nonlocal begun
            await write(f"first {begun}", 1)
            begun += 1
            return bool(shown)

        await until(begins)
        await add_partitions(settings, names.verdicts, 5)
        await until(lambda: producer.client.cluster.partitions_for_topic(names.verdicts) == set(range(5)))
        written = {f"{n} of {partition}" for n in range(20) for partition in range(5)}
        for n in range(20):
            for partition in range(5):
                await write(f"{n} of {partition}", partition)
        await until(lambda: tail.done() or written <= set(shown))
        await write("last", 4)
        await until(lambda: tail.done() or "last" in shown)
        tail.cancel()
        await asyncio.gather(tail, return_exceptions=True)
    assert len(shown) == len(set(shown))
    assert ("before" in shown) == from_beginning
