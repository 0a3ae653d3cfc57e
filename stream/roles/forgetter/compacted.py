"""Records of compacted topics that name forgotten pages.

Judge and electors put later records in place of them, with the same keys. Those before stay until Kafka
compacts the segment they are in, which the active one never is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from stream.judge.forgetting import Wanted
from stream.kafka import broker_metadata, clients
from stream.messages.best import WAS_HEADER
from stream.messages.verdict import DIGEST_HEADER
from stream.settings import Settings

_RECORDS_AT_ONCE: Final = 500


class RequestedPages:
    """The pages that requests name, as of when these were decided."""

    def __init__(
        self, wanted: Wanted, decided: Sequence[tuple[int, int]], trimmed: Mapping[int, int]
    ) -> None:
        """`decided`: (requests, start), ascending: the requests before an offset were decided before the
        journal record at `start`. `trimmed`: requests whose decisions are gone -> when they were appended, in
        milliseconds since the epoch: what was written before that names their pages."""
        self._wanted, self._trimmed = wanted, trimmed
        self._ends, self._starts = [end for end, _ in decided], [*(start for _, start in decided), 0]

    def are_named_by(self, record: Any) -> bool:
        """Whether a record of `clusters` or `best` names one of them."""
        try:
            fields = _DECODER.decode(record.value or b"{}")
            place = int((fields.by or fields.as_of).split(".")[1])
        except (msgspec.DecodeError, IndexError, ValueError):  # a tombstone, or somebody else's
            return False
        headers = dict(record.headers)
        return any(
            record.timestamp < self._trimmed[request]
            if request in self._trimmed
            else place < self._starts[bisect_right(self._ends, request)]
            for name, url in fields.pages()
            for request in self._wanted.of_page(headers.get(name, b""), url)
        )


class _Fields(msgspec.Struct):
    """What tells of which pages a record of either topic is, and after which page it was written."""

    by: str = ""
    as_of: str = ""
    url: str = ""
    best: _Page | None = None
    was: _Page | None = None

    def pages(self) -> Iterator[tuple[str, str]]:
        """Yield the header with the digest of each page, and its URL."""
        yield DIGEST_HEADER, self.best.url if self.best else self.url
        if self.was:
            yield WAS_HEADER, self.was.url


class _Page(msgspec.Struct):
    url: str = ""


async def count_forgotten(settings: Settings, topic: str, forgotten: RequestedPages) -> int:
    """Return how many records a topic still has that name forgotten pages.

    Reads the whole topic. Raises TopicError for a missing topic, TopicAuthorizationFailedError for one that
    may not be read, and BrokerError.
    """
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [topic])
    left, count = {key for key, each in bounds.items() if each.start < each.stable}, 0
    consumer = clients.reader(settings, auto_offset_reset="earliest", max_partition_fetch_bytes=8 << 20)
    async with clients.open_client(settings, consumer):
        consumer.assign(left)
        for at in left:
            consumer.seek(at, bounds[at].start)
        while left:
            fetched = await consumer.getmany(*left, timeout_ms=200, max_records=_RECORDS_AT_ONCE)
            for at, records in fetched.items():
                some = (each for each in records if each.offset < bounds[at].stable)
                count += sum(map(forgotten.are_named_by, some))
            left = {at for at in left if await consumer.position(at) < bounds[at].stable}
    return count


_DECODER: Final = msgspec.json.Decoder(_Fields)
