"""A near-duplicate stream as one would write it in Faust: one agent, one table, PyPI `simhash`.

    python -m tests.bench.baselines.faust_job BOOTSTRAP_SERVERS NAMESPACE DIRECTORY

Pages in NAMESPACE.pages, verdicts out to NAMESPACE.verdicts. Distance at most 3, looked for in four tables of
16 bits, which find every such pair (Manku, Jain and Das Sarma). One process sees all partitions, so it misses
nothing; what it lacks is exactly-once, verification, and a table larger than memory.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import faust
from resiliparse.extract.html2text import extract_plain_text
from simhash import Simhash

DISTANCE = 3
BLOCKS = [(block, 16 * block) for block in range(4)]


def job(servers: str, namespace: str, directory: str) -> Any:
    """The app."""
    app = faust.App(
        f"{namespace}.faust",
        broker=f"kafka://{servers}",
        store="memory://",
        datadir=directory,
        web_enabled=False,
        topic_disable_leader=True,
        topic_replication_factor=1,
        topic_partitions=8,
        consumer_auto_offset_reset="earliest",
        producer_linger=0.005,
        stream_buffer_maxsize=4096,
        worker_redirect_stdouts=False,
    )
    pages = app.topic(f"{namespace}.pages", value_type=bytes, value_serializer="raw")
    verdicts = app.topic(f"{namespace}.verdicts", value_type=bytes, value_serializer="raw")
    anchors = app.GlobalTable("anchors", default=list)

    @app.agent(pages)
    async def judge(stream: Any) -> None:
        async for event in stream.events():
            page = json.loads(event.value)
            text = page["text"] if "text" in page else extract_plain_text(page["html"], main_content=True)
            fingerprint = Simhash(text).value
            keys = [f"{block}.{fingerprint >> shift & 0xFFFF}" for block, shift in BLOCKS]
            near = (
                (url, other)
                for key in keys
                for url, other in anchors[key]
                if (other ^ fingerprint).bit_count() <= DISTANCE
            )
            url, _ = next(near, (None, None))
            if url is None:
                for key in keys:
                    anchors[key] = [*anchors[key], (page["url"], fingerprint)]
            verdict = {
                "url": page["url"],
                "verdict": "duplicate" if url else "unique",
                "duplicate_of": url,
                "fingerprint": f"{fingerprint:016x}",
            }
            await verdicts.send(key=event.key, value=json.dumps(verdict).encode())

    return app


if __name__ == "__main__":
    worker = faust.Worker(job(*sys.argv[1:4]), loglevel="warning")
    worker.execute_from_commandline()
