"""jieba's segmentation of Han runs as a compiled loop: code points in, word boundaries out.

Of all segmentations of a run into dictionary words the most probable one wins; of two equally probable ones,
the one with the longer first word. A sequence of single characters that this leaves is segmented by the
hidden Markov model, unless it is a dictionary word itself. The result equals that of `rjieba.cut`, which
takes three times as long, partly to build strings.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.jieba_tables import (
    BASE_BITS,
    BEGIN,
    END,
    FIRST_GUESSED,
    LAST_GUESSED,
    MIDDLE,
    SCORE_BITS,
    SINGLE,
    JiebaTables,
)
from stream.text.segment import HAN_CHARACTER

GAP: Final = 0
"""Separates runs; not a character."""
_BLOCK: Final = 1024
"""Characters segmented at a time, so that the working arrays stay in the cache."""
_SCORE: Final = np.uint64(SCORE_BITS)
_ABOVE: Final = np.uint64(SCORE_BITS + BASE_BITS)
_SCORE_MASK: Final = np.uint64((1 << SCORE_BITS) - 1)
_BASE_MASK: Final = np.uint64((1 << BASE_BITS) - 1)


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
def _next(node: np.uint64, character: np.uint64, trie: NDArray[np.uint64]) -> np.uint64:
    """The child of a node by a character, an element of `JiebaTables.characters`; 0 if there is none."""
    base = node >> _SCORE & _BASE_MASK
    child = trie[np.int64(base + (character >> _ABOVE))]
    return child if child >> _ABOVE == base else np.uint64(0)


@compiled
def _score(node: np.uint64, scores: NDArray[np.float64]) -> np.float64:
    """Log probability of a node's word; NaN if it is no word."""
    return np.float64(scores[np.int64(node & _SCORE_MASK)])


@compiled
def _cut(runs: NDArray[np.uint32], starts: NDArray[np.bool_], tables: JiebaTables) -> None:
    """Segment the runs of one block, writing `starts`. `runs` is two longer than `starts`: anything beyond
    the GAP that ends the block is not read as text."""
    characters = np.empty(len(runs), np.uint64)
    for i in range(len(runs)):
        characters[i] = tables.characters[runs[i]]
    until = _most_probable(runs, characters, tables)
    _guess(runs, starts, _mark_words(runs, starts, until, characters, tables), tables)


@compiled
def _most_probable(
    runs: NDArray[np.uint32], characters: NDArray[np.uint64], tables: JiebaTables
) -> NDArray[np.int64]:
    """Where the first word ends in the most probable segmentation from each character to the end of its run.

    Dynamic programming, backwards: `best` is the score of that segmentation. NaN, the score of what is no
    word, fails every comparison. Gives an array (h + 1,).
    """
    trie, scores = tables.trie, tables.scores
    size = len(characters) - 2
    # Words of two characters are looked up first: these look-ups are independent of each other, so that their
    # cache misses overlap.
    pairs = np.empty(size, np.uint64)
    for i in range(size):
        pairs[i] = _next(characters[i], characters[i + 1], trie)
    best, until = np.zeros(size + 2), np.empty(size + 1, np.int64)
    for i in range(size - 1, -1, -1):
        if runs[i] == GAP:
            continue
        top, place = -np.inf, i + 1
        one, two = _score(characters[i], scores) + best[i + 1], _score(pairs[i], scores) + best[i + 2]
        if one >= top:
            top = one
        if two >= top:
            top, place = two, i + 2
        node, j = _next(pairs[i], characters[i + 2], trie), i + 3
        while node:
            score = _score(node, scores) + best[j]
            if score >= top:
                top, place = score, j
            node = _next(node, characters[j], trie)
            j += 1
        best[i] = top if top > -np.inf else tables.unknown + best[i + 1]
        until[i] = place
    return until


@compiled
def _mark_words(
    runs: NDArray[np.uint32],
    starts: NDArray[np.bool_],
    until: NDArray[np.int64],
    characters: NDArray[np.uint64],
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
        if single or (left < i and _is_word(characters[left:i], tables)):
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
def _is_word(characters: NDArray[np.uint64], tables: JiebaTables) -> bool:
    """Whether the characters make a dictionary word."""
    node = characters[0]
    for i in range(1, len(characters)):
        node = _next(node, characters[i], tables.trie)
    return not np.isnan(_score(node, tables.scores))


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
