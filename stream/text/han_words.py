"""jieba's segmentation of Han runs as a compiled loop: code points in, word boundaries out.

Of all segmentations of a run into dictionary words the most probable one wins; of two equally probable ones,
the one with the longer first word. A sequence of single characters that this leaves is segmented by the
hidden Markov model, unless it is a dictionary word itself. The result equals that of `rjieba.cut`, which
takes three times as long, partly to build strings.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.jieba_tables import (
    BEGIN,
    END,
    FIRST_GUESSED,
    LAST_GUESSED,
    MIDDLE,
    MULTIPLIER,
    NODE_BITS,
    POINT_BITS,
    SINGLE,
    SLOT_BITS,
    JiebaTables,
)
from stream.text.segment import HAN_CHARACTER

GAP: Final = 0
"""Separates runs; not a character."""
_BLOCK: Final = 1024
"""Characters segmented at a time, so that the working arrays stay in the cache."""
_NONE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_POINT: Final = np.uint64(POINT_BITS)
_KEY: Final = np.uint64(NODE_BITS + 1)
_NODE: Final = np.uint64((1 << NODE_BITS + 1) - 1)
_SHIFT: Final = np.uint64(64 - SLOT_BITS)
_LAST_SLOT: Final = np.uint64((1 << SLOT_BITS) - 1)


@compiled
def han_runs(points: NDArray[np.uint32], kinds: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The Han runs of `points` in the form that `word_starts` takes. `kinds` maps code points to kinds
    (`stream.text.segment`)."""
    size = 0
    for point in points:
        size += kinds[point] == HAN_CHARACTER
    runs = np.empty(2 * size + 2, np.uint32)
    at = 0
    together = False
    for point in points:
        if kinds[point] != HAN_CHARACTER:
            together = False
            continue
        joined = bool(_joins(point))
        if not (together and joined):
            runs[at] = GAP
            at += 1
        runs[at] = point
        at += 1
        together = joined
    runs[at : at + 2] = GAP
    return runs[: at + 2]


@compiled
def _joins(point: np.uint32) -> np.bool_:
    """Whether rjieba looks the Han character up. It treats each of the others as a run of its own."""
    return (
        0x4E00 <= point < 0xA000
        or 0x3400 <= point < 0x4DC0
        or 0xF900 <= point < 0xFB00
        or 0x2_0000 <= point < 0x2_A6E0
        or 0x2_A700 <= point < 0x2_EBF0
        or 0x2_F800 <= point < 0x2_FA20
    )


@compiled
def word_starts(runs: NDArray[np.uint32], tables: JiebaTables) -> NDArray[np.bool_]:
    """Whether a word starts at each position of `runs` (h,): Han characters with a GAP before each run and
    two after the last."""
    starts = np.zeros(len(runs), np.bool_)
    begin = 0
    while begin < len(runs) - 2:
        end = min(begin + _BLOCK, len(runs) - 2)
        while runs[end] != GAP:
            end += 1
        _cut(runs[begin : end + 2], starts[begin:end], tables)
        begin = end
    return starts


@compiled
def _next(node: np.uint64, point: np.uint64, edges: NDArray[np.uint64]) -> np.uint64:
    """The child of a trie node by a character; 0 if there is none."""
    if not node & _ONE:
        return np.uint64(0)
    key = (node >> _ONE) << _POINT | point
    slot = key * MULTIPLIER >> _SHIFT
    while edges[slot]:
        if edges[slot] >> _KEY == key:
            return np.uint64(edges[slot] & _NODE)
        slot = slot + _ONE & _LAST_SLOT
    return np.uint64(0)


_F64: TypeAlias = NDArray[np.float64]
_Nodes: TypeAlias = NDArray[np.uint64]
_Known: TypeAlias = tuple[_F64, _Nodes, _F64, _Nodes, _F64]
"""The dictionary's entries for the one, two and three characters from each position on, each (h,): the score
of the one; node and score of the two; node and score of the three. A score is NaN where there is no word."""


@compiled
def _cut(runs: NDArray[np.uint32], starts: NDArray[np.bool_], tables: JiebaTables) -> None:
    """Segment the runs of one block, writing `starts`. `runs` is two longer than `starts`: anything beyond
    the GAP that ends the block is not read as text."""
    known = _look_up(runs, len(starts), tables)
    until = _most_probable(runs, known, tables)
    _guess(runs, starts, _mark_words(runs, starts, until, known[1], tables), tables)


@compiled
def _look_up(runs: NDArray[np.uint32], size: int, tables: JiebaTables) -> _Known:
    """Look up all words of one, two and three characters. These look-ups are independent of each other, so
    their cache misses overlap. One chain of look-ups after another takes twice as long."""
    edges, ranks, scores = tables.edges, tables.ranks, tables.scores
    pairs, threes = np.empty(size, np.uint64), np.empty(size, np.uint64)
    ones, pair_scores, three_scores = np.empty(size), np.empty(size), np.empty(size)
    for i in range(size):
        node = np.uint64(tables.first[runs[i]])
        ones[i] = scores[ranks[np.int64(node >> _ONE)]]
        pairs[i] = _next(node, np.uint64(runs[i + 1]), edges)
    for i in range(size):
        pair_scores[i] = scores[ranks[np.int64(pairs[i] >> _ONE)]]
        threes[i] = _next(pairs[i], np.uint64(runs[i + 2]), edges)
    for i in range(size):
        three_scores[i] = scores[ranks[np.int64(threes[i] >> _ONE)]]
    return ones, pairs, pair_scores, threes, three_scores


@compiled
def _most_probable(runs: NDArray[np.uint32], known: _Known, tables: JiebaTables) -> NDArray[np.int64]:
    """Where the first word ends in the most probable segmentation from each character to the end of its run.

    Dynamic programming, backwards: `best` is the score of that segmentation. NaN, the score of what is no
    word, fails every comparison. Gives an array (h + 1,).
    """
    edges, ranks, scores = tables.edges, tables.ranks, tables.scores
    ones, pairs, pair_scores, threes, three_scores = known
    size = len(ones)
    best, until = np.zeros(size + 1), np.empty(size + 1, np.int64)
    for i in range(size - 1, -1, -1):
        if runs[i] == GAP:
            continue
        top, place = -np.inf, i + 1
        if ones[i] + best[i + 1] >= top:
            top = ones[i] + best[i + 1]
        if pairs[i]:
            if pair_scores[i] + best[i + 2] >= top:
                top, place = pair_scores[i] + best[i + 2], i + 2
            node, j = threes[i], i + 3
            score = three_scores[i]
            while node:
                if score + best[j] >= top:
                    top, place = score + best[j], j
                node = _next(node, np.uint64(runs[j]), edges)
                score = scores[ranks[np.int64(node >> _ONE)]]
                j += 1
        if top == -np.inf:
            top = tables.unknown + best[i + 1]
        best[i], until[i] = top, place
    return until


@compiled
def _mark_words(
    runs: NDArray[np.uint32],
    starts: NDArray[np.bool_],
    until: NDArray[np.int64],
    pairs: NDArray[np.uint64],
    tables: JiebaTables,
) -> NDArray[np.int64]:
    """Mark the words of the most probable segmentation, which end at `until`. Gives the bounds (g, 2) of the
    sequences of single characters that are left to the hidden Markov model.

    A sequence that is a word of the dictionary stays single characters, as in jieba.
    """
    size = len(starts)
    unknown = np.empty((size // 2 + 1, 2), np.int64)
    guesses = 0
    i = left = 0
    while i <= size:
        if i < size and runs[i] != GAP and until[i] == i + 1:
            i += 1
            continue
        # A sequence of single characters, runs[left:i], ends here.
        single = i == left + 1
        if single or (left < i and pairs[left] and _is_word(runs[left + 2 : i], pairs[left], tables)):
            starts[left:i] = True
        elif left < i:
            guesses = _split(runs, starts, left, i, unknown, guesses)
        if i < size and runs[i] != GAP:
            starts[i] = True
            i = until[i]
        else:
            i += 1
        left = i
    return unknown[:guesses]


@compiled
def _split(
    runs: NDArray[np.uint32],
    starts: NDArray[np.bool_],
    left: int,
    right: int,
    unknown: NDArray[np.int64],
    guesses: int,
) -> int:
    """Split single characters runs[left:right] into those that the model knows and others. Appends the bounds
    of the known ones to `unknown`, which has `guesses` already; gives their new number."""
    while left < right:
        end = left + 1
        guessed = FIRST_GUESSED <= runs[left] <= LAST_GUESSED
        while end < right and (FIRST_GUESSED <= runs[end] <= LAST_GUESSED) == guessed:
            end += 1
        starts[left] = True
        if guessed and end > left + 1:
            unknown[guesses] = left, end
            guesses += 1
        left = end
    return guesses


@compiled
def _is_word(run: NDArray[np.uint32], node: np.uint64, tables: JiebaTables) -> bool:
    """Whether the characters of the node followed by those of `run` make a dictionary word."""
    for point in run:
        node = _next(node, np.uint64(point), tables.edges)
    return not np.isnan(tables.scores[tables.ranks[np.int64(node >> _ONE)]])


@compiled
def _guess(
    runs: NDArray[np.uint32],
    starts: NDArray[np.bool_],
    unknown: NDArray[np.int64],
    tables: JiebaTables,
) -> None:
    """Segment the sequences of bounds `unknown` (g, 2) with the hidden Markov model (Viterbi's algorithm). Of
    two equally probable states the second wins, as in jieba."""
    entered, followed, emitted = tables.entered, tables.followed, tables.emitted
    before = np.empty((len(runs), 4), np.uint8)
    for which in range(len(unknown)):
        first, stop = unknown[which]
        row = np.int64(runs[first]) - FIRST_GUESSED
        begin, end = entered[BEGIN] + emitted[row, BEGIN], entered[END] + emitted[row, END]
        middle, single = entered[MIDDLE] + emitted[row, MIDDLE], entered[SINGLE] + emitted[row, SINGLE]
        for i in range(first + 1, stop):
            row = np.int64(runs[i]) - FIRST_GUESSED
            # BEGIN and SINGLE follow END or SINGLE ...
            one = end + followed[END, BEGIN] + emitted[row, BEGIN]
            two = single + followed[SINGLE, BEGIN] + emitted[row, BEGIN]
            before[i, BEGIN] = END if one > two else SINGLE
            next_begin = max(one, two)
            one = end + followed[END, SINGLE] + emitted[row, SINGLE]
            two = single + followed[SINGLE, SINGLE] + emitted[row, SINGLE]
            before[i, SINGLE] = END if one > two else SINGLE
            next_single = max(one, two)
            # ... and END and MIDDLE follow BEGIN or MIDDLE.
            one = begin + followed[BEGIN, END] + emitted[row, END]
            two = middle + followed[MIDDLE, END] + emitted[row, END]
            before[i, END] = BEGIN if one > two else MIDDLE
            end = max(one, two)
            one = begin + followed[BEGIN, MIDDLE] + emitted[row, MIDDLE]
            two = middle + followed[MIDDLE, MIDDLE] + emitted[row, MIDDLE]
            before[i, MIDDLE] = BEGIN if one > two else MIDDLE
            middle = max(one, two)
            begin, single = next_begin, next_single
        reached = END if end > single else SINGLE
        for i in range(stop - 1, first, -1):
            reached = int(before[i, reached])
            starts[i] = reached in (END, SINGLE)
