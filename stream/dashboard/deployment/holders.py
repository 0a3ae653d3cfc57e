"""Who holds which segments of anchors: what is announced, what Kafka assigns to the members of each group of
probers, and what these have answered."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from prometheus_client import Gauge

from stream.dashboard.answers import (
    Holding,
    HoldingState,
    ProberGroup,
    ProberMember,
    SegmentFigures,
    Segments,
    SegmentsState,
)
from stream.dashboard.deployment.groups import UNKNOWN, ConsumerGroup, Member, describe_group
from stream.dashboard.deployment.last_answers import MOST_GROUPS, LastAnswer, LastAnswers
from stream.errors import NeardupError
from stream.judge.segments.answer import Segment
from stream.judge.segments.answer_records import DIGEST_BYTES
from stream.kafka import clients
from stream.kafka.announced_segments import AnnouncedSegments
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import ANSWERS_SECONDS
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.settings import NAME, Settings

LOOK_SECONDS: Final = 10.0
"""Interval at which all is looked at. It lists all groups of the Kafka cluster."""
ANSWER_SECONDS: Final = 30.0
"""Time-out of a look."""
DIGEST_DIGITS: Final = 12
_REBALANCES: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_GROUP: Final = re.compile(rf"(-{NAME})?")

_Range = tuple[int | None, int | None]


class _Group(NamedTuple):
    """A group of probers at one time."""

    name: str
    """Of its setting `prober_group`, empty for the one without."""
    group: str
    """Consumer group."""
    state: str
    members: tuple[Member, ...]
    by_partition: dict[int, Member]

    @classmethod
    def of(cls, name: str, group: str, described: ConsumerGroup) -> _Group:
        by_partition = {number: each for each in described.members for number in each.partitions}
        return cls(name, group, described.state, described.members, by_partition)

    def state_of(self, member: Member | None, last: LastAnswer | None) -> HoldingState:
        """The state of a segment that the group assigns to a member, with the last answer for its file."""
        if self.state == UNKNOWN:
            return "unknown"
        if member is None:
            return "rebalancing" if self.state in _REBALANCES else "uncovered"
        return "answers" if last is not None and last.holder == member.client else "silent"


class Holders:
    """Who holds which segments. `look_on` keeps it up to date."""

    def __init__(self, settings: Settings, genesis: Genesis, uncovered: Gauge) -> None:
        """`uncovered` is set to the number of segments that have no holder, by consumer group."""
        self._settings, self._genesis, self._uncovered = settings, genesis, uncovered
        self._names = TopicNames(settings.namespace)
        self._answers = LastAnswers(self._names.candidates, genesis.journal)
        self._announced: Sequence[SegmentRecord] | None = None
        """By first anchor, ascending; None before the first look."""
        self._groups: list[_Group] = []
        self._error: str | None = None

    async def look_on(self) -> None:
        """Look until cancelled. Raises KafkaError and BrokerError, and StateError and RecordError for what
        does not belong in the topic of segments."""
        settings = self._settings
        admin, consumer = clients.admin(settings), clients.reader(settings, auto_offset_reset="earliest")
        try:
            async with (
                clients.open_client(settings, admin),
                clients.open_client(settings, consumer),
                AnnouncedSegments(settings, self._genesis) as announced,
            ):
                while True:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await self._look(admin, consumer, announced)
                    self._error = None
                    await asyncio.sleep(LOOK_SECONDS)
        except clients.DENIED:
            raise
        except (KafkaError, NeardupError, OSError) as error:
            self._error = str(error) or repr(error)
            raise

    async def _look(
        self, admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer, announced: AnnouncedSegments
    ) -> None:
        segments = await announced.read()
        ordered = [segments[first] for first in sorted(segments)]
        if ordered:
            of_partitions = [(each.partition, Segment(each.first, each.end)) for each in ordered]
            await self._answers.look(consumer, of_partitions)
        groups = []
        for name in await self._group_names(admin):
            group = self._names.probers(name)
            groups.append(_Group.of(name, group, await describe_group(admin, group, self._names.segments)))
        self._announced, self._groups = ordered, groups
        self._uncovered.clear()
        for each in groups:
            if (count := self._count_uncovered(each)) is not None:
                self._uncovered.labels(each.group).set(count)

    async def _group_names(self, admin: AIOKafkaAdminClient) -> list[str]:
        """The names of groups of probers: of those that Kafka lists, and of those whose answers are kept.
        Kafka lists those that may be described, and forgets one without members within minutes."""
        prefix = self._names.probers()
        listed = {
            group.removeprefix(prefix)
            for group, *_ in await admin.list_consumer_groups()
            if group.startswith(prefix)
        }
        names = {each.removeprefix("-") for each in listed if _GROUP.fullmatch(each)}
        names.update(self._answers.groups(time.time() - ANSWERS_SECONDS))
        return sorted(names)[:MOST_GROUPS]

    @property
    def _state(self) -> SegmentsState:
        if not self._settings.segment_anchors:
            return "none"
        return "reading" if self._announced is None else "following"

    def segments(self, some: slice, undecided: _Range, dropped: int | None) -> Segments:
        """Return some of the segments, and all groups. `undecided` are the journal records [start, end) that
        are not decided, and `dropped` how many segments the leading judge has no tables of, if these are
        known."""
        announced = self._announced or ()
        chosen = announced[some]
        return Segments(
            state=self._state,
            error=self._error,
            groups=[self._group(each, undecided) for each in self._groups],
            segments=[
                SegmentFigures(
                    first=each.first,
                    end=each.end,
                    size=each.size,
                    digest=each.digest[:DIGEST_DIGITS],
                    partition=each.partition,
                    exported_at=each.exported_at,
                    # A judge drops tables in the order of anchors.
                    tables=None if dropped is None else "dropped" if place < dropped else "held",
                    holdings=[self._holding(of, each, undecided) for of in self._groups],
                )
                for place, each in enumerate(chosen, some.start)
            ],
            total=len(announced),
            anchors=sum(each.end - each.first for each in announced),
            bytes=sum(each.size for each in announced),
            dropped=dropped,
            next=some.stop if some.stop < len(announced) else None,
        )

    def _last(self, group: _Group, segment: SegmentRecord) -> LastAnswer | None:
        """The last answer of a group for the announced file of a segment."""
        last = self._answers.of(group.name, Segment(segment.first, segment.end))
        is_of_file = last is not None and last.digest == bytes.fromhex(segment.digest)[:DIGEST_BYTES]
        return last if is_of_file else None

    def _holding(self, group: _Group, segment: SegmentRecord, undecided: _Range) -> Holding:
        member, last = group.by_partition.get(segment.partition), self._last(group, segment)
        return Holding(
            group=group.group,
            state=group.state_of(member, last),
            holder=member.client if member else None,
            address=member.address if member else None,
            answered=last.end if last else None,
            answered_by=last.holder if last else None,
            answered_at=last.at if last else None,
            behind=_behind(last.end if last else None, undecided),
        )

    def _group(self, group: _Group, undecided: _Range) -> ProberGroup:
        announced = self._announced or ()
        own = Counter(group.by_partition[each.partition].id for each in self._covered(group))
        ends = [last.end if (last := self._last(group, each)) else None for each in announced]
        seen = [each for each in ends if each is not None]
        answered = min(seen) if seen and len(seen) == len(ends) else None
        return ProberGroup(
            group=group.group,
            state=group.state,
            members=[
                ProberMember(each.client, each.address, own[each.id])
                for each in sorted(group.members, key=lambda each: (each.client, each.id))
            ],
            uncovered=self._count_uncovered(group),
            answered=answered,
            behind=_behind(answered, undecided),
        )

    def _covered(self, group: _Group) -> Iterator[SegmentRecord]:
        """The segments that are assigned to members of a group."""
        return (each for each in self._announced or () if each.partition in group.by_partition)

    def _count_uncovered(self, group: _Group) -> int | None:
        if group.state == UNKNOWN:
            return None
        return len(self._announced or ()) - sum(1 for _ in self._covered(group))


def _behind(answered: int | None, undecided: _Range) -> int | None:
    """Records that are neither decided nor answered. Probers skip what a judge has decided by itself."""
    start, end = undecided
    if answered is None or end is None:
        return None
    return max(0, end - max(answered, start or 0))
