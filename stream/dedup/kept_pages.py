"""Which pages of a source are kept, while they are passed in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from stream.errors import SettingsError

COUNTS: Final = ("cluster_size", "cluster_sources")
"""Names of the columns that kept pages get on request."""


class ClusterCounts(NamedTuple):
    """The pages of a cluster."""

    size: int
    sources: dict[str, int]
    """Source -> its pages."""


class KeptPages:
    """Asked for one page of a source after another, says whether it is kept."""

    def __init__(
        self,
        name: str,
        positions: Iterator[int],
        count: int,
        progress: Callable[[], None],
        counts: Iterator[ClusterCounts] | None = None,
    ) -> None:
        """`positions` are those of the pages of the source `name` that are kept, of `count` pages, in order,
        and `counts` those of their clusters if they are written. `progress` is called for each page."""
        self.counts = counts
        self._name, self._positions, self._progress = name, positions, progress
        self._next = next(positions, None)
        self.count = count
        self.passed = 0

    def take(self) -> bool:
        """Whether the next page is kept."""
        kept = self.passed == self._next
        if kept:
            self._next = next(self._positions, None)
        self.passed += 1
        self._progress()
        return kept

    @property
    def ended(self) -> bool:
        """Whether all pages were asked for. A source may have more now, or damage."""
        return self.passed == self.count

    def end(self) -> None:
        """Raise SettingsError if the source has fewer pages than it had."""
        if not self.ended:
            raise SettingsError(
                f"source {self._name}: changed: it had {self.count:,} pages, and has {self.passed:,}"
            )
