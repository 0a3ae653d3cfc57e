"""A judge with two probers on pages that share a template, beside one on ordinary pages.

    python -m tests.bench.bench_probers_flood [case ...]

A page has hundreds of candidates of its template, more than a judge selects, so that the lists of probers are
cut. A list that is cut goes bad as its anchors die: when pages come again from the same URLs, changed. They
come in the same order, so that the oldest die first, which are in all lists. Each case is judged by one judge
alone as well.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from stream.brokers.broker import start_broker
from stream.brokers.local_broker import LocalBroker
from stream.judge.batch import Entry
from tests.bench.bench_probers_stream import dropped
from tests.bench.hostile import TEMPLATES, ordinary, templates
from tests.bench.journal import NEAR, ROWS
from tests.bench.probed import deployed

PROBERS: Final = 2
ANCHORS: Final = 16_384
"""Anchors of all segments."""
WARM: Final = 6
MEASURED: Final = 24
"""Records that are judged to measure the speed, after so many that are not measured."""


def _ordinary() -> list[Entry]:
    return ordinary(round(ANCHORS / (1 - NEAR) * 1.05 / ROWS + 1 + WARM + MEASURED) * ROWS)


def _templates(number: int, urls: int) -> list[Entry]:
    """Records of pages of so many templates in turn, of so many URLs in turn."""
    return templates(ANCHORS + (WARM + MEASURED) * ROWS, number, urls)


CASES: Final[dict[str, Callable[[], list[Entry]]]] = {
    "ordinary": _ordinary,
    "one template": lambda: _templates(1, 1 << 40),
    "one template, pages that come again": lambda: _templates(1, ANCHORS),
    "many templates, pages that come again": lambda: _templates(TEMPLATES, ANCHORS),
}


async def _speed(broker: LocalBroker, directory: Path, records: Sequence[bytes], probers: int) -> float:
    flags = {"segment_anchors": ANCHORS // PROBERS, "prober_replicas": 1} if probers else {}
    async with deployed(broker, directory, **flags) as running:
        await running.start("judge", "judge")
        names = [f"prober-{number}" for number in range(probers)]
        for each in names:
            await running.start(each, "prober")
        fill, rest = records[: -WARM - MEASURED], records[-WARM - MEASURED :]
        await running.judged(await running.append(fill))
        await running.export(probers)
        await dropped(running, rest[:WARM], probers, names)
        spent = await running.spent(rest[WARM:])
        return MEASURED * ROWS / spent.seconds


async def _run(broker: LocalBroker, directory: Path, cases: Sequence[str]) -> dict[str, Any]:
    found, first = dict[str, Any](), dict[str, float]()
    for name in cases:
        records = [each.rows.encode() for each in CASES[name]()]
        found[name] = dict[str, float]()
        for probers, kind in ((PROBERS, ""), (0, "alone_")):
            speed = await _speed(broker, directory, records, probers)
            found[name][f"{kind}rows_per_second"] = round(speed)
            found[name][f"{kind}ratio"] = round(speed / first.setdefault(kind, speed), 3)
        sys.stderr.write(f"{name}: {found[name]}\n")
    return found


def run(cases: Sequence[str] = tuple(CASES)) -> dict[str, Any]:
    """By case: rows a second, and what that is to the first case, with probers and of a judge alone.
    `worst_ratio` is the least of those with probers."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        found = asyncio.run(_run(broker, Path(directory), cases))
    return {"worst_ratio": min(each["ratio"] for each in found.values()), **found}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1:] or tuple(CASES)), indent=2) + "\n")
