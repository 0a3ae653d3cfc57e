"""Words and trees from labelled pages, and how good they are on hosts that they have not seen."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stream.text import content_model
from stream.text.block_features import COLUMNS, FEATURES, add_context, features
from stream.text.block_scores import chances, sums
from stream.text.blocks import SIZE
from stream.text.content_model import Model, made
from tests.learned_content import words
from tests.learned_content.boosting import learn
from tests.learned_content.pages import LabelledPage
from tests.learned_content.scores import by_passages, by_text

FOLDS = 5
TREES, LEAVES, RATE = 64, 14, 0.2
LIMITS = (-900, -600, -300, 0, 300)
"""Scores from which on blocks are kept, in thousandths of a natural logarithm."""

Rows = NDArray[np.int16]


def measured(pages: list[LabelledPage]) -> Iterator[str]:
    """Five folds by host, each scored by what the others teach: a line for each limit and set of pages."""
    of_page = {id(page): words.shares(page) for page in pages}
    scores: dict[int, NDArray[np.int32]] = {}
    firsts: dict[int, NDArray[np.int32]] = {}
    for number in range(FOLDS):
        others = [page for page in pages if fold(page.host) != number]
        own = [page for page in pages if fold(page.host) == number]
        model, _ = learned(others, of_page)
        for page in own:
            rows = rows_of(page, model)
            first = sums(rows, model.nodes, model.roots[0])
            firsts[id(page)] = first
            add_context(page.blocks.blocks, page.blocks.containers, chances(first), len(FEATURES), rows)
            scores[id(page)] = sums(rows, model.nodes, model.roots[1])
        sys.stderr.write(f"fold {number}: {len(others)} pages have taught {len(own)}\n")
    for name, found in (("one stage", firsts), ("two stages", scores)):
        for limit in LIMITS:
            yield f"{name}, limit {limit}: " + "; ".join(_line(pages, found, limit * 4096 // 1000))


def _line(pages: list[LabelledPage], scores: dict[int, NDArray[np.int32]], limit: int) -> Iterator[str]:
    for name in dict.fromkeys(page.set for page in pages):
        own = [page for page in pages if page.set == name]
        texts = [
            "\n".join(text for text, score in zip(page.texts, scores[id(page)], strict=True) if score > limit)
            for page in own
        ]
        rows = [page.row for page in own]
        figures = by_passages(rows, texts) if "with" in rows[0] else by_text(rows, texts)
        yield f"{name} {figures}"


def fold(host: str, folds: int = FOLDS, salt: str = "") -> int:
    return int(hashlib.blake2b((salt + host).encode()).hexdigest(), 16) % folds


def learned(
    pages: list[LabelledPage], of_page: dict[int, words.Shares]
) -> tuple[Model, tuple[list[str], list[str]]]:
    """A model, and its trees as they are written."""
    said = words.said(pages, of_page)
    own = []
    for page in pages:
        names, texts = words.weights(said, page.host, of_page[id(page)])
        own.append(rows_of(page, made(names, texts, BOXES, ([], []))))
    first = _trees(pages, own)
    # The second stage learns from scores that pages of other hosts give.
    for half in range(2):
        inside = [place for place, page in enumerate(pages) if fold(page.host, 2, "half") == half]
        outside = [place for place, page in enumerate(pages) if fold(page.host, 2, "half") != half]
        taught = made({}, {}, {}, (_trees([pages[i] for i in outside], [own[i] for i in outside]), []))
        for place in inside:
            blocks = pages[place].blocks
            scores = chances(sums(own[place], taught.nodes, taught.roots[0]))
            add_context(blocks.blocks, blocks.containers, scores, len(FEATURES), own[place])
    stages = (first, _trees(pages, own, COLUMNS))
    names, texts = words.weights(said)
    return made(names, texts, BOXES, stages), stages


def _trees(pages: list[LabelledPage], rows: list[Rows], columns: int = len(FEATURES)) -> list[str]:
    labels = np.concatenate([page.labels for page in pages])
    weights = []
    for page in pages:
        own = page.weights * np.log2(2 + page.blocks.blocks[:, SIZE]) / 5
        weights.append(own / max(1e-9, float(own.sum())) ** 0.5)
    mass = np.concatenate(weights)
    known = np.flatnonzero((labels >= 0) & (mass > 0))
    together = np.concatenate(rows)[known][:, :columns]
    return learn(together, labels[known], mass[known], trees=TREES, leaves=LEAVES, rate=RATE)


def rows_of(page: LabelledPage, model: Model) -> Rows:
    return features(page.blocks, model.names, model.words, model.boxes)


BOXES = content_model.boxes()


def write(pages: list[LabelledPage]) -> None:
    """Write the tables beside the program, learned from all pages."""
    of_page = {id(page): words.shares(page) for page in pages}
    _, stages = learned(pages, of_page)
    folder = Path(content_model.__file__).parent
    folder.joinpath(content_model.TREES).write_text("\n".join((*stages[0], "", *stages[1])) + "\n", "ascii")
    weights = words.weights(words.said(pages, of_page))
    kinds = zip(("name", "text"), weights, words.spellings(pages), strict=True)
    lines = [
        f"{kind} {spelled[key]} {weight}\n"
        for kind, own, spelled in kinds
        for key, weight in sorted(own.items(), key=lambda each: (each[1], spelled.get(each[0], "")))
        if key in spelled
    ]
    folder.joinpath(content_model.WORDS).write_text("".join(lines), "utf-8")
