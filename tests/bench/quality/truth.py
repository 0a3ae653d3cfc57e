"""What is true of two texts: the Jaccard similarity of their sets of shingles, counted out.

Shares no code with the package: shingles are 5 Han characters in a row where a text has more than 100 of
them, otherwise 5 casefolded words.
"""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import numpy as np

HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
WORD = re.compile(r"\w+")
LENGTH = 5
HAN_FLOOR = 100


def shingles(text: str) -> list[str]:
    """The shingles of a text, each once; one of all units where there are fewer than five."""
    units = HAN.findall(text)
    if len(units) <= HAN_FLOOR:
        units = WORD.findall(text.casefold())
    return sorted({"\x1f".join(units[i : i + LENGTH]) for i in range(max(1, len(units) - LENGTH + 1))})


class Truth:
    """The similarity of any two of some texts."""

    def __init__(self, texts: list[str]) -> None:
        numbers: dict[str, int] = {}
        self._sets = [
            np.sort(np.array([numbers.setdefault(each, len(numbers)) for each in shingles(text)], np.int64))
            for text in texts
        ]

    def similarity(self, a: int, b: int) -> float:
        """J of texts number a and b; 1 where both are empty."""
        one, two = self._sets[a], self._sets[b]
        both = np.intersect1d(one, two, assume_unique=True).size
        return both / max(1, one.size + two.size - both) if one.size or two.size else 1.0


def revisions(data: Path, language: str) -> list[str]:
    """All `a` texts, then all `b` texts, in the file's order."""
    with lzma.open(data / f"revisions-{language}.jsonl.xz", "rt", encoding="utf-8") as lines:
        pairs = [json.loads(line) for line in lines]
    return [pair["a"] for pair in pairs] + [pair["b"] for pair in pairs]
