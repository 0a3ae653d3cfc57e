"""Which parts of two texts their shingles share: what similarity counts, as text."""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import Final

import msgspec
import numpy as np

MOST_RUNS: Final = 60
"""Most runs shown of a text."""
LONGEST_SHARED: Final = 160
LONGEST_OWN: Final = 480
"""Characters shown of a run. Of a longer one, the middle is left out."""
_BLANK: Final = re.compile(r"\s+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")


class TextRun(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive units of a text that are all in shingles which both texts have, or all in none."""

    shared: bool
    text: str
    """Normalised, white space and control characters replaced."""
    units: int


class ShingleDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The shingles of two texts, as runs of their units."""

    counts: tuple[int, int, int]
    """Numbers of distinct shared shingles, of those only in the anchor, and of those only in the page."""
    anchor: list[TextRun]
    page: list[TextRun]
    left_out: tuple[int, int]
    """Numbers of runs at the end of either text that are not listed."""


class Shingled(msgspec.Struct, frozen=True):
    """A text with its shingles."""

    text: str
    """Normalised."""
    units: list[bytes]
    length: int
    """Units in a shingle."""
    shingles: list[bytes]
    """In text order."""

    @classmethod
    def of(cls, text: str, units: list[bytes], shingle: int) -> Shingled:
        """The shingles of a normalised text of `units`; all of it if it is shorter than one."""
        length = max(1, min(shingle, len(units)))
        shingles = [b" ".join(units[i : i + length]) for i in range(len(units) - length + 1)]
        return cls(text, units, length, shingles)


def diff(anchor: Shingled, page: Shingled) -> ShingleDiff:
    """Compare the shingles of two texts."""
    a, b = set(anchor.shingles), set(page.shingles)
    shared = a & b
    (anchor_runs, anchor_left_out), (page_runs, page_left_out) = _runs(anchor, shared), _runs(page, shared)
    return ShingleDiff(
        counts=(len(shared), len(a) - len(shared), len(b) - len(shared)),
        anchor=anchor_runs,
        page=page_runs,
        left_out=(anchor_left_out, page_left_out),
    )


def _runs(of: Shingled, shared: set[bytes]) -> tuple[list[TextRun], int]:
    """The first runs, and the number of those left out."""
    edges = np.zeros(len(of.units) + 1, np.int64)
    in_shared = np.array([each in shared for each in of.shingles], np.int64)
    edges[: len(in_shared)] += in_shared
    edges[of.length : of.length + len(in_shared)] -= in_shared
    within = np.cumsum(edges)[:-1] > 0
    firsts = np.flatnonzero(np.diff(within, prepend=~within[:1])).tolist() if of.units else []
    left_out = max(0, len(firsts) - MOST_RUNS)
    # Units have to be found in the text in order, up to the end of the last run shown.
    starts, at = [], 0
    for unit in islice(of.units, firsts[MOST_RUNS if left_out else -1] + 1 if firsts else 0):
        at = of.text.find(unit.decode(), at)
        starts.append(at)
        at += len(unit.decode())
    bounds = [(first, starts[first] if first else 0) for first in firsts[: MOST_RUNS + 1]]
    if not left_out:
        bounds.append((len(of.units), len(of.text)))
    runs = []
    for (first, start), (stop, end) in pairwise(bounds):
        is_shared = bool(within[first])
        runs.append(TextRun(shared=is_shared, text=_shown(of.text[start:end], is_shared), units=stop - first))
    return runs, left_out


def _shown(text: str, shared: bool) -> str:
    most = LONGEST_SHARED if shared else LONGEST_OWN
    if len(text) > 4 * most:  # before white space is counted
        text = text[: 2 * most] + text[-2 * most :]
    text = _CONTROL.sub("\ufffd", _BLANK.sub(" ", text)).strip()
    return text if len(text) <= most else f"{text[: most // 2].rstrip()} … {text[-most // 2 :].lstrip()}"
