"""Names of everything that a deployment owns in Kafka, all under its namespace (rule 14)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """Topics, groups and transactional ids of one namespace."""

    namespace: str

    @property
    def pages(self) -> str:
        """Crawled pages, P partitions: the input."""
        return f"{self.namespace}.pages"

    @property
    def journal(self) -> str:
        """Fingerprints in one order, 1 partition, kept for ever."""
        return f"{self.namespace}.journal"

    @property
    def decisions(self) -> str:
        """What was decided, 1 partition, kept for ever."""
        return f"{self.namespace}.decisions"

    @property
    def verdicts(self) -> str:
        """One verdict a page, P partitions: the output."""
        return f"{self.namespace}.verdicts"

    def routed(self, verdict: str) -> str:
        """Verdicts of that name once more, P partitions."""
        return f"{self.verdicts}.{verdict}"

    @property
    def clusters(self) -> str:
        """What became of anchors, compacted by cluster id."""
        return f"{self.namespace}.clusters"

    @property
    def rejected(self) -> str:
        """Dead letters: original bytes of rejected pages, reason in headers."""
        return f"{self.namespace}.rejected"

    @property
    def workers(self) -> str:
        """Consumer group of the workers."""
        return f"{self.namespace}.workers"

    @property
    def judge(self) -> str:
        """Consumer group, and transactional id, of the judge."""
        return f"{self.namespace}.judge"

    @property
    def dashboard(self) -> str:
        """Consumer group of the dashboard; begins the names of the topics that Faust makes."""
        return f"{self.namespace}.dashboard"
