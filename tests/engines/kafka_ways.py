"""Verdicts of a deployment of real processes on a real broker: of pages as a stream, or of loaded rows."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stream.brokers.broker import start_broker
from stream.roles.auditor.audit import audit
from stream.settings import Settings
from tests.bench import pipeline
from tests.waiting import HANG_SECONDS


def streamed(files: Sequence[Path], count: int, folder: Path) -> list[bytes]:
    """Verdicts in the order of the pages, which are published to one partition."""
    return _in_order("publish", *map(str, files), count=count, folder=folder, partitions=1, workers=1)


def loaded(rows: Path, count: int, folder: Path) -> list[bytes]:
    """Verdicts in the order of the rows, by `neardup load`."""
    return _in_order("load", str(rows), count=count, folder=folder, partitions=3, workers=0)


def _in_order(*command: str, count: int, folder: Path, partitions: int, workers: int) -> list[bytes]:
    with start_broker(folder / f"{command[0]}-broker") as broker:
        settings = pipeline.settings_for(broker.bootstrap_servers, folder, partitions=partitions)
        found = asyncio.run(_judged(settings, command, count, workers))
    return sorted(found, key=lambda verdict: _SOURCE.decode(verdict).source.offset)


async def _judged(settings: Settings, command: Sequence[str], count: int, workers: int) -> list[bytes]:
    """What a command brings about. Raises TimeoutError if no verdict comes, and ValueError for pages without
    exactly one."""
    found: list[bytes] = []
    async with pipeline.ours(settings, workers), pipeline.verdicts(settings) as consumer:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stream.cli", *command, env=os.environ | settings.environment(),
            stdin=DEVNULL, stdout=DEVNULL,
        )  # fmt: skip
        while len(found) < count:
            async with asyncio.timeout(HANG_SECONDS):
                while not (records := await consumer.getmany(timeout_ms=1000)):
                    pass
            found += [each.value for some in records.values() for each in some]
        if await process.wait():
            raise ValueError(f"{command}: exit code {process.returncode}")
        findings = await audit(settings)
        if not findings.clean or findings.pages + findings.loaded != count:
            raise ValueError(f"not every page has one verdict: {findings}")
    return found


class _Source(msgspec.Struct):
    offset: int


class _Verdict(msgspec.Struct):
    source: _Source


_SOURCE = msgspec.json.Decoder(_Verdict)
