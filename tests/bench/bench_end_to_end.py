"""Published pages -> verdicts, all processes and the broker on this machine, against the same job in Faust.

    python -m tests.bench.bench_end_to_end [pages] [directory with web-html.jsonl.xz]

Two kinds of input: text pages of 5 KB, of which 30 % are edited copies, and HTML pages.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from resiliparse.extract.html2text import extract_plain_text

from stream.brokers.broker import start_broker
from stream.errors import NeardupError
from tests.bench.bench_worker import pages
from tests.bench.pipeline import faust_job, ours, settings_for, through

TEXT_BYTES = 5000
COPIES = 0.3
WARM = 64
WORKERS = 2
ROUNDS = 3


def texts(count: int) -> list[bytes]:
    """Page messages with a text of 5 KB; copies differ from an earlier page by three words."""
    rng = random.Random(9)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(2, 9))) for _ in range(20_000)]
    shares = [1 / (rank + 3) for rank in range(len(words))]
    made: list[list[str]] = []
    for _ in range(count):
        if made and rng.random() < COPIES:
            text = list(rng.choice(made))
            for _ in range(3):
                text[rng.randrange(len(text))] = rng.choice(words)
        else:
            text = rng.choices(words, shares, k=TEXT_BYTES // 6)
        made.append(text)
    return [
        json.dumps({"url": f"http://bench.example/{i}", "text": " ".join(text)}).encode()
        for i, text in enumerate(made)
    ]


def _workable(values: list[bytes]) -> list[bytes]:
    """Pages that the peer can sign: it overflows on long texts, and Faust would lose those pages."""
    try:
        from simhash import Simhash
    except ImportError:
        raise NeardupError("the peer is missing: pip install 'neardup-stream[bench]'") from None

    def signs(value: bytes) -> bool:
        try:
            Simhash(extract_plain_text(json.loads(value)["html"], main_content=True))
        except OverflowError:
            return False
        return True

    bodies: dict[str, bool] = {}
    return [v for v in values if bodies.setdefault(json.loads(v)["html"], signs(v))]


async def _run(servers: str, directory: Path, inputs: dict[str, list[bytes]]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for kind, values in inputs.items():
        mine, theirs = [], []
        for _ in range(ROUNDS):
            async with ours(settings_for(servers, directory, worker_processes=1), WORKERS) as settings:
                rate, verdicts = await through(settings, values[:WARM], values[WARM:])
                mine.append(rate)
            async with faust_job(settings_for(servers, directory)) as settings:
                rate, plain = await through(settings, values[:WARM], values[WARM:])
                theirs.append(rate)
        report[kind] = {
            "pages": len(values),
            "megabytes": round(sum(map(len, values)) / 1e6, 1),
            "pages_per_second": round(statistics.median(mine)),
            "faust_pages_per_second": round(statistics.median(theirs)),
            "ratio": round(statistics.median(a / b for a, b in zip(mine, theirs, strict=True)), 2),
            "duplicates": verdicts["duplicate"],
            "faust_duplicates": plain["duplicate"],
        }
    return report


def run(count: int = 4000, data: Path | None = None) -> dict[str, Any]:
    """`pages_per_second` by kind of page, ours and the plain Faust job's; medians of rounds, interleaved.

    Raises NeardupError without the peers of requirements-bench.lock.
    """
    inputs = {"text": texts(count), "html": _workable(pages(count // 4, data))}
    with start_broker() as broker, tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        return asyncio.run(_run(broker.bootstrap_servers, Path(directory), inputs))


if __name__ == "__main__":
    found = run(
        int(sys.argv[1]) if len(sys.argv) > 1 else 4000, Path(sys.argv[2]) if len(sys.argv) > 2 else None
    )
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
