"""Where a load goes on: which rows of a corpus the judge has judged, as the decisions say (rule 21)."""

from __future__ import annotations

from collections.abc import Mapping

from stream.judge.state.ledger import SourceKey
from stream.messages.journal import LOAD_PARTITIONS
from stream.roles.loader import records
from stream.roles.loader.records import NO_CLUSTER, LoadedSource


class JudgedRows:
    """Which rows of a corpus have a verdict, by the next expected offset of each pseudo-partition."""

    def __init__(self, source: LoadedSource) -> None:
        self._digest, self._rows = source.digest, source.corpus.rows
        used = min(LOAD_PARTITIONS, -(-self._rows // records.BLOCK_ROWS))
        self._expected = dict.fromkeys(range(used), 0)

    @property
    def sources(self) -> list[SourceKey]:
        """The pseudo-partitions that have rows."""
        return [(NO_CLUSTER, self._digest, partition) for partition in self._expected]

    def note(self, expected: Mapping[SourceKey, int]) -> None:
        """Note how far the judge is in some sources, of which others do not matter."""
        for (_, digest, partition), offset in expected.items():
            if digest == self._digest:
                self._expected[partition] = max(self._expected[partition], offset)

    @property
    def rows(self) -> int:
        """How many rows are judged, without any that are judged behind one that is not."""
        return min(map(self._next, self._expected), default=self._rows)

    def _next(self, partition: int) -> int:
        """Number of the first row of a pseudo-partition that is not judged; the corpus's size for none."""
        expected = self._expected[partition]
        if not expected:
            return partition * records.BLOCK_ROWS
        behind = 0 if expected % records.BLOCK_ROWS else (LOAD_PARTITIONS - 1) * records.BLOCK_ROWS
        return min(expected + behind, self._rows)
