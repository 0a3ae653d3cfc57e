"""What probers cost on a broker: processor time, bytes and latency, without probers and with some.

    python -m tests.bench.bench_probers_stream [anchors]

The same made journal is judged in deployments with 0, 1, 2 and 4 probers, each with a segment of its own,
which together have all anchors of before; then by one prober with four segments. All processes and the broker
are on this machine. Latency is from appending a record to the journal to the decision about it, at a rate far
below what the machine can do.

What ten machines need is computed from these figures, and not measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream.brokers.broker import start_broker
from stream.brokers.local_broker import LocalBroker
from stream.fingerprint.scheme import Scheme
from tests.bench.journal import NEAR, ROWS
from tests.bench.made_rows import MadeRows
from tests.bench.probed import ProbedDeployment, deployed

PROBERS: Final = (0, 1, 2, 4)
WARM: Final = 32
MEASURED: Final = 256
"""Records that are judged to measure processor time, after so many that are not measured."""
SMALL_ROWS: Final = 40
"""Rows of a record that measures latency, as workers append at a moderate rate."""
INTERVAL: Final = 0.02
"""Seconds between two of these: 2,000 pages a second."""
SECONDS: Final = 6.0
"""How long they are appended."""
PAUSE: Final = 0.1
"""Seconds between two records of which probers answer about the last one."""
MACHINES: Final = 10
ANCHORS: Final = 8e9
PAGES_A_SECOND: Final = 100_000
SEGMENT_ANCHORS: Final = 1 << 24
"""Of the deployment for which figures are computed."""


class Journals:
    """The records that every deployment judges."""

    def __init__(self, anchors: int) -> None:
        made = MadeRows(Scheme())
        fill = -(-int(anchors / (1 - NEAR) * 1.02) // ROWS)
        records = [made.record(number).encode() for number in range(fill + WARM + 2 * MEASURED)]
        self.fill, self.warm = records[:fill], records[fill : fill + WARM]
        self.measured, self.again = records[fill + WARM :][:MEASURED], records[-MEASURED:]
        first = -(-len(records) * ROWS // SMALL_ROWS)
        small = MadeRows(Scheme(), rows=SMALL_ROWS, cluster="latency", first=first)
        count = int(SECONDS / INTERVAL)
        self.small = [small.record(first + number).encode() for number in range(count + count // 4)]


async def _side(
    broker: LocalBroker, directory: Path, journals: Journals, anchors: int, probers: int
) -> dict[str, Any]:
    """Figures of a deployment with so many probers."""
    flags = {"segment_anchors": anchors // probers, "prober_replicas": 1} if probers else {}
    async with deployed(broker, directory, **flags) as running:
        await running.start("judge", "judge")
        names = [f"prober-{number}" for number in range(probers)]
        for each in names:
            await running.start(each, "prober")
        await running.judged(await running.append(journals.fill))
        await running.export(probers)
        await dropped(running, journals.warm, probers, names)
        found = {f"{probers}": await _measured(running, journals.measured, probers)}
        found[f"{probers}"] |= await _latency(running, journals.small)
        if probers == max(PROBERS):
            for each in names[1:]:
                await running.stop(each)
            await running.judged(await running.append(journals.again[:1]))
            found[f"1 with {probers} segments"] = await _measured(running, journals.again[1:], 1)
        return found


async def dropped(
    running: ProbedDeployment, records: Sequence[bytes], segments: int, probers: Sequence[str]
) -> None:
    """Wait until probers have loaded so many segments, have records judged until the judge has dropped these,
    and then the rest."""
    await running.loaded(segments, probers)
    left = list(records)
    while running.count("judge", "dropped_segment") < segments and left:
        await running.judged(await running.append([left.pop(0)]))
        await asyncio.sleep(PAUSE)
    await running.logged("judge", "dropped_segment", segments)
    await running.judged(await running.append(left))


async def _measured(running: ProbedDeployment, records: Sequence[bytes], probers: int) -> dict[str, float]:
    names = running.names
    logs = {each: getattr(names, each) for each in ("journal", "decisions", "candidates")}
    before = {name: running.topic_bytes(topic) for name, topic in logs.items()}
    spent, rows = await running.spent(records), len(records) * ROWS
    size = {name: (running.topic_bytes(topic) - before[name]) / rows for name, topic in logs.items()}
    # Each prober reads journal and decisions; the judge the journal, and all answers.
    fetched = size["journal"] + size["candidates"] + probers * (size["journal"] + size["decisions"])
    return {
        "rows_per_second": round(rows / spent.seconds),
        "judge_us_a_row": round(1e6 * spent.judge / rows, 2),
        "prober_us_a_row": round(1e6 * spent.probers / rows / max(probers, 1), 2),
        "broker_us_a_row": round(1e6 * spent.broker / rows, 2),
        "journal_bytes_a_row": round(size["journal"], 1),
        "decisions_bytes_a_row": round(size["decisions"], 1),
        "candidates_bytes_a_row": round(size["candidates"], 2),
        "fetched_bytes_a_row": round(fetched, 1),
    }


async def _latency(running: ProbedDeployment, records: Sequence[bytes]) -> dict[str, float]:
    warm = len(records) // 5
    await running.latencies(records[:warm], INTERVAL)
    seconds = await running.latencies(records[warm:], INTERVAL)
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {"p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}


def computed(found: dict[str, Any]) -> dict[str, float]:
    """What MACHINES need for ANCHORS and PAGES_A_SECOND, by the figures of this run. A prober's time is taken
    as a part that it spends whatever it holds and a part for each segment, and the size of answers as a line
    through those of the fewest and of the most probers."""
    few, many = (found[f"{count}"] for count in (PROBERS[1], PROBERS[-1]))
    all_held = found[f"1 with {PROBERS[-1]} segments"]["prober_us_a_row"]
    one = many["prober_us_a_row"]
    each = max(0.0, (all_held - one) / (PROBERS[-1] - 1))
    growth = many["candidates_bytes_a_row"] - few["candidates_bytes_a_row"]
    growth /= max(1, PROBERS[-1] - PROBERS[1])
    answers = few["candidates_bytes_a_row"] + max(0.0, growth) * (MACHINES - 1)
    own = few["journal_bytes_a_row"] + few["decisions_bytes_a_row"]
    million = PAGES_A_SECOND / 1e6
    return {
        "machines": MACHINES,
        "anchors": ANCHORS,
        "pages_a_second": PAGES_A_SECOND,
        "fetched_mb_a_second": round(million * (few["journal_bytes_a_row"] + answers + MACHINES * own)),
        "of_which_one_prober": round(million * own),
        "of_which_the_judge": round(million * (few["journal_bytes_a_row"] + answers)),
        "candidates_bytes_a_row": round(answers, 1),
        "prober_us_a_row_for_any": round(one - each, 2),
        "and_for_each_segment": round(each, 2),
        "cores_a_prober_with_one_segment": round(million * one, 1),
        "cores_a_prober_with_segments_of_16_million": round(
            million * (one - each + each * ANCHORS / MACHINES / SEGMENT_ANCHORS), 1
        ),
        "judge_cores": round(million * many["judge_us_a_row"], 1),
    }


async def _run(broker: LocalBroker, directory: Path, anchors: int) -> dict[str, Any]:
    journals, found = Journals(anchors), dict[str, Any]()
    for probers in PROBERS:
        found |= await _side(broker, directory, journals, anchors, probers)
        sys.stderr.write(f"{probers} probers: {found[f'{probers}']}\n")
    without, with_probers = found["0"]["p50_ms"], found["2"]["p50_ms"]
    return {
        "added_p50_ms": round(with_probers - without, 1),
        "most_prober_us_a_row": max(found[f"{count}"]["prober_us_a_row"] for count in PROBERS[1:]),
        "most_candidates_bytes_a_row": max(each["candidates_bytes_a_row"] for each in found.values()),
        "measured, by number of probers": found,
        "computed, not measured": computed(found),
    }


def run(anchors: int = 1 << 18) -> dict[str, Any]:
    """By number of probers: processor time a row, bytes a row, and latency; `added_p50_ms` is that of two
    probers, and the largest of the others. Then what ten machines would need."""
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return asyncio.run(_run(broker, Path(directory), anchors))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*map(int, sys.argv[1:])), indent=2) + "\n")
