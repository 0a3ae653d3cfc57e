"""Runs of Han characters -> where words start: jieba's way of cutting, without an object a word.

Of all ways to cut a run into words of the dictionary the likeliest is taken, each word counting by its share
among all words (the longer first word where two are equal). What it leaves as single characters in a row is
cut by the hidden Markov model, unless it is a word itself. The result is `rjieba.cut`'s; rjieba needs three
times as long, part of it for strings.
"""

from __future__ import annotations

from typing import Final

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
    jieba_tables,
)

_JOINED: Final = (
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x2_0000, 0x2_A6E0),
    (0x2_A700, 0x2_EBF0),
    (0x2_F800, 0x2_FA20),
)
"""Half-open ranges of the characters that rjieba looks up; all others stand alone."""
_JOINS: Final = np.zeros(1 << POINT_BITS, np.bool_)
for _start, _end in _JOINED:
    _JOINS[_start:_end] = True
_ONE: Final = np.uint64(1)
_POINT: Final = np.uint64(POINT_BITS)
_KEY: Final = np.uint64(NODE_BITS + 1)
_NODE: Final = np.uint64((1 << NODE_BITS + 1) - 1)
_SHIFT: Final = np.uint64(64 - SLOT_BITS)
_LAST_SLOT: Final = np.uint64((1 << SLOT_BITS) - 1)


def word_starts(han: NDArray[np.uint32], places: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether a word starts at each of the Han characters `han` (h,), at the ascending `places` (h,) of a
    text: characters at successive places make a run."""
    return _word_starts(han, places, jieba_tables())


@compiled
def _next(node: np.uint64, point: np.uint64, edges: NDArray[np.uint64]) -> np.uint64:
    """The node that a character leads to."""
    if not node & _ONE:
        return np.uint64(0)
    key = (node >> _ONE) << _POINT | point
    slot = key * MULTIPLIER >> _SHIFT
    while edges[slot]:
        if edges[slot] >> _KEY == key:
            return np.uint64(edges[slot] & _NODE)
        slot = slot + _ONE & _LAST_SLOT
    return np.uint64(0)


@compiled
def _is_word(run: NDArray[np.uint32], tables: JiebaTables) -> bool:
    node = np.uint64(tables.first[run[0]])
    for i in range(1, len(run)):
        node = _next(node, np.uint64(run[i]), tables.edges)
    return not np.isnan(tables.scores[np.int64(node >> _ONE)])


@compiled
def _guess(
    run: NDArray[np.uint32],
    starts: NDArray[np.bool_],
    before: NDArray[np.uint8],
    tables: JiebaTables,
) -> None:
    """Viterbi's algorithm; the second of two states that are equal wins, as in jieba."""
    scores, last = np.empty(4), np.empty(4)
    for state in range(4):
        last[state] = tables.entered[state] + tables.emitted[run[0] - FIRST_GUESSED, state]
    for i in range(1, len(run)):
        for state in range(4):
            if state in (BEGIN, SINGLE):
                one, two = END, SINGLE
            else:
                one, two = BEGIN, MIDDLE
            probability = tables.emitted[run[i] - FIRST_GUESSED, state]
            by_one = last[one] + tables.followed[one, state] + probability
            by_two = last[two] + tables.followed[two, state] + probability
            before[i, state] = one if by_one > by_two else two
            scores[state] = max(by_one, by_two)
        last[:] = scores
    reached = END if last[END] > last[SINGLE] else SINGLE
    for i in range(len(run) - 1, 0, -1):
        reached = int(before[i, reached])
        starts[i] = reached in (END, SINGLE)
    starts[0] = True


@compiled
def _cut_singles(
    run: NDArray[np.uint32],
    starts: NDArray[np.bool_],
    before: NDArray[np.uint8],
    tables: JiebaTables,
) -> None:
    """Cut what the dictionary leaves as single characters."""
    if len(run) == 1 or _is_word(run, tables):
        starts[:] = True
        return
    begin = 0
    while begin < len(run):
        guessed = FIRST_GUESSED <= run[begin] <= LAST_GUESSED
        end = begin + 1
        while end < len(run) and (FIRST_GUESSED <= run[end] <= LAST_GUESSED) == guessed:
            end += 1
        if guessed:
            _guess(run[begin:end], starts[begin:end], before, tables)
        else:
            starts[begin] = True
        begin = end


@compiled
def _word_starts(
    han: NDArray[np.uint32],
    places: NDArray[np.intp],
    tables: JiebaTables,
) -> NDArray[np.bool_]:
    starts = np.zeros(len(han), np.bool_)
    longest = 256
    best, until = np.empty(longest + 1), np.empty(longest + 1, np.int64)
    before = np.empty((longest, 4), np.uint8)
    begin = 0
    while begin < len(han):
        end = begin + 1
        if not _JOINS[han[begin]]:
            starts[begin] = True
            begin = end
            continue
        while end < len(han) and places[end] == places[end - 1] + 1 and _JOINS[han[end]]:
            end += 1
        size = end - begin
        if size > longest:
            longest = 2 * size
            best, until = np.empty(longest + 1), np.empty(longest + 1, np.int64)
            before = np.empty((longest, 4), np.uint8)
        run, own = han[begin:end], starts[begin:end]
        # From the run's end on: the best score from each character on, and where its first word ends.
        best[size] = 0.0
        for i in range(size - 1, -1, -1):
            top, place = -np.inf, 0
            node = np.uint64(tables.first[run[i]])
            j = i + 1
            while node:
                score = tables.scores[np.int64(node >> _ONE)] + best[j]
                if score >= top:  # never of NaN, which is no word
                    top, place = score, j
                if j == size:
                    break
                node = _next(node, np.uint64(run[j]), tables.edges)
                j += 1
            if not place:
                top, place = tables.unknown + best[i + 1], i + 1
            best[i], until[i] = top, place
        i = left = 0
        while i < size:
            if until[i] > i + 1:
                if left < i:
                    _cut_singles(run[left:i], own[left:i], before, tables)
                own[i] = True
                left = until[i]
            i = until[i]
        if left < size:
            _cut_singles(run[left:size], own[left:size], before, tables)
        begin = end
    return starts
