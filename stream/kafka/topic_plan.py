"""Which topics a deployment has, how they must be, and what is wrong with those it found (rule 14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from stream.kafka.broker_metadata import Topic
from stream.kafka.names import Names
from stream.settings import MIB, Settings

Role = Literal["worker", "judge", "publish", "follow"]
"""`follow` reads verdicts: tail, export, dashboard."""

JOURNAL_BYTES: Final = 1 * MIB
"""Largest journal record; a worker's batch of 512 rows and 256 KiB of messages stays far below."""
DECISIONS_BYTES: Final = 4 * MIB
"""Largest decision record: 65 536 rows, about 40 bytes each at worst."""
VERDICTS_BYTES: Final = 1 * MIB
"""Largest batch of verdicts or cluster changes."""
PAGES_BYTES: Final = 32 * MIB
"""Largest page message: 16 MiB of page, as base64 or escaped in JSON. A dead letter carries it unchanged."""
BATCH_MARGIN: Final = 64 << 10
"""`max.message.bytes` counts a whole record batch: its header, the key and record headers too."""

REPLICAS: Final = 3
IN_SYNC: Final = 2


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic as it must be."""

    name: str
    partitions: int | None
    """None: as many as the settings say, or as there are."""
    largest: int
    """Bytes of the largest record or batch that we send (rule 10)."""
    config: dict[str, str]
    """What must hold exactly."""
    ours: bool = True
    """Whether we write it, so that what it lacks can make verdicts wrong; pages may be a crawler's topic."""
    transactional: bool = True
    """Whether its logs hold transaction markers, which take offsets too."""

    def create_config(self, *, dev: bool) -> dict[str, str]:
        """Everything to say when the topic is created."""
        return {
            **self.config,
            "max.message.bytes": str(self.largest + BATCH_MARGIN),
            "min.insync.replicas": "1" if dev else str(IN_SYNC),
        }

    def problems(self, topic: Topic, configs: dict[str, str], *, dev: bool) -> Iterator[str]:
        """What is not as it must be, each with what it should be."""
        if self.partitions is not None and len(topic.partitions) != self.partitions:
            yield f"{self.name}: has {len(topic.partitions)} partitions, must have {self.partitions}"
        if not self.ours:
            return
        for option, wanted in self.config.items():
            if configs.get(option) != wanted:
                yield f"{self.name}: {option} is {configs.get(option)}, must be {wanted}"
        largest = int(configs.get("max.message.bytes", "0"))
        if largest < self.largest + BATCH_MARGIN:
            wanted = f"at least {self.largest + BATCH_MARGIN}"
            yield f"{self.name}: max.message.bytes is {largest}, must be {wanted}"
        if dev:
            return
        replicas = min((partition.replicas for partition in topic.partitions.values()), default=0)
        if replicas < REPLICAS:
            yield f"{self.name}: replication factor is {replicas}, must be at least {REPLICAS} (or --dev)"
        in_sync = int(configs.get("min.insync.replicas", "1"))
        if in_sync < IN_SYNC:
            yield f"{self.name}: min.insync.replicas is {in_sync}, must be at least {IN_SYNC} (or --dev)"


_ACKNOWLEDGED: Final = {"unclean.leader.election.enable": "false"}
"""What was acknowledged must stay."""
_FOR_EVER: Final = {
    **_ACKNOWLEDGED,
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # Log time decides expiry and `decided_at`; a producer's clock must not (rule 15).
    "message.timestamp.type": "LogAppendTime",
}
_COMPACTED: Final = {**_ACKNOWLEDGED, "cleanup.policy": "compact"}


def plan(settings: Settings, role: Role | None = None) -> list[TopicPlan]:
    """The topics that a role reads or writes; all of them without one."""
    names = Names(settings.namespace)
    topics = {
        "pages": TopicPlan(names.pages, None, PAGES_BYTES, {}, ours=False, transactional=False),
        "journal": TopicPlan(names.journal, 1, JOURNAL_BYTES, _FOR_EVER),
        "decisions": TopicPlan(names.decisions, 1, DECISIONS_BYTES, _FOR_EVER),
        "verdicts": TopicPlan(names.verdicts, None, VERDICTS_BYTES, _ACKNOWLEDGED),
        "clusters": TopicPlan(names.clusters, 1, VERDICTS_BYTES, _COMPACTED),
        "rejected": TopicPlan(names.rejected, None, PAGES_BYTES, _ACKNOWLEDGED, transactional=False),
    }
    routed = [f"verdicts.{verdict}" for verdict in settings.routes]
    for name, verdict in zip(routed, settings.routes, strict=True):
        topics[name] = TopicPlan(names.routed(verdict), None, VERDICTS_BYTES, _ACKNOWLEDGED)
    wanted: dict[Role | None, tuple[str, ...]] = {
        None: tuple(topics),
        "worker": ("pages", "journal", "rejected"),
        "judge": ("journal", "decisions", "verdicts", "clusters", *routed),
        "publish": ("pages",),
        "follow": ("verdicts",),
    }
    return [topics[name] for name in wanted[role]]
