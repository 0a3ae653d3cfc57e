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
from stream.text.han_cutters import jieba_package

SCORE_BITS: Final = 13
"""Bits of an index into `JiebaTables.scores`."""
BASE_BITS: Final = 20
"""Bits of a row's base in `JiebaTables.trie`."""
BEGIN, END, MIDDLE, SINGLE = range(4)
"""States of the model: the position of a character in its word. jieba breaks ties by the letters B, E, M and
S, so the states are numbered in this order."""
IMPOSSIBLE: Final = -3.14e100
"""jieba's logarithm of a probability of zero."""
FIRST_HAN: Final = 0x3400
"""Dictionary words with a lower code point contain letters or symbols, so they cannot occur in a Han run."""
_HAN_END: Final = 1 << 18
"""Han characters lie below it."""
FIRST_GUESSED: Final = 0x4E00
LAST_GUESSED: Final = 0x9FD5
"""The model covers the characters from FIRST_GUESSED to LAST_GUESSED, inclusive."""
_TWICE: Final = "B超"
"""The only entry that jieba's dictionary lists twice, rjieba's once. It affects the sum of frequencies."""


class JiebaTables(NamedTuple):
    """A trie of the dictionary's Han words, and the hidden Markov model.

    A node stands for a word or a prefix of one. It is encoded in the lower bits of an element: the index of
    its score (SCORE_BITS), then the base of its children (BASE_BITS), 0 if it has none. Its child by a
    character is `trie[base + code]`, if the bits above are that base; otherwise it has no such child. Bases
    are unique, and the children of different nodes are interleaved (a double array: Aoe, An efficient digital
    search algorithm by using a double-array structure, 1989). So a look-up is a single load without a branch,
    and as common characters have low codes, common words share cache lines.
    """

    characters: NDArray[np.uint64]
    """Han character -> its code, and its node as the first of a word (2**18,)."""
    trie: NDArray[np.uint64]
    """The nodes of two characters and more (slots,)."""
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
    words = _Words(points, starts[of_han], lengths[of_han])
    return JiebaTables(*_trie(words, counts[of_han], scores[of_han]), 0.0 - total, *_model())


class _Words(NamedTuple):
    """Words `points[starts : starts + lengths]`."""

    points: NDArray[np.uint32]
    starts: NDArray[np.intp]
    lengths: NDArray[np.intp]


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
    words: _Words, counts: NDArray[np.int64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.float64]]:
    """`characters`, `trie` and `scores` of words, seen `counts` times."""
    edges, singles, node_scores = _nodes(words, scores)
    different, ranks = np.unique(node_scores, return_inverse=True)  # a single NaN, sorted last
    if different.size > 1 << SCORE_BITS:
        raise ValueError(f"jieba's dictionary has {different.size} different frequencies: too many")
    if edges.size > 1 << BASE_BITS - 1:
        raise ValueError(f"jieba's dictionary has {edges.size} beginnings of words: too many")
    parents, followers = np.divmod(edges, _HAN_END)
    codes = _codes(words, counts)
    places = codes[followers]
    bounds = np.flatnonzero(np.diff(parents, prepend=-1, append=-1))
    bases = np.zeros(node_scores.size, np.int64)
    bases[parents[bounds[:-1]]] = _bases(np.argsort(-np.diff(bounds), kind="stable"), bounds, places)
    if int(bases.max()) >= 1 << BASE_BITS:
        raise ValueError(f"the children in jieba's dictionary need {bases.max()} slots: too many")
    above = SCORE_BITS + BASE_BITS
    nodes = bases << SCORE_BITS | (ranks + 1) % different.size
    # Long enough for every look-up of a base and a code.
    trie = np.zeros(int(bases.max() + codes.max()) + 1, np.uint64)
    trie[bases[parents] + places] = bases[parents] << above | nodes[1 + singles.size :]
    characters = codes << above
    characters[singles] |= nodes[1 : 1 + singles.size]
    return characters.astype(np.uint64), trie, np.roll(different, 1)


def _nodes(
    words: _Words, scores: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Number the words and their prefixes from 1, ordered by length, parent and last character.

    Gives parent * _HAN_END + last character of each node of two characters and more, the characters of the
    nodes of one, and the score of each node number, NaN for what is no word.
    """
    points, starts, lengths = words
    nodes = np.zeros(starts.size, np.int64)
    levels: list[NDArray[np.int64]] = []
    node_scores = [np.full(1, np.nan)]
    count = 1
    for level in range(int(lengths.max())):
        longer = np.flatnonzero(lengths > level)
        keys, which = np.unique(
            nodes[longer] * _HAN_END + points[starts[longer] + level], return_inverse=True
        )
        nodes[longer] = count + which
        ending = lengths == level + 1
        own = np.full(keys.size, np.nan)
        own[nodes[ending] - count] = scores[ending]
        levels.append(keys)
        node_scores.append(own)
        count += keys.size
    return np.concatenate(levels[1:]), levels[0], np.concatenate(node_scores)


def _codes(words: _Words, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Character -> its code (2**18,): from 0 in order of how often it is seen inside words, after their first
    characters. Those that never are share the last code."""
    points, starts, lengths = words
    often = np.zeros(_HAN_END)
    for place in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > place)
        often += np.bincount(points[starts[longer] + place], counts[longer] + 1, _HAN_END)
    codes = np.empty(_HAN_END, np.int64)
    codes[np.argsort(-often, kind="stable")] = np.arange(_HAN_END)
    return np.minimum(codes, np.count_nonzero(often))


@compiled
def _bases(order: NDArray[np.intp], bounds: NDArray[np.intp], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """A base for each row `codes[bounds[row] : bounds[row + 1]]`: from 1, unique, and such that no two rows
    share a slot. Rows are placed in `order`, longest first, each into the first gap that fits (Tarjan and
    Yao, Storing a sparse table, 1979)."""
    taken = np.zeros(1 << BASE_BITS + 1, np.bool_)
    given = np.zeros(1 << BASE_BITS + 1, np.bool_)
    bases = np.empty(len(order), np.int64)
    base = longest = 0
    for row in order:
        own = codes[bounds[row] : bounds[row + 1]]
        # What did not fit a row hardly fits another one of nearly its length, so the search goes on from
        # there; it begins again for rows of half the length.
        if 2 * len(own) <= longest or not longest:
            base, longest = 0, len(own)
        base += 1
        while given[base] or not _fits(base, own, taken):
            base += 1
        for code in own:
            taken[base + code] = True
        given[base] = True
        bases[row] = base
    return bases


@compiled
def _fits(base: int, codes: NDArray[np.int64], taken: NDArray[np.bool_]) -> bool:
    place = 0
    while place < len(codes) and not taken[base + codes[place]]:
        place += 1
    return place == len(codes)


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
