"""Names of all Kafka resources of a deployment, which start with its namespace (rule 14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Topics, groups and transactional ids of one namespace."""

    namespace: str

    @property
    def pages(self) -> str:
        """Input topic of crawled pages, P partitions."""
        return f"{self.namespace}.pages"

    @property
    def genesis(self) -> str:
        """Topic of the genesis record, 1 partition, compacted; and transactional id of its creator."""
        return f"{self.namespace}.genesis"

    @property
    def journal(self) -> str:
        """Topic of fingerprints in a total order, 1 partition, kept until trimmed."""
        return f"{self.namespace}.journal"

    @property
    def decisions(self) -> str:
        """Topic of decisions, 1 partition, kept until trimmed."""
        return f"{self.namespace}.decisions"

    @property
    def requests(self) -> str:
        """Topic of what people request of the judge, 1 partition, of keyed digests."""
        return f"{self.namespace}.requests"

    @property
    def verdicts(self) -> str:
        """Output topic with one verdict per page, P partitions."""
        return f"{self.namespace}.verdicts"

    def route_topic(self, verdict: str) -> str:
        """Additional topic for verdicts of one kind, P partitions."""
        return f"{self.verdicts}.{verdict}"

    @property
    def clusters(self) -> str:
        """Topic of superseded anchors, compacted by cluster id."""
        return f"{self.namespace}.clusters"

    def best(self, elector: str = "") -> str:
        """Topic of the pages that are kept, compacted by cluster id, P partitions; of this elector."""
        return f"{self.namespace}.best{elector and f'-{elector}'}"

    def elector(self, name: str = "") -> str:
        """Transactional id of this elector."""
        return f"{self.namespace}.elector{name and f'-{name}'}"

    @property
    def rejected(self) -> str:
        """Dead-letter topic: original bytes of rejected pages, with the reason in headers."""
        return f"{self.namespace}.rejected"

    @property
    def workers(self) -> str:
        """Consumer group of the workers."""
        return f"{self.namespace}.workers"

    @property
    def load(self) -> str:
        """Consumer group of loaders, by which only one loads at a time."""
        return f"{self.namespace}.load"

    @property
    def judge(self) -> str:
        """Consumer group and transactional id of the judge."""
        return f"{self.namespace}.judge"

    def dashboard(self, name: str = "") -> str:
        """Consumer group of this dashboard."""
        return f"{self.namespace}.dashboard{name and f'-{name}'}"

    @property
    def dashboard_changelogs(self) -> list[str]:
        """Topics of dashboards of earlier versions, which are not read any more."""
        return [
            f"{self.namespace}.dashboard-{table}-changelog"
            for table in ("totals", "hosts", "clusters", "urls")
        ]

    @property
    def removed(self) -> list[str]:
        """Topics of earlier versions, which took part in deciding and are not read any more."""
        return [f"{self.namespace}.segments", f"{self.namespace}.candidates"]


def record_name(record: Any) -> str:
    """The place of a consumed record, as errors name it."""
    return f"topic {record.topic} partition {record.partition} offset {record.offset}"
