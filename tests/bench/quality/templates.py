"""Pages that share a template by the thousand, and planted copies of them.

Rust's documentation, whose tags are stripped, so that its template stays in the texts. `make bench` fetches
it.
"""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.quality import environments
from tests.bench.quality.truth import LENGTH, shingles

LEAST_WORDS: Final = 20
"""A page of fewer words is left out."""
SIMILAR: Final = (0.82, 0.95)
"""Bounds of the similarity of a copy to its page."""
_TRIES: Final = 3
"""To plant a copy within the bounds; of a short page one word may be too many."""
_WORD = re.compile(r"\S+")
_NOT_TEXT: Final = r"<(?:script|style)\b.*?</(?:script|style)>|<!--.*?-->|<[^>]+>"
_MARKUP = re.compile(f"({_NOT_TEXT})", re.DOTALL | re.IGNORECASE)


class PlantedSet(NamedTuple):
    """Pages in random order, and copies of some of them."""

    pages: list[str]
    copies: list[str]
    originals: list[int]
    """For each copy, the number of its page."""
    similarity: list[float]
    """For each copy, its true similarity to that page."""


def rust_pages() -> list[str]:
    """Texts of Rust's documentation; empty where `make bench` has not fetched it."""
    package = environments.rust_documentation()
    if package is None:
        return []
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        subprocess.run(["dpkg", "-x", str(package), directory], check=True)
        paths = sorted(path for path in Path(directory).rglob("*.html") if not path.is_symlink())
        pages = (_stripped(path.read_text("utf-8", "replace")) for path in paths)
        return [page for page in pages if len(page.split()) >= LEAST_WORDS]


def plant(pages: list[str], count: int, copies: int, seed: int) -> PlantedSet:
    """Choose `count` of the pages and plant at most one copy of each, `copies` at most.

    A copy has some words replaced by words of other pages, evenly between the bounds of SIMILAR. A page that
    is too short to be copied within them has no copy.
    """
    rng = random.Random(seed)
    pages = rng.sample(pages, min(count, len(pages)))
    vocabulary = sorted({word for page in pages[:2000] for word in page.split() if word.isalnum()})
    planted = PlantedSet(pages, [], [], [])
    for number, page in enumerate(pages):
        if len(planted.copies) == copies:
            break
        units = set(shingles(page))
        for _ in range(_TRIES):
            copy = _with_words_replaced(page, rng.uniform(*SIMILAR), vocabulary, rng)
            similarity = jaccard(units, set(shingles(copy)))
            if SIMILAR[0] <= similarity <= SIMILAR[1]:
                planted.copies.append(copy)
                planted.originals.append(number)
                planted.similarity.append(similarity)
                break
    return planted


def _with_words_replaced(page: str, similarity: float, vocabulary: list[str], rng: random.Random) -> str:
    """A copy whose shingles are expected to have this similarity to those of the page: each word is replaced
    with the same probability, and a shingle stays if all of its words do."""
    share = 1 - (2 * similarity / (1 + similarity)) ** (1 / LENGTH)
    return _WORD.sub(lambda word: rng.choice(vocabulary) if rng.random() < share else word[0], page)


def jaccard(one: set[str], two: set[str]) -> float:
    """The similarity of two sets, of which one is not empty."""
    both = len(one & two)
    return both / (len(one) + len(two) - both)


def _stripped(html: str) -> str:
    return " ".join(unescape(_MARKUP.sub(" ", html)).split())
