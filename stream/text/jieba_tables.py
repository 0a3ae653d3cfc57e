"""jieba's dictionary and hidden Markov model as arrays for the compiled segmenter (`stream.text.han_words`),
with the values that rjieba uses."""

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
"""States of the model: the position of a character in its word. jieba breaks ties by the letters B, E, M and
S, so the states are numbered in this order."""
IMPOSSIBLE: Final = -3.14e100
"""jieba's logarithm of a probability of zero."""
FIRST_HAN: Final = 0x3400
"""Dictionary words with a lower code point contain letters or symbols, so they cannot occur in a Han run."""
FIRST_GUESSED: Final = 0x4E00
LAST_GUESSED: Final = 0x9FD5
"""The model covers the characters from FIRST_GUESSED to LAST_GUESSED, inclusive."""
_TWICE: Final = "B超"
"""The only entry that jieba's dictionary lists twice, rjieba's once. It affects the sum of frequencies."""


class JiebaTables(NamedTuple):
    """A trie of the dictionary's Han words, and the hidden Markov model.

    A trie node stands for a word or a prefix of one. It is encoded as its number shifted left by one; the
    lowest bit tells whether the node has children. 0 means no node.
    """

    first: NDArray[np.uint32]
    """Root of the trie: character -> node (2**18,)."""
    edges: NDArray[np.uint64]
    """Hash table with open addressing (2**20,). The key, (node number, character), is hashed with
    `MULTIPLIER`; an entry holds the key in its upper bits and the child node in its lower bits."""
    ranks: NDArray[np.uint16]
    """Node number -> index into `scores` (nodes,). Takes a quarter of the memory of a score per node."""
    scores: NDArray[np.float64]
    """The distinct log probabilities of words (s,). The first is NaN, for nodes that are no words."""
    unknown: float
    """Log probability of a character that is no word of the dictionary."""
    emitted: NDArray[np.float64]
    """Emission log probabilities of the characters from FIRST_GUESSED on, in each state (characters, 4)."""
    entered: NDArray[np.float64]
    """Log probabilities of the initial states (4,)."""
    followed: NDArray[np.float64]
    """Transition log probabilities from state (row) to state (column) (4, 4)."""


@functools.cache
def jieba_tables() -> JiebaTables:
    """The tables of the installed jieba, built in 0.4 s at the first call."""
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
    # math.log is the C library's, as in both jiebas. NumPy's logarithm may differ in the last bit.
    total = math.log(int(counts.sum()))
    distinct, which = np.unique(counts, return_inverse=True)
    scores = np.array([math.log(count) - total if count else 0 for count in distinct.tolist()])[which]
    of_han = points[starts] >= FIRST_HAN
    for place in range(1, int(lengths.max())):
        of_han &= (points[np.minimum(starts + place, ends[:, 0] - 1)]) >= FIRST_HAN
    first, edges, node_scores = _trie(points, starts[of_han], lengths[of_han], scores[of_han])
    different, ranks = np.unique(node_scores, return_inverse=True)  # a single NaN, sorted last
    if different.size > 1 << 16:
        raise ValueError(f"jieba's dictionary has {different.size} different frequencies, more than 2**16")
    places = ((ranks + 1) % different.size).astype(np.uint16)
    return JiebaTables(first, edges, places, np.roll(different, 1), 0.0 - total, *_model())


def _numbers(
    points: NDArray[np.uint32], starts: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.int64]:
    """Parse the decimal numbers at `points[starts:ends]`."""
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
    """Build the trie level by level. Returns `first`, `edges` and the score of each node number.

    Nodes are numbered from 1, ordered by level, parent and character.
    """
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
        # Also a colon (U+2236) is in the model, which no sequence of Han characters has.
        of_state = {
            character: probability
            for character, probability in prob_emit.P[letter].items()
            if FIRST_GUESSED <= ord(character) <= LAST_GUESSED
        }
        places = np.fromiter(map(ord, of_state), np.intp, len(of_state)) - FIRST_GUESSED
        # rjieba's model is rounded to six decimals, which breaks some of jieba's ties.
        rounded = (round(probability, 6) for probability in of_state.values())
        emitted[places, state] = np.fromiter(rounded, np.float64, len(of_state))
        for other, other_letter in enumerate("BEMS"):
            followed[state, other] = prob_trans.P[letter].get(other_letter, IMPOSSIBLE)
    return emitted, entered, followed
