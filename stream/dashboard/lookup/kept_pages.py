"""Follows the topic `best` to know which pages of clusters are kept."""

from __future__ import annotations

from typing import Final

from aiokafka import ConsumerRecord

from stream.dashboard.answers import Election, ElectionState, Kept
from stream.dashboard.lookup.reading import keep_reading
from stream.kafka import broker_metadata
from stream.kafka.names import TopicNames
from stream.kafka.topic_subscription import TopicSubscription
from stream.messages.best import ELECT_HEADER, BestRecord, decode_best
from stream.settings import Settings

MOST_CLUSTERS: Final = 100_000
"""Maximum number of clusters in memory."""
MOST_CHARACTERS: Final = 32 << 20
"""Maximum number of characters of URLs in memory."""


class KeptPages:
    """The last record of each cluster, in memory; beyond a limit of the largest clusters alone. `run` keeps
    them up to date."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = TopicNames(settings.namespace).best(settings.elector_name)
        self._records: dict[str, BestRecord] = {}
        self._characters = 0
        self._complete = True
        self._state: ElectionState = "none"
        self._elect: str | None = None

    @property
    def election(self) -> Election:
        """Whether there is an elector's topic, and by which policy pages are kept."""
        return Election(self._state, self._elect)

    def of(self, cluster: str, anchor: str | None) -> Kept | None:
        """Return the kept page of a cluster with this anchor, or None if it is not known."""
        record = self._records.get(cluster)
        if record is not None:
            best = record.best
            return Kept(
                best.url if best else None,
                best.id if best else None,
                record.because,
                record.members,
                record.decided_at,
            )
        if anchor is None or self._state != "following" or not self._complete:
            return None
        return Kept(anchor, cluster)

    async def run(self) -> None:
        """Read the topic until cancelled, starting over when it is missing or brokers are unreachable."""
        await keep_reading(self._read, f"topic {self._topic}")

    async def _read(self) -> None:
        async with broker_metadata.connect(self._settings) as client:
            if not await broker_metadata.partition_counts(client, [self._topic]):
                self._state = "none"
                return
        self._state = "reading"
        topic = TopicSubscription(
            self._settings, self._topic, from_beginning=True, report_waiting=self._note_all_read
        )
        async with topic:
            async for record in topic:
                self._add(record)

    def _note_all_read(self, _: bool) -> None:
        self._state = "following"

    def _add(self, record: ConsumerRecord) -> None:
        if record.value is None:
            return
        where = f"{record.topic} partition {record.partition} offset {record.offset}"
        last = decode_best(record.value, where)
        before = self._records.get(last.cluster)
        if before is not None and last.place < before.place:
            return  # a repetition
        self._elect = dict(record.headers).get(ELECT_HEADER, b"").decode(errors="replace") or None
        self._records[last.cluster] = last
        self._characters += _characters(last) - (_characters(before) if before else 0)
        if len(self._records) > MOST_CLUSTERS or self._characters > MOST_CHARACTERS:
            self._prune()

    def _prune(self) -> None:
        largest = sorted(self._records.values(), key=lambda each: -each.members)
        self._records, self._characters, self._complete = {}, 0, False
        for each in largest[: MOST_CLUSTERS // 2]:
            if self._characters > MOST_CHARACTERS // 2:
                break
            self._records[each.cluster] = each
            self._characters += _characters(each)


def _characters(record: BestRecord) -> int:
    return sum(len(each.url) for each in (record.best, record.was) if each)
