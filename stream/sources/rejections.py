"""Why pages of sources are rejected, for the summaries of commands."""

from __future__ import annotations

from collections import Counter


class Rejections:
    """Counts of rejected pages by reason, and the first page of each reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        """Reason -> origin of the first page, and what was wrong with it."""

    def count(self, reason: str, origin: str, detail: str | None) -> None:
        """Count a rejected page."""
        if not self.counts[reason]:
            self.examples[reason] = f"{origin}: {detail}" if detail else origin
        self.counts[reason] += 1
