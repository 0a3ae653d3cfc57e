"""jieba's dictionary and hidden Markov model, as rjieba has them, in arrays for compiled loops (see
`stream.text.han_words`)."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.cutters import jieba_package

POINT_BITS: Final = 18
"""Han characters lie below 2**18."""
NODE_BITS: Final = 20
SLOT_BITS: Final = 20
MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4)."""
BEGIN, END, MIDDLE, SINGLE = range(4)
"""Where in a word a character stands. jieba compares states by their letters B, E, M and S: this order."""
IMPOSSIBLE: Final = -3.14e100
"""jieba's logarithm of what never happens."""
FIRST_HAN: Final = 0x3400
"""Words of the dictionary with a character before hold letters or signs: no run of Han has them."""
FIRST_GUESSED: Final = 0x4E00
LAST_GUESSED: Final = 0x9FD5
"""The model knows the characters between."""
_TWICE: Final = "B超"
"""The one entry that jieba's dictionary has twice, rjieba's once: it is in the sum of frequencies."""


class JiebaTables(NamedTuple):
    """A trie of the dictionary's Han words, and the model. A *node* is a word or the beginning of one, its
    number above whether it can be continued, in the lowest bit; 0 is none."""

    first: NDArray[np.uint32]
    """Character -> its node (2**18,)."""
    edges: NDArray[np.uint64]
    """Open addressing by `MULTIPLIER` times (number of a node, character): that key above the next node
    (2**20,)."""
    ranks: NDArray[np.uint16]
    """Number of a node -> place of its score: a quarter of the memory that the scores would take (nodes,)."""
    scores: NDArray[np.float64]
    """Logarithm of a word's share among all words, the different ones (s,); the first is NaN: no word."""
    unknown: float
    """The same of a character that is no word."""
    emitted: NDArray[np.float64]
    """Logarithm of the probability of a character from FIRST_GUESSED on in each state (characters, 4)."""
    entered: NDArray[np.float64]
    """Of each state at the beginning (4,)."""
    followed: NDArray[np.float64]
    """Of a state (row) being followed by another (column) (4, 4)."""


@functools.cache
def jieba_tables() -> JiebaTables:
    """Those of the installed jieba, in 0.4 s."""
    text = Path(jieba_package().__file__ or "").with_name("dict.txt").read_text("utf-8")
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    # Each line is a word, how often it was seen, and a part of speech.
    ends = np.flatnonzero((points == ord(" ")) | (points == ord("\n"))).reshape(-1, 3)
    starts = np.concatenate(([0], ends[:-1, 2] + 1))
    lengths = ends[:, 0] - starts
    counts = _numbers(points, ends[:, 0] + 1, ends[:, 1])
    twice = (
        (lengths == len(_TWICE)) & (points[starts] == ord(_TWICE[0])) & (points[starts + 1] == ord(_TWICE[1]))
    )
    counts[np.flatnonzero(twice)[1:]] = 0
    # Of the C library, as both jiebas have it: NumPy's logarithm may differ in the last bit.
    total = math.log(int(counts.sum()))
    distinct, which = np.unique(counts, return_inverse=True)
    scores = np.array([math.log(count) - total if count else 0 for count in distinct.tolist()])[which]
    of_han = points[starts] >= FIRST_HAN
    for place in range(1, int(lengths.max())):
        of_han &= (points[np.minimum(starts + place, ends[:, 0] - 1)]) >= FIRST_HAN
    first, edges, node_scores = _trie(points, starts[of_han], lengths[of_han], scores[of_han])
    different, ranks = np.unique(node_scores, return_inverse=True)  # NaN comes last, once
    if different.size > 1 << 16:
        raise ValueError(f"jieba's dictionary has {different.size} different frequencies, more than 2**16")
    places = ((ranks + 1) % different.size).astype(np.uint16)
    return JiebaTables(first, edges, places, np.roll(different, 1), 0.0 - total, *_model())


def _numbers(
    points: NDArray[np.uint32], starts: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.int64]:
    """The decimal numbers written there."""
    numbers = np.zeros(starts.size, np.int64)
    for place in range(int((ends - starts).max())):
        digits = points[np.minimum(starts + place, ends)].astype(np.int64) - ord("0")
        numbers = np.where(starts + place < ends, 10 * numbers + digits, numbers)
    return numbers


def _trie(
    points: NDArray[np.uint32],
    starts: NDArray[np.intp],
    lengths: NDArray[np.intp],
    scores: NDArray[np.float64],
) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.float64]]:
    """Level by level: nodes are numbered from 1 on, in the order of their parents and characters."""
    nodes = np.zeros(starts.size, np.uint64)
    levels: list[NDArray[np.uint64]] = []
    ends: list[tuple[NDArray[np.uint64], NDArray[np.float64]]] = []
    count = 1
    for level in range(int(lengths.max())):
        longer = np.flatnonzero(lengths > level)
        keys = nodes[longer] << np.uint64(POINT_BITS) | points[starts[longer] + level].astype(np.uint64)
        order = np.argsort(keys)
        ordered = keys[order]
        fresh = np.concatenate(([True], ordered[1:] != ordered[:-1]))
        nodes[longer[order]] = np.cumsum(fresh).astype(np.uint64) + np.uint64(count - 1)
        levels.append(ordered[fresh])
        count += levels[-1].size
        ending = lengths == level + 1
        ends.append((nodes[ending], scores[ending]))
    if count > 1 << NODE_BITS:
        raise ValueError(f"jieba's dictionary has {count} beginnings of words, more than 2**{NODE_BITS}")
    keys = np.concatenate(levels)
    continued = np.zeros(count, np.uint64)
    continued[(keys >> np.uint64(POINT_BITS)).astype(np.intp)] = 1
    nodes = np.arange(1, count, dtype=np.uint64) << np.uint64(1) | continued[1:]
    first = np.zeros(1 << POINT_BITS, np.uint32)
    first[levels[0].astype(np.intp)] = nodes[: levels[0].size]
    edges = np.zeros(1 << SLOT_BITS, np.uint64)
    _file(edges, keys[levels[0].size :], nodes[levels[0].size :])
    node_scores = np.full(count, np.nan)
    for ended, score in ends:
        node_scores[ended.astype(np.intp)] = score
    return first, edges, node_scores


@compiled
def _file(edges: NDArray[np.uint64], keys: NDArray[np.uint64], nodes: NDArray[np.uint64]) -> None:
    for i in range(len(keys)):
        slot = keys[i] * MULTIPLIER >> np.uint64(64 - SLOT_BITS)
        while edges[slot]:
            slot = slot + np.uint64(1) & np.uint64(len(edges) - 1)
        edges[slot] = keys[i] << np.uint64(NODE_BITS + 1) | nodes[i]


def _model() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    jieba_package()
    from jieba.finalseg import prob_emit, prob_start, prob_trans

    emitted = np.full((LAST_GUESSED - FIRST_GUESSED + 1, 4), IMPOSSIBLE)
    entered = np.empty(4)
    followed = np.full((4, 4), IMPOSSIBLE)
    for state, letter in enumerate("BEMS"):
        entered[state] = prob_start.P[letter]
        of_state = prob_emit.P[letter]
        places = np.fromiter(map(ord, of_state), np.intp, len(of_state)) - FIRST_GUESSED
        # rjieba's model has six decimals: they decide between ways that were equally likely otherwise.
        rounded = (round(probability, 6) for probability in of_state.values())
        emitted[places, state] = np.fromiter(rounded, np.float64, len(of_state))
        for other, other_letter in enumerate("BEMS"):
            followed[state, other] = prob_trans.P[letter].get(other_letter, IMPOSSIBLE)
    return emitted, entered, followed
