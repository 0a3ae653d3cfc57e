"""Hashes of the tokens and units of normalised texts in one compiled loop over their code points.

Gives the same as `pieces` and `hash_ranges`, without their intermediate arrays. These remain for a single
page, whose command need not import the compiler (0.6 s), for user dictionaries, for `jieba` and for recipes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, inlined
from stream.fingerprint.keyed_hashes import GOLDEN, SIP_STATE, HashKeys, mix64, sip_rounds
from stream.fingerprint.tokens import Tokens
from stream.text.han_words import GAP, han_runs, word_starts
from stream.text.jieba_tables import jieba_tables
from stream.text.points import Points
from stream.text.segment import (
    ASCII,
    GRAM,
    HAN_CHARACTER,
    MARK,
    UNSPACED_CHARACTER,
    WIDE,
    kinds_of_characters,
)

_GOLDEN: Final = np.uint64(GOLDEN)
_NONE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_WORD: Final = np.uint64(0xFFFF_FFFF)
_SIP_0, _SIP_1, _SIP_2, _SIP_3 = map(np.uint64, SIP_STATE)
_mix = inlined(mix64)
_sip_rounds = inlined(sip_rounds)


def scanned_tokens(texts: Points, keys: HashKeys, unit_keys: HashKeys) -> Tokens:
    """Return the tokens and units of normalised texts, with Han runs cut as by rjieba with its own
    dictionary."""
    points, bounds = texts
    if points.dtype == np.uint8:
        narrow = points.astype(np.uint8, copy=False)
        sums, token_bounds = _scan_ascii(narrow, bounds, kinds_of_characters(), keys)
        units = _unit_hashes(sums, unit_keys)
        _pseudo_random(sums, keys)
        return Tokens(sums, token_bounds, units, token_bounds)
    wide, kinds = points.astype(np.uint32, copy=False), kinds_of_characters()
    # Separate calls rather than one: Numba's cache misses changes to functions inlined from other files.
    runs = han_runs(wide, kinds)
    sums, token_bounds, unit_sums, unit_bounds = _scan(
        wide, bounds, kinds, runs, word_starts(runs, jieba_tables()), keys
    )
    _pseudo_random(sums, keys)
    return Tokens(sums, token_bounds, _unit_hashes(unit_sums, unit_keys), unit_bounds)


@inlined
def _term(point: int, place: np.uint64, factors: NDArray[np.uint64], state: np.uint64) -> np.uint64:
    """Return what the character at `place` of a token adds to its sum."""
    if place < np.uint64(len(factors)):
        factor = np.uint64(factors[place])
    else:
        factor = _mix(state + (place + _ONE) * _GOLDEN) | _ONE
    return (np.uint64(point) + _ONE) * factor


@compiled
def _pseudo_random(values: NDArray[np.uint64], keys: HashKeys) -> None:
    """Apply `hashes.pseudo_random` in place. It is a loop of its own, so that the compiler vectorises it:
    1 ns a value."""
    left0, left1 = keys.left ^ _SIP_0, keys.left ^ _SIP_2
    right0, right1 = keys.right ^ _SIP_1, keys.right ^ _SIP_3
    for i in range(len(values)):
        values[i] = _sip_rounds(values[i], left0, right0, left1, right1)


@compiled
def _unit_hashes(sums: NDArray[np.uint64], keys: HashKeys) -> NDArray[np.uint32]:
    """Return the lowest 32 bits of `hashes.pseudo_random` of sums."""
    left0, left1 = keys.left ^ _SIP_0, keys.left ^ _SIP_2
    right0, right1 = keys.right ^ _SIP_1, keys.right ^ _SIP_3
    units = np.empty(len(sums), np.uint32)
    for i in range(len(sums)):
        units[i] = np.uint32(_sip_rounds(sums[i], left0, right0, left1, right1) & _WORD)
    return units


@compiled
def _scan_ascii(
    points: NDArray[np.uint8], bounds: NDArray[np.intp], kinds: NDArray[np.uint8], keys: HashKeys
) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Return the sums of the tokens of ASCII texts, and each text's bounds (texts + 1,)."""
    factors, state, added = keys.factors, keys.state, keys.added
    sums = np.empty(len(points) // 2 + 1, np.uint64)
    token_bounds = np.zeros(len(bounds), np.intp)
    tokens = _NONE
    for text in range(len(bounds) - 1):
        value, length = added, _NONE
        for i in range(bounds[text], bounds[text + 1]):  # including the NUL, which ends the last word
            # Without branches: where a word ends is not predictable, and a wrong guess costs as much as five
            # characters. What is stored before the end of a word is overwritten.
            point = points[i]
            inside = np.uint64(kinds[point] == ASCII)
            sums[tokens] = value
            tokens += np.uint64(length != _NONE) & ~inside
            value += _term(point, length, factors, state)
            length = (length + _ONE) * inside
            value = value if inside else added
        token_bounds[text + 1] = np.int64(tokens)
    return sums[:tokens], token_bounds


@compiled
def _scan(
    points: NDArray[np.uint32],
    bounds: NDArray[np.intp],
    kinds: NDArray[np.uint8],
    runs: NDArray[np.uint32],
    starts: NDArray[np.bool_],
    keys: HashKeys,
) -> tuple[NDArray[np.uint64], NDArray[np.intp], NDArray[np.uint64], NDArray[np.intp]]:
    """Return the fields of `Tokens`, with sums in place of hashes. `runs` are the Han runs among the points,
    `starts` the word starts in them."""
    factors, state, added = keys.factors, keys.state, keys.added
    texts = len(bounds) - 1
    sums, units = np.empty(len(points), np.uint64), np.empty(len(points), np.uint64)
    token_bounds, unit_bounds = np.zeros(texts + 1, np.intp), np.zeros(texts + 1, np.intp)
    tokens = count = place = 0
    for text in range(texts):
        i, end = bounds[text], bounds[text + 1] - 1
        while i < end:
            kind = kinds[points[i]]
            if kind in (ASCII, WIDE):
                value, length = added, _NONE
                while True:  # combining marks belong to the token of their base character
                    value += _term(points[i], length, factors, state)
                    length += _ONE
                    i += 1
                    if i == end or kinds[points[i]] not in (ASCII, WIDE, MARK):
                        break
                sums[tokens] = value
                tokens += 1
                units[count] = value
                count += 1
            elif kind == HAN_CHARACTER:
                value, length = added, _NONE
                while i < end and kinds[points[i]] == HAN_CHARACTER:
                    place += 1
                    place += runs[place] == GAP
                    sums[tokens] = value  # without branches, as above
                    begins = starts[place] and length != _NONE
                    tokens += begins
                    value = added if begins else value
                    length = _NONE if begins else length
                    units[count] = added + _term(points[i], _NONE, factors, state)
                    count += 1
                    value += _term(points[i], length, factors, state)
                    length += _ONE
                    i += 1
                sums[tokens] = value
                tokens += 1
            elif kind == UNSPACED_CHARACTER:
                first = i
                value, length = added, _NONE
                while i < end and kinds[points[i]] in (UNSPACED_CHARACTER, MARK):
                    if kinds[points[i]] == UNSPACED_CHARACTER and length != _NONE:
                        units[count] = value
                        count += 1
                        value, length = added, _NONE
                    value += _term(points[i], length, factors, state)
                    length += _ONE
                    i += 1
                units[count] = value
                count += 1
                for begin in range(first, max(first, i - GRAM) + 1):
                    value = added
                    for at in range(begin, min(begin + GRAM, i)):
                        value += _term(points[at], np.uint64(at - begin), factors, state)
                    sums[tokens] = value
                    tokens += 1
            else:
                i += 1
        token_bounds[text + 1], unit_bounds[text + 1] = tokens, count
    return sums[:tokens], token_bounds, units[:count], unit_bounds
