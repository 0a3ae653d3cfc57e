"""Han runs are cut as rjieba cuts them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import rjieba

from stream.text.characters import HAN
from stream.text.han_words import GAP, han_runs, word_starts
from stream.text.jieba_tables import BASE_BITS, FIRST_GUESSED, LAST_GUESSED, SCORE_BITS, jieba_tables
from stream.text.segment import HAN_CHARACTER

POINTS = [point for start, end in HAN for point in range(start, end)]
EDGES = [point for start, end in HAN for point in (start, end - 1)]
EDGES += [0x9FD5, 0x9FD6, 0x2A6DF, 0x2A6E0, 0x2A700, 0x2EBEF, 0x2EBF0, 0x2F800, 0x2FA1F, 0x2FA20]

BASES = np.uint64((1 << BASE_BITS) - 1 << SCORE_BITS)
"""The bits of a node that are 0 if it has no children."""
KINDS = np.zeros(0x11_0000, np.uint8)
KINDS[POINTS] = HAN_CHARACTER  # also where no character is assigned yet


def cut(text: str) -> list[str]:
    """The words of runs with spaces between them."""
    runs = han_runs(np.array(list(map(ord, text)), np.uint32), KINDS)
    starts = word_starts(runs, jieba_tables())
    found: list[str] = []
    for point, start in zip(runs.tolist(), starts.tolist(), strict=True):
        if start:
            found.append(chr(point))
        elif point != GAP:
            found[-1] += chr(point)
    return found


def said(text: str) -> list[str]:
    return [word for word in rjieba.cut(text) if word != " "]


def words() -> list[str]:
    """About a thousand words, from jieba's segmentation of all common characters."""
    rng = random.Random(1)
    common = [chr(point) for point in np.flatnonzero(jieba_tables().characters[:0xA000] & BASES).tolist()]
    return [word for _ in range(2000) for word in rjieba.cut("".join(rng.choices(common, k=6)))]


@pytest.mark.parametrize("sort", ["words", "broken words", "characters", "repeated", "rare"])
def test_words_are_those_of_rjieba(sort: str) -> None:
    rng = random.Random(sort)
    known = words()
    characters = "".join(known)
    differing = []
    for _ in range(1500):
        text = "".join(rng.choices(known, k=rng.randint(1, 6)))
        if sort == "broken words":
            place = rng.randrange(len(text))
            text = text[:place] + rng.choice(characters) + text[place + 1 :]
        elif sort == "characters":
            text = "".join(rng.choices(characters, k=rng.randint(1, 12)))
        elif sort == "repeated":  # where many ways of cutting are nearly equal
            text = "".join(rng.choices(rng.choice(known) + rng.choice(known), k=rng.randint(1, 12)))
        elif sort == "rare":
            text += "".join(map(chr, rng.choices(POINTS, k=3) + rng.choices(EDGES, k=2))) + rng.choice(known)
        text = f"{text} {rng.choice(known)}"
        if cut(text) != said(text):
            differing.append((text, cut(text), said(text)))
    assert differing == []


def test_a_long_run_is_cut_as_rjieba_cuts_it() -> None:
    text = "".join(words() * 3)
    assert cut(text) == said(text)


def test_every_character_is_guessed_as_rjieba_guesses_it() -> None:
    differing = []
    for point in range(FIRST_GUESSED, LAST_GUESSED + 1):
        text = f"{chr(point)}汛緩 奴螂{chr(point)}"
        if cut(text) != said(text):
            differing.append((text, cut(text), said(text)))
    assert differing == []
