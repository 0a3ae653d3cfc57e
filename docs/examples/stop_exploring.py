"""Say where a crawler finds little but copies: `python stop_exploring.py`, or `python stop_exploring.py 500`
to end after 500 verdicts.

A host is not worth exploring while nearly all of its last new URLs are copies, and a cluster once it has so
many URLs: a calendar, a session id in the URL, a mirror.
"""

import asyncio
import json
import os
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from urllib.parse import urlsplit

from aiokafka import AIOKafkaConsumer

SERVERS = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("NEARDUP_NAMESPACE", "neardup") + ".verdicts"
LATEST = 100
"""How many new URLs of a host are looked at."""
COPIES = 95
"""How many of them may be copies; half as many for a host to be explored again."""
MEMBERS = 1000
"""How many copies a cluster may have."""


class Explored:
    """What new URLs turned out to be, by host and cluster."""

    def __init__(self) -> None:
        self.latest: dict[str, deque[bool]] = defaultdict(lambda: deque(maxlen=LATEST))
        self.members: Counter[str] = Counter()
        self.stopped: set[str] = set()

    def read(self, verdict: dict) -> Iterator[str]:
        """Take a verdict, and yield what to do."""
        if verdict["change"] != "new":
            return  # a URL that was explored before
        host, is_copy = urlsplit(verdict["url"]).hostname or "", verdict["verdict"] == "duplicate"
        latest = self.latest[host]
        latest.append(is_copy)
        if len(latest) == LATEST and sum(latest) >= COPIES and host not in self.stopped:
            self.stopped.add(host)
            yield f"stop at {host}: {sum(latest)} of its last {LATEST} new URLs are copies"
        elif sum(latest) < COPIES / 2 and host in self.stopped:
            self.stopped.remove(host)
            yield f"go on at {host}"
        if is_copy:
            self.members[verdict["cluster"]] += 1
            if self.members[verdict["cluster"]] == MEMBERS:
                original = verdict["duplicate_of"]["url"]
                yield f"stop at copies of {original}, such as {verdict['url']}: there are {MEMBERS}"


async def main(limit: int | None) -> None:
    explored, read = Explored(), 0
    async with AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=SERVERS,
        group_id=None,
        isolation_level="read_committed",  # without it, verdicts of aborted transactions are seen too
        auto_offset_reset="earliest",
    ) as verdicts:
        async for record in verdicts:
            for line in explored.read(json.loads(record.value)):
                print(line, flush=True)
            read += 1
            if read == limit:
                return


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
