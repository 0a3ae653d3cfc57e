"""Made pages with near-duplicates planted among them, and which pairs of them are alike, counted out.

Of the pages, half are like no other; a quarter are originals with one to five edited copies, at J of .62 to
1; a tenth are chains, in which each page is edited from the one before it; the rest are sites, whose pages
share a template but are not alike, some of them with an edited copy. Their order in the files is random.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

LENGTH: Final = 5
"""Words of a shingle."""
LEAST: Final = 0.7
"""Pairs of a lower similarity are not listed."""
VOCABULARY: Final = 50_000
MEDIAN, SPREAD, SHORTEST, LONGEST = 150, 0.6, 40, 900
"""Words of a page: log-normal, within bounds."""
SHARES: Final = {"plain": 0.5, "copies": 0.25, "chains": 0.1, "sites": 0.15}
FILES: Final = 2
SEED: Final = 9

Words = NDArray[np.uint16]
Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""The earlier page, the later one, and their similarity."""


class PageMaker:
    """Draws pages as numbers of words."""

    def __init__(self, seed: int = SEED) -> None:
        self._rng = np.random.default_rng(seed)
        shares = 1 / np.arange(10, VOCABULARY + 10)
        self._heads = np.cumsum(shares / shares.sum())
        self._multipliers = self._rng.integers(0, 1 << 63, LENGTH, dtype=np.uint64) * np.uint64(
            2
        ) + np.uint64(1)
        self.vocabulary = self._spell()

    def _spell(self) -> list[str]:
        """Distinct words of syllables; some end a sentence or a clause."""
        rng, words = self._rng, dict[str, None]()
        onsets, vowels, ends = "bcdfghklmnprstvwz", "aeiou", ["", "", "n", "r", "s", "l", "t", "nd"]
        while len(words) < VOCABULARY:
            syllables = rng.integers(1, 4) if len(words) < 500 else rng.integers(2, 5)
            parts = ("".join((rng.choice(list(onsets)), rng.choice(list(vowels)))) for _ in range(syllables))
            words["".join(parts) + str(rng.choice(ends))] = None
        marks = rng.choice(["", ".", ","], VOCABULARY, p=[0.87, 0.08, 0.05])
        return [word + mark for word, mark in zip(words, marks.tolist(), strict=True)]

    def words(self, count: int) -> Words:
        """So many words drawn at random."""
        return np.searchsorted(self._heads, self._rng.random(count)).astype(np.uint16)

    def page(self) -> Words:
        """A page of a length drawn at random."""
        length = MEDIAN * np.exp(SPREAD * self._rng.standard_normal())
        return self.words(int(np.clip(length, SHORTEST, LONGEST)))

    def shingles(self, words: Words) -> NDArray[np.uint64]:
        """The distinct shingles of a page as 64-bit numbers."""
        windows = np.lib.stride_tricks.sliding_window_view(words, LENGTH).astype(np.uint64)
        return np.unique((windows * self._multipliers).sum(axis=1, dtype=np.uint64))

    def edited(self, words: Words, similarity: float, *, ends: bool = True) -> Words:
        """A copy that is about so similar; `ends` allows edits that change its length."""
        rng, count = self._rng, len(words) - LENGTH + 1
        lost = max(1, round(count * (1 - similarity) / (1 + similarity)))
        kind = rng.integers(4) if ends else rng.integers(2)
        copy = words.copy()
        if kind == 0 or (kind == 1 and lost < LENGTH):  # words here and there
            changed = rng.choice(len(words), max(1, round(lost / LENGTH)), replace=False)
            copy[changed] = self.words(len(changed))
        elif kind == 1:  # a passage
            size = lost - LENGTH + 1
            first = rng.integers(0, len(words) - size + 1)
            copy[first : first + size] = self.words(size)
        elif kind == 2:  # the end is cut off
            copy = copy[: max(SHORTEST // 2, len(words) - max(1, round(count * (1 - similarity))))]
        else:  # a passage more
            size = max(1, round(count / similarity - count))
            copy = np.insert(copy, rng.integers(0, len(words)), self.words(size))
        return copy

    def similarity(self, one: NDArray[np.uint64], two: NDArray[np.uint64]) -> float:
        """J of two sets of shingles."""
        both = np.intersect1d(one, two, assume_unique=True).size
        return both / (one.size + two.size - both)


def _copies(maker: PageMaker, rng: np.random.Generator) -> list[Words]:
    original = maker.page()
    similarities = rng.uniform(0.62, 1, rng.integers(1, 6))
    equal = rng.random(len(similarities)) < 0.15
    return [
        original,
        *(
            original if same else maker.edited(original, at)
            for at, same in zip(similarities.tolist(), equal.tolist(), strict=True)
        ),
    ]


def _chain(maker: PageMaker, rng: np.random.Generator) -> list[Words]:
    pages = [maker.page()]
    for at in rng.uniform(0.83, 0.95, rng.integers(2, 8)).tolist():
        pages.append(maker.edited(pages[-1], at))
    return pages


def _site(maker: PageMaker, rng: np.random.Generator) -> tuple[list[Words], list[tuple[int, int]]]:
    """Pages of one template, and which of them are copies of which. Two others are less than `LEAST` alike:
    what they share are the template's shingles."""
    head, foot = maker.words(int(rng.integers(30, 120))), maker.words(int(rng.integers(30, 120)))
    shared = len(head) + len(foot) - 2 * (LENGTH - 1)
    at = rng.uniform(0.3, 0.68)
    own = round(shared * (1 + at) / (2 * at)) + LENGTH - 1 - len(head) - len(foot)
    pages = [
        np.concatenate([head, maker.words(round(own * rng.uniform(1, 1.2))), foot])
        for _ in range(int(rng.integers(20, 200)))
    ]
    copied = np.flatnonzero(rng.random(len(pages)) < 0.2).tolist()
    pairs = [(number, len(pages) + place) for place, number in enumerate(copied)]
    pages += [maker.edited(pages[number], rng.uniform(0.7, 1), ends=False) for number in copied]
    return pages, pairs


def _families(maker: PageMaker, kind: str, count: int) -> Iterator[tuple[list[Words], list[tuple[int, int]]]]:
    """Yield families of one kind, `count` pages in all, and the pairs of each that may be alike."""
    rng = np.random.default_rng([SEED, list(SHARES).index(kind)])
    while count > 0:
        if kind == "sites":
            pages, pairs = _site(maker, rng)
        else:
            pages = (
                {"copies": _copies, "chains": _chain}[kind](maker, rng) if kind != "plain" else [maker.page()]
            )
            pairs = list(combinations(range(min(len(pages), count)), 2))
        pages = pages[:count]
        count -= len(pages)
        yield pages, [(one, two) for one, two in pairs if two < len(pages)]


def make(directory: Path, count: int) -> tuple[list[Path], Pairs]:
    """Make the files with so many pages, unless they are there, and list all pairs at least `LEAST` alike.

    A line has `id`, the page's number in the order of the files, and `text`.
    """
    files = [directory / f"pages-{number}.jsonl" for number in range(FILES)]
    truth = directory / "truth.npz"
    if not truth.exists():
        directory.mkdir(parents=True, exist_ok=True)
        _write(files, truth, count)
    with np.load(truth) as pairs:
        return files, (pairs["earlier"], pairs["later"], pairs["similarity"])


def _write(files: list[Path], truth: Path, count: int) -> None:
    maker, every = PageMaker(), list[Words]()
    order = np.random.default_rng(SEED).permutation(count)
    """The place of each page in the files."""
    alike: list[tuple[int, int, float]] = []
    for number, (kind, share) in enumerate(SHARES.items()):
        rest = count - len(every)
        for pages, pairs in _families(
            maker, kind, rest if number == len(SHARES) - 1 else round(share * count)
        ):
            first = len(every)
            every += pages
            shingles = {
                place: maker.shingles(pages[place]) for place in {each for pair in pairs for each in pair}
            }
            for one, two in pairs:
                similarity = maker.similarity(shingles[one], shingles[two])
                if similarity >= LEAST:
                    alike.append((int(order[first + one]), int(order[first + two]), similarity))
    places = np.argsort(order)
    vocabulary = np.array(maker.vocabulary, dtype=object)
    for file, numbers in zip(files, np.array_split(np.arange(count), len(files)), strict=True):
        with file.open("w", encoding="utf-8") as lines:
            for number in numbers.tolist():
                text = " ".join(vocabulary[every[places[number]]].tolist())
                lines.write(json.dumps({"id": f"{number:08}", "text": text}) + "\n")
    ends = np.array([(min(one, two), max(one, two)) for one, two, _ in alike], np.int64).reshape(-1, 2)
    similarities = np.array([each for _, _, each in alike])
    partial = truth.with_suffix(".partial.npz")
    np.savez(partial, earlier=ends[:, 0], later=ends[:, 1], similarity=similarities)
    partial.rename(truth)
