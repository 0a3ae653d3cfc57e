"""How long verdicts stand still when a prober is killed, with a second group of probers and without.

    python -m tests.bench.bench_probers_failover [anchors of a segment ...]

One segment, two probers: the one that holds it is killed by SIGKILL while records are appended at a moderate
rate. Without a second group, either it starts again at once, as Kubernetes does, and still has its tables; or
it stays away, and the other one takes over: Kafka notices after `session_seconds`, and then
the file is downloaded and its tables are built. With a second group, there is always somebody who answers.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from stream.brokers.broker import start_broker
from stream.brokers.local_broker import LocalBroker
from stream.fingerprint.scheme import Scheme
from tests.bench.bench_probers_stream import PAUSE, dropped
from tests.bench.journal import NEAR, ROWS
from tests.bench.made_rows import MadeRows
from tests.bench.probed import ProbedDeployment, deployed

SIZES: Final = (1 << 16, 1 << 18)
MEMBERS: Final = ("one", "two")
"""Probers of the first group."""
KILLS: Final = 3
"""How often a prober is killed that is started again, or has a replica."""
LOST: Final = 1
"""How often one is killed that stays away."""
WARM: Final = 16
SESSION_SECONDS: Final = 10.0
"""After which Kafka notices that a member is gone: the default."""
BETWEEN: Final = 1.0
"""Seconds between a kill and the end of the pause that it made, and the next one."""


class Gaps:
    """Appends records all the time, and measures pauses of the decisions."""

    def __init__(self, running: ProbedDeployment, records: Iterator[bytes]) -> None:
        self._running, self._records = running, records

    async def append(self) -> None:
        """Append records for ever, 512 rows each PAUSE."""
        for each in self._records:
            await self._running.append([each])
            await asyncio.sleep(PAUSE)

    async def after(self, killed: float, calm: float) -> float:
        """The longest pause since a time, when decisions have gone on for some seconds."""
        while True:
            await self._running.judged(self._running.appended)
            times = [killed] + [each.at for each in self._running.decided if each.at >= killed]
            gaps = [later - sooner for sooner, later in pairwise(times)]
            if gaps and time.monotonic() - killed > max(gaps) + calm:
                return max(gaps)
            await asyncio.sleep(PAUSE)


async def _sized(broker: LocalBroker, directory: Path, anchors: int) -> dict[str, float]:
    """Figures for a segment of so many anchors."""
    made = MadeRows(Scheme())
    fill = -(-int(anchors / (1 - NEAR) * 1.02) // ROWS)
    flags = {"segment_anchors": anchors, "prober_replicas": 1, "session_seconds": SESSION_SECONDS}
    async with deployed(broker, directory, **flags) as running:
        await running.start("judge", "judge")
        await running.start("one", "prober")
        await running.judged(await running.append(made.record(each).encode() for each in range(fill)))
        await running.export(1)
        await running.loaded(1, ["one"])
        await running.start("two", "prober")
        first = [made.record(fill + each).encode() for each in range(WARM)]
        await dropped(running, first, 1, ["one"])
        await running.logged("two", "assigned")
        gaps = Gaps(running, (made.record(each).encode() for each in range(fill + WARM, 1 << 30)))
        appending = asyncio.create_task(gaps.append())
        try:
            return await _killed(running, gaps)
        finally:
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)


async def _killed(running: ProbedDeployment, gaps: Gaps) -> dict[str, float]:
    again, lost, replicated = list[float](), list[float](), list[float]()

    async def kill() -> tuple[str, float]:
        """Kill the prober that holds the segment. Returns which, and when."""
        holder = running.last(MEMBERS, "segment_loaded")
        return holder, await running.kill(holder)

    for _ in range(KILLS):
        holder, killed = await kill()
        await running.start(holder, "prober")
        again.append(await gaps.after(killed, BETWEEN))
    await running.start("other", "prober", prober_group="b")
    await running.loaded(1, ["other"])
    for _ in range(KILLS):
        loaded = sum(running.count(each, "segment_loaded") for each in MEMBERS)
        holder, killed = await kill()
        replicated.append(await gaps.after(killed, BETWEEN))
        await running.start(holder, "prober")
        await running.loaded(loaded + 1, MEMBERS)  # by either of them
    await running.stop("other")
    for _ in range(LOST):
        _, killed = await kill()
        lost.append(await gaps.after(killed, BETWEEN))
    return {
        **_shown("started_again", again), **_shown("replicated", replicated), **_shown("taken_over", lost)
    }  # fmt: skip


def _shown(name: str, seconds: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_p50_seconds": round(statistics.median(seconds), 2),
        f"{name}_longest_seconds": round(max(seconds), 2),
    }


async def _run(broker: LocalBroker, directory: Path, sizes: Sequence[int]) -> dict[str, Any]:
    found = dict[str, Any]()
    for anchors in sizes:
        found[f"{anchors:,} anchors"] = await _sized(broker, directory, anchors)
        sys.stderr.write(f"{anchors}: {found[f'{anchors:,} anchors']}\n")
    longest = max(each["replicated_longest_seconds"] for each in found.values())
    return {"replicated_longest_seconds": longest, **found}


def run(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """By anchors of the segment: the longest pauses of decisions after a prober was killed."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return asyncio.run(_run(broker, Path(directory), sizes))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run([int(each) for each in sys.argv[1:]] or SIZES), indent=2) + "\n")
