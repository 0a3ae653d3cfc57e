"""The anchors that died lately, and the buckets that they left."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from stream.judge.batch_anchors import are_inside
from stream.judge.rule import Rule
from stream.judge.segments.answer import Segment
from stream.tables.triples.keys import keys_of_triples


class Deaths:
    """The anchors that died after each of the last positions in the decisions."""

    def __init__(self, rule: Rule, position: int) -> None:
        """Deaths up to this position are not known."""
        self._rule, self._design = rule, rule.design()
        self._positions = [position]
        self._left: list[tuple[NDArray[np.int64], NDArray[np.uint64]]] = []
        """Between two positions: the number of an anchor and the key of a bucket that it left, (k,) each."""

    @property
    def position(self) -> int:
        """The position up to which deaths were added."""
        return self._positions[-1]

    def add(
        self,
        position: int,
        numbers: NDArray[np.int64],
        words: NDArray[np.uint64],
        skipped: NDArray[np.uint64],
    ) -> None:
        """Add the anchors (k,) that died up to this position, from the last one on: superseded or expired.

        `words` (k, W) are their keys, as in the tables, and `skipped` (k,) the masks of the buckets that they
        did not enter.
        """
        keys, pairs = self._design.keys(words), self._design.tables
        if self._rule.triples:
            keys = np.column_stack([keys, keys_of_triples(words)])
        anchor, bucket = np.nonzero(are_inside(skipped, keys.shape[1], pairs))
        self._left.append((numbers[anchor], keys[anchor, bucket]))
        self._positions.append(position)

    def forget(self, position: int) -> None:
        """Forget what died up to this position; no answer is taken that is older."""
        some = bisect_left(self._positions, position)
        del self._positions[:some], self._left[:some]

    def knows(self, position: int) -> bool:
        """Whether `since` tells what has died since this position."""
        place = bisect_left(self._positions, position)
        return place < len(self._positions) and self._positions[place] == position

    def since(self, position: int, segment: Segment) -> NDArray[np.uint64]:
        """Return the keys of the buckets that anchors of a segment have left since a position that is known,
        ascending, with one entry for each anchor."""
        left = [np.zeros(0, np.uint64)]
        for number, keys in self._left[bisect_left(self._positions, position) :]:
            left.append(keys[segment.has(number)])
        return np.sort(np.concatenate(left))
