"""Which anchors a decision record lets die."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream.messages.decision import Decisions


class DecidedDeaths(NamedTuple):
    """The anchors that die with a decision record, or with several."""

    numbers: NDArray[np.int64]
    """Superseded and forgotten ones (k,); some may be dead already."""
    oldest: int
    """Those below this number expire; 0 for none."""

    @property
    def are_none(self) -> bool:
        """Whether nothing dies."""
        return not len(self.numbers) and not self.oldest

    @classmethod
    def joined(cls, deaths: Sequence[DecidedDeaths]) -> Self:
        """Those of consecutive records, one at least."""
        numbers, oldest = zip(*deaths, strict=True)
        return cls(np.concatenate(numbers), max(oldest))


def deaths_of(decisions: Decisions) -> DecidedDeaths:
    """Return the anchors that die with a decision record."""
    superseded = [each.anchor for each in decisions.superseded]
    forgotten = decisions.forgotten.numbers[0] if decisions.forgotten else np.zeros(0, np.int64)
    oldest = decisions.turn.oldest[0] if decisions.turn else 0
    return DecidedDeaths(np.concatenate([np.array(superseded, np.int64), forgotten]), oldest)
