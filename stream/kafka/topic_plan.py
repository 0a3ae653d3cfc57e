"""The topics of a deployment, their required configuration, and checks against it (rule 14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from stream.kafka.broker_metadata import Topic
from stream.kafka.names import TopicNames
from stream.settings import MIB, Settings

Role = Literal["worker", "judge", "elector", "load", "forget", "trim", "publish", "dashboard", "follow"]
"""`follow` reads verdicts: tail, export."""

GENESIS_BYTES: Final = 64 << 10
"""Maximum size of a genesis record, of which options and names of files are the most."""
JOURNAL_BYTES: Final = 1 * MIB
"""Maximum size of a journal record. A worker's batch of 512 rows and 256 KiB stays far below."""
DECISIONS_BYTES: Final = 4 * MIB
"""Maximum size of a decision record: 65,536 rows of about 50 bytes at worst."""
REQUESTS_BYTES: Final = 64 << 10
"""Maximum size of a record batch of requests."""
VERDICTS_BYTES: Final = 1 * MIB
"""Maximum size of a record batch of verdicts, cluster changes or kept pages."""
PAGES_BYTES: Final = 32 * MIB
"""Maximum size of a page message: a page of 16 MiB in base64 or escaped in JSON. A dead letter contains the
same bytes."""
BATCH_MARGIN: Final = 64 << 10
"""Added to `max.message.bytes`, which limits a whole record batch with its header, key and record headers."""

REPLICAS: Final = 3
IN_SYNC: Final = 2


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The required form of a topic."""

    name: str
    partitions: int | None
    """Required number of partitions; None for the number in the settings, or of an existing topic."""
    largest: int
    """Maximum bytes of a record or record batch that we send (rule 10)."""
    config: dict[str, str]
    """Required configuration values."""
    owned: bool = True
    """Whether we write the topic, so that a wrong configuration could make verdicts wrong. The pages topic
    may belong to a crawler."""
    transactional: bool = True
    """Whether its logs contain transaction markers, which take offsets."""

    def create_config(self, *, dev: bool) -> dict[str, str]:
        """Return the configuration for creating the topic."""
        return {
            **self.config,
            "max.message.bytes": str(self.largest + BATCH_MARGIN),
            "min.insync.replicas": "1" if dev else str(IN_SYNC),
        }

    def problems(self, topic: Topic, configs: dict[str, str], *, dev: bool) -> Iterator[str]:
        """Yield the differences of a topic from its required form, with the required values."""
        if self.partitions is not None and len(topic.partitions) != self.partitions:
            yield f"{self.name}: has {len(topic.partitions)} partitions, must have {self.partitions}"
        if not self.owned:
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
"""Acknowledged records must not be lost."""
_FOR_EVER: Final = {
    **_ACKNOWLEDGED,
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # Expiry and `decided_at` depend on log time, and must not depend on a producer's clock (rule 15).
    "message.timestamp.type": "LogAppendTime",
}
_COMPACTED: Final = {**_ACKNOWLEDGED, "cleanup.policy": "compact"}


def plan(settings: Settings, role: Role | None = None) -> list[TopicPlan]:
    """Return the topics that a role reads or writes, or all topics without a role."""
    names = TopicNames(settings.namespace)
    topics = {
        "pages": TopicPlan(names.pages, None, PAGES_BYTES, {}, owned=False, transactional=False),
        # Its only record keeps its key, so compaction never removes it, and no retention applies.
        "genesis": TopicPlan(names.genesis, 1, GENESIS_BYTES, _COMPACTED),
        "journal": TopicPlan(names.journal, 1, JOURNAL_BYTES, _FOR_EVER),
        "decisions": TopicPlan(names.decisions, 1, DECISIONS_BYTES, _FOR_EVER),
        "requests": TopicPlan(names.requests, 1, REQUESTS_BYTES, _FOR_EVER, transactional=False),
        "verdicts": TopicPlan(names.verdicts, None, VERDICTS_BYTES, _ACKNOWLEDGED),
        "clusters": TopicPlan(names.clusters, 1, VERDICTS_BYTES, _COMPACTED),
        "rejected": TopicPlan(names.rejected, None, PAGES_BYTES, _ACKNOWLEDGED, transactional=False),
    }
    route_names = [f"verdicts.{verdict}" for verdict in settings.routes]
    for name, verdict in zip(route_names, settings.routes, strict=True):
        topics[name] = TopicPlan(names.route_topic(verdict), None, VERDICTS_BYTES, _ACKNOWLEDGED)
    best = ("best",) if settings.elect else ()
    if settings.elect:
        name = names.best(settings.elector_name)
        topics["best"] = TopicPlan(name, None, VERDICTS_BYTES, _COMPACTED)
    wanted: dict[Role | None, tuple[str, ...]] = {
        None: tuple(topics),
        "worker": ("pages", "genesis", "journal", "rejected"),
        "judge": ("genesis", "journal", "decisions", "requests", "verdicts", "clusters", *route_names),
        "elector": ("genesis", "journal", "decisions", *best),
        "load": ("genesis", "journal"),
        "forget": ("genesis", "requests"),
        "trim": ("genesis", "journal", "decisions"),
        "publish": ("pages",),
        "dashboard": ("verdicts", "requests"),
        "follow": ("verdicts",),
    }
    return [topics[name] for name in wanted[role]]
