"""Which segments a judge can take back."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection

from stream.errors import SettingsError
from stream.kafka.announced_segments import AnnouncedSegments
from stream.kafka.outage import retry_until_answered
from stream.messages.journal import Genesis
from stream.settings import Settings


async def check_take_back(settings: Settings, genesis: Genesis, first: int | None) -> None:
    """Raise SettingsError unless tables can be taken back from the anchor `first` on, so that whole segments
    stay dropped, and probers are asked for these. Called before tables are built, which may take hours."""
    if not first:
        return
    if not settings.prober_replicas:
        raise SettingsError(
            f"--take-back {first}: leaves the judge without tables of the anchors before, and with"
            " prober_replicas=0 it asks no prober about them: take back `all`, or set prober_replicas"
        )
    async with AnnouncedSegments(settings, genesis) as topic:
        announced = await retry_until_answered(f"topic {topic.topic}", topic.read)
    refuse_within_segment(first, announced, topic.topic)


def refuse_within_segment(first: int, announced: Collection[int], topic: str) -> None:
    """Raise SettingsError unless a segment begins with the anchor `first`. `announced` are the first anchors
    of those that `topic` has."""
    firsts = sorted(announced)
    if first in firsts:
        return
    place = bisect(firsts, first)
    near = " and ".join(map(str, firsts[max(0, place - 1) : place + 1]))
    which = f"the next ones begin with {near}; " if near else ""
    raise SettingsError(
        f"--take-back {first}: topic {topic} announces no segment that begins with this anchor;"
        f" {which}`all` takes back all"
    )
