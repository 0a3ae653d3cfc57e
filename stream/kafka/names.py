"""Names of all Kafka resources of a deployment, which start with its namespace (rule 14)."""

from __future__ import annotations

from typing import Any, Final


class TopicNames:
    """Topics, groups and transactional ids of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace: Final = namespace
        self.pages: Final = f"{namespace}.pages"
        """Input topic of crawled pages, P partitions."""
        self.genesis: Final = f"{namespace}.genesis"
        """Topic of the genesis record, 1 partition, compacted; and transactional id of its creator."""
        self.journal: Final = f"{namespace}.journal"
        """Topic of fingerprints in a total order, 1 partition, kept until trimmed."""
        self.decisions: Final = f"{namespace}.decisions"
        """Topic of decisions, 1 partition, kept until trimmed."""
        self.requests: Final = f"{namespace}.requests"
        """Topic of what people request of the judge, 1 partition, of keyed digests."""
        self.verdicts: Final = f"{namespace}.verdicts"
        """Output topic with one verdict per page, P partitions."""
        self.clusters: Final = f"{namespace}.clusters"
        """Topic of superseded anchors, compacted by cluster id."""
        self.rejected: Final = f"{namespace}.rejected"
        """Dead-letter topic: original bytes of rejected pages, with the reason in headers."""
        self.workers: Final = f"{namespace}.workers"
        """Consumer group of the workers."""
        self.load: Final = f"{namespace}.load"
        """Consumer group of loaders, by which only one loads at a time."""
        self.judge: Final = f"{namespace}.judge"
        """Consumer group and transactional id of the judge."""
        self.dashboard_changelogs: Final = [
            f"{namespace}.dashboard-{table}-changelog" for table in ("totals", "hosts", "clusters", "urls")
        ]
        """Topics of dashboards of earlier versions, which are not read any more."""
        self.removed: Final = [f"{namespace}.segments", f"{namespace}.candidates"]
        """Topics of earlier versions, which took part in deciding and are not read any more."""

    def route_topic(self, verdict: str) -> str:
        """Additional topic for verdicts of one kind, P partitions."""
        return f"{self.verdicts}.{verdict}"

    def best(self, elector: str = "") -> str:
        """Topic of the pages that are kept, compacted by cluster id, P partitions; of this elector."""
        return f"{self.namespace}.best{elector and f'-{elector}'}"

    def elector(self, name: str = "") -> str:
        """Transactional id of this elector."""
        return f"{self.namespace}.elector{name and f'-{name}'}"

    def dashboard(self, name: str = "") -> str:
        """Consumer group of this dashboard."""
        return f"{self.namespace}.dashboard{name and f'-{name}'}"


def record_name(record: Any) -> str:
    """The place of a consumed record, as errors name it."""
    return f"topic {record.topic} partition {record.partition} offset {record.offset}"
