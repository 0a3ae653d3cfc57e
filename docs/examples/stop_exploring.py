"""Say where a crawler finds little but copies: `python stop_exploring.py`, or `python stop_exploring.py 500`
to end after 500 verdicts.

URLs of one pattern are not worth exploring while nearly all of the last new ones are copies, and a cluster
once it has so many URLs: a calendar, a session id in the URL, a mirror. A pattern is host, path and names of
parameters, with digits as `#`: a host with a calendar may have good articles beside it.
"""

import asyncio
import json
import os
import re
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from aiokafka import AIOKafkaConsumer

SERVERS = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("NEARDUP_NAMESPACE", "neardup") + ".verdicts"
LATEST = 100
"""How many new URLs of a pattern are looked at."""
COPIES = 95
"""How many of them may be copies; half as many for a pattern to be explored again."""
MEMBERS = 1000
"""How many copies a cluster may have."""


def pattern_of(url: str) -> str:
    """Return the pattern of a URL: `cal.example/day/#?view` for `https://cal.example/day/7?view=3`."""
    parts = urlsplit(url)
    names = ",".join(sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}))
    path = re.sub(r"\d+", "#", parts.path)
    return f"{parts.hostname or ''}{path}{'?' if names else ''}{names}"


class Explored:
    """What new URLs turned out to be, by pattern and cluster."""

    def __init__(self) -> None:
        self.latest: dict[str, deque[bool]] = defaultdict(lambda: deque(maxlen=LATEST))
        self.members: Counter[str] = Counter()
        self.stopped: set[str] = set()

    def read(self, verdict: dict) -> Iterator[str]:
        """Take a verdict, and yield what to do."""
        if verdict["change"] != "new":
            return  # a URL that was explored before
        pattern, is_copy = pattern_of(verdict["url"]), verdict["verdict"] == "duplicate"
        latest = self.latest[pattern]
        latest.append(is_copy)
        if len(latest) == LATEST and sum(latest) >= COPIES and pattern not in self.stopped:
            self.stopped.add(pattern)
            yield f"stop at {pattern}: {sum(latest)} of its last {LATEST} new URLs are copies"
        elif sum(latest) < COPIES / 2 and pattern in self.stopped:
            self.stopped.remove(pattern)
            yield f"go on at {pattern}"
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
