"""What is true of two texts: the Jaccard similarity of their sets of shingles, counted out.

Shares no code with the package, only its table of letters. A shingle is 5 units in a row. A unit is a
character, with its marks, of a script without spaces, or a casefolded word, with its marks, of another.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
import unicodedata
from itertools import groupby
from pathlib import Path

import numpy as np

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\ua9e0-\ua9ff\uaa60-\uaa7f\uff66-\uff9f"
)
"""Thai, Lao, Burmese, Khmer, kana."""
_MARKS = [
    [ord(mark) for mark in run]
    for marks, run in groupby(
        map(chr, range(sys.maxunicode + 1)), lambda each: unicodedata.category(each)[0] == "M"
    )
    if marks
]
MARKS = "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in _MARKS)
UNIT = re.compile(rf"(?=\w)[{HAN}{UNSPACED}][{MARKS}]*|(?:(?![{HAN}{UNSPACED}])[\w{MARKS}])+")
_LINES = (Path(__file__).parents[3] / "stream" / "text" / "letters.txt").read_text("utf-8").splitlines()
SAME = {
    int(one, 16): "".join(chr(int(each, 16)) for each in others.partition("#")[0].split())
    for one, _, others in (line.partition(":") for line in _LINES if line[0] != "#")
}
"""Letters that are the same to readers."""
LENGTH = 5


def shingles(text: str) -> list[str]:
    """The shingles of a text, each once; one of all units where there are fewer than five."""
    units = UNIT.findall(text.translate(SAME).casefold())
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

    def any_like(self, a: int, least: float) -> bool:
        """Whether a text before number a has J >= `least` to it."""
        return any(self.similarity(a, b) >= least for b in range(a))


def revisions(data: Path, language: str) -> list[str]:
    """All `a` texts, then all `b` texts, in the file's order."""
    with lzma.open(data / f"revisions-{language}.jsonl.xz", "rt", encoding="utf-8") as lines:
        pairs = [json.loads(line) for line in lines]
    return [pair["a"] for pair in pairs] + [pair["b"] for pair in pairs]
