"""Who was named a duplicate of whom -> precision, recall, F1 and the curve over the true similarity."""

from __future__ import annotations

from typing import Any

from tests.bench.quality.truth import Truth

FOUND = 0.75
"""`b` counts as found when it is named a duplicate of an anchor at least this similar."""
EDGES = (0.5, 0.6, 0.65, 0.7, 0.725, 0.75, 0.775, 0.8, 0.825, 0.85, 0.875, 0.9, 0.95, 1.0)
"""Of the curve's bins; the last bin are pairs that are equal."""

Named = list[int | None]
"""For every text, in order, the earlier text that it was named a duplicate of."""


class LanguageFigures:
    """The figures of one language's texts: n `a` texts, then n `b` texts."""

    def __init__(self, texts: list[str]) -> None:
        self.truth = Truth(texts)
        self.pairs = len(texts) // 2
        self.similarity = [self.truth.similarity(i, self.pairs + i) for i in range(self.pairs)]

    def within(self, least: float, below: float = 2.0) -> list[int]:
        """Pairs of a true similarity in [least, below)."""
        return [i for i, each in enumerate(self.similarity) if least <= each < below]

    def of(self, named: Named) -> dict[str, Any]:
        """All figures of one way to name duplicates."""
        true = [self.truth.similarity(i, other) for i, other in enumerate(named) if other is not None]
        found = [
            other is not None and self.truth.similarity(self.pairs + i, other) >= FOUND
            for i, other in enumerate(named[self.pairs :])
        ]
        precision, recall = _share([each >= 0.8 for each in true]), self.recall(found, 0.8)
        return {
            "precision_08": precision,
            "precision_07": _share([each >= 0.7 for each in true]),
            "recall_modified": self.recall(found, 0.8, 1.0),
            "recall_085": self.recall(found, 0.85, 1.0),
            "f1": round(2 * precision * recall / max(precision + recall, 1e-9), 4),
            "named": len(true),
            "curve": [
                self.recall(found, low, high) for low, high in zip(EDGES, (*EDGES[1:], 2.0), strict=True)
            ],
        }

    def recall(self, found: list[bool], least: float, below: float = 2.0) -> float:
        """Share of the pairs in [least, below) that were found."""
        return _share([found[i] for i in self.within(least, below)])


def _share(flags: list[bool]) -> float:
    return round(sum(flags) / len(flags), 4) if flags else 1.0
