"""The anchors that died lately, and the buckets that they left."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.judge.decision.batch_anchors import are_inside
from stream.judge.rule import Rule
from stream.judge.segments.answer import Segment
from stream.tables.triples.keys import keys_of_triples

MOST_DEATHS: Final = 1 << 20
"""Anchors whose deaths are known, apart from the last ones; they take 40 MB. Answers that are older are given
again."""
MOST_POSITIONS: Final = 1 << 16
"""Positions that are known, also if few anchors died after each."""


class _Died(NamedTuple):
    """k anchors that died between two positions, their keys in the tables (k, W), and the masks (k,) of the
    buckets that they did not enter."""

    numbers: NDArray[np.int64]
    words: NDArray[np.uint64]
    skipped: NDArray[np.uint64]


_NO_POSITION: Final = 1 << 62
_NOBODY: Final = _Died(np.zeros(0, np.int64), np.zeros((0, 1), np.uint64), np.zeros(0, np.uint64))


class Deaths:
    """The anchors that died after each of the last positions in the decisions.

    One thread adds to them. Others may ask at the same time, but not while `note` or `forget` runs.
    """

    def __init__(self, rule: Rule, position: int) -> None:
        """Deaths up to this position are not known."""
        self._rule, self._design = rule, rule.design()
        self._positions = [position]
        self._died: list[_Died] = []
        """What died between two positions; while a decision is on its way, one more."""
        self._count = 0
        """Anchors in all of these."""
        self._left: dict[tuple[int, Segment], NDArray[np.uint64]] = {}
        """What `since` returned since the last deaths."""

    @property
    def first(self) -> int:
        """The first of the positions that are known; a large number between `lose` and `reach`."""
        positions = self._positions
        return positions[0] if positions else _NO_POSITION

    @property
    def position(self) -> int:
        """The position up to which deaths were added; -1 between `lose` and `reach`."""
        return self._positions[-1] if self._positions else -1

    @property
    def most(self) -> int:
        """How many anchors `note` takes."""
        return MOST_DEATHS

    def lose(self) -> None:
        """Know nothing of what died before the decision after the last position, nor by it, as too many do: a
        turn of very many anchors. No answer is taken that is older. `reach` is called next."""
        self._left, self._died, self._positions, self._count = {}, [], [], 0

    def note(
        self, numbers: NDArray[np.int64], words: NDArray[np.uint64], skipped: NDArray[np.uint64]
    ) -> None:
        """Add the anchors (k,) that die by the decision after the last position: superseded, expired or
        forgotten. `reach` is called once the position of that decision is known.

        `words` (k, W) are their keys, as in the tables, and `skipped` (k,) the masks of the buckets that they
        did not enter.
        """
        self._left = {}
        self._died.append(_Died(numbers, words, skipped))
        count, oldest = self._count, 0
        self._count += len(numbers)
        while count > MOST_DEATHS:
            count -= len(self._died[oldest].numbers)
            oldest += 1
        self.forget(self._positions[max(oldest, len(self._died) - MOST_POSITIONS)])

    def reach(self, position: int) -> None:
        """Note that all that died up to this position was added."""
        if len(self._died) < len(self._positions):
            lanes = self._died[-1].words.shape[1] if self._died else 1
            self._died.append(
                _Died(np.zeros(0, np.int64), np.zeros((0, lanes), np.uint64), np.zeros(0, np.uint64))
            )
        self._positions.append(position)

    def add(
        self,
        position: int,
        numbers: NDArray[np.int64],
        words: NDArray[np.uint64],
        skipped: NDArray[np.uint64],
    ) -> None:
        """Add the anchors (k,) that died up to this position, from the last one on, as by `note`."""
        self.note(numbers, words, skipped)
        self.reach(position)

    def forget(self, position: int) -> None:
        """Forget what died up to this position; no answer is taken that is older."""
        some = bisect_left(self._positions, position)
        self._count -= sum(len(each.numbers) for each in self._died[:some])
        del self._positions[:some], self._died[:some]

    def knows(self, position: int) -> bool:
        """Whether `since` tells what has died since this position."""
        place = bisect_left(self._positions, position)
        return place < len(self._positions) and self._positions[place] == position

    def since(self, position: int, segment: Segment) -> NDArray[np.uint64]:
        """Return the keys of the buckets that anchors of a segment have left since a position that is known,
        ascending, with one entry for each anchor."""
        left = self._left.get((position, segment))
        if left is None:
            died = self._died[bisect_left(self._positions, position) :]
            keys = [self._keys(each, segment.has(each.numbers)) for each in died]
            left = self._left[position, segment] = np.sort(np.concatenate([np.zeros(0, np.uint64), *keys]))
        return left

    def _keys(self, died: _Died, some: NDArray[np.bool_]) -> NDArray[np.uint64]:
        """The keys of the buckets that some of the anchors left."""
        if not some.any():
            return np.zeros(0, np.uint64)
        words = died.words[some]
        keys = self._design.keys(words)
        if self._rule.triples:
            keys = np.column_stack([keys, keys_of_triples(words)])
        return keys[are_inside(died.skipped[some], keys.shape[1], self._design.tables)]
