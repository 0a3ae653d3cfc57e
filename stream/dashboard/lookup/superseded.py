"""Follows the `clusters` topic to know which anchors were superseded."""

from __future__ import annotations

from stream.dashboard.lookup.reading import keep_reading
from stream.kafka.topic_subscription import TopicSubscription
from stream.settings import Settings


class SupersededClusters:
    """The ids of clusters whose anchor was superseded and is still known, all in memory. `run` keeps them up
    to date."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self.clusters: set[str] = set()

    async def run(self) -> None:
        """Read the topic until cancelled, starting over when brokers are unreachable."""
        await keep_reading(self._read, f"topic {self._topic}")

    async def _read(self) -> None:
        async with TopicSubscription(self._settings, self._topic, from_beginning=True) as records:
            self.clusters.clear()  # tombstones that came meanwhile may be gone
            async for record in records:
                change = self.clusters.discard if record.value is None else self.clusters.add
                change((record.key or b"").decode(errors="replace"))
