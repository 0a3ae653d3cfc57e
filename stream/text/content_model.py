"""The tables by which blocks are scored: words with their weights, and trees of two stages.

`content_words.txt` and `content_trees.txt` were learned from pages of which main content is known, by
`tests/learned_content`; `box_words.txt` was written by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.text.block_features import STEM
from stream.text.blocks import HASH_START

_FOLDER: Final = Path(__file__).parent
WORDS: Final = "content_words.txt"
"""Per line the kind of a word (`name`, of a class and the like, or `text`), the word, and its weight."""
BOX_WORDS: Final = "box_words.txt"
TREES: Final = "content_trees.txt"
"""Per line a tree of a stage, in preorder: `column:threshold` of a split, whose left part has values up to
the threshold, or the value of a leaf. An empty line divides the stages."""
CONSENT_WORD, BOX_WORD = 1, 2


class Model(NamedTuple):
    """Arrays, as compiled loops take them."""

    names: NDArray[np.int32]
    """Hash table of weights of names: keys and values (2, slots)."""
    words: NDArray[np.int32]
    boxes: NDArray[np.int32]
    """Hash table of CONSENT_WORD and BOX_WORD."""
    nodes: NDArray[np.int16]
    """Nodes of all trees: column (-1 for a leaf), threshold or value, number of the right part's first node.
    The left part's follows. Shape (3, nodes)."""
    roots: tuple[NDArray[np.int32], NDArray[np.int32]]
    """Of each stage the numbers of the first nodes of its trees."""


@functools.cache
def model() -> Model:
    """The tables, read at the first call."""
    weights: dict[str, dict[int, int]] = {"name": {}, "text": {}}
    for line in _lines(WORDS):
        kind, word, weight = line.split()
        weights[kind][hash_of(word)] = int(weight)
    stages: tuple[list[str], list[str]] = ([], [])
    stage = 0
    for line in _FOLDER.joinpath(TREES).read_text("ascii").split("\n"):
        if line:
            stages[stage].append(line)
        else:
            stage = 1
    return made(weights["name"], weights["text"], boxes(), stages)


def boxes() -> dict[int, int]:
    """CONSENT_WORD and BOX_WORD by the hash of a stem."""
    marks: dict[int, int] = {}
    for line in _lines(BOX_WORDS):
        kind, _, listed = line.partition(":")
        mark = CONSENT_WORD if kind.endswith("consent") else BOX_WORD
        for stem in (stem for word in listed.split() for stem in stems(word)):
            key = hash_of(stem)
            marks[key] = marks.get(key, 0) | mark
    return marks


def made(
    names: dict[int, int], words: dict[int, int], boxes: dict[int, int], stages: tuple[list[str], list[str]]
) -> Model:
    """A model of weights by hash, and of trees as they are written."""
    nodes: list[tuple[int, int, int]] = []
    roots: tuple[list[int], list[int]] = ([], [])
    for stage, trees in enumerate(stages):
        for tree in trees:
            roots[stage].append(len(nodes))
            _read_tree(iter(tree.split()), nodes)
    return Model(
        hashed_table(names),
        hashed_table(words),
        hashed_table(boxes),
        np.array(nodes, np.int16).reshape(-1, 3).T.copy(),
        (np.array(roots[0], np.int32), np.array(roots[1], np.int32)),
    )


def _read_tree(written: Iterator[str], nodes: list[tuple[int, int, int]]) -> None:
    """Append a tree in preorder."""
    column, split, threshold = next(written).partition(":")
    if not split:
        nodes.append((-1, int(column), 0))
        return
    place = len(nodes)
    nodes.append((int(column), int(threshold), 0))
    _read_tree(written, nodes)
    nodes[place] = (*nodes[place][:2], len(nodes))
    _read_tree(written, nodes)


def hash_of(word: str) -> int:
    """The hash of a name, or of a stem."""
    value = HASH_START
    for byte in word.encode():
        value = (value ^ byte) * 0x0100_0193 & 0x7FFF_FFFF
        value ^= value >> 15
    return value


def stems(word: str) -> list[str]:
    """What a word is known by."""
    if all("\u0e00" <= letter < "\u0f00" or "\u3000" <= letter < "\ua000" for letter in word):
        return [word[place : place + 2] for place in range(len(word) - 1)]
    return [word[:STEM]]


def hashed_table(values: dict[int, int]) -> NDArray[np.int32]:
    """A hash table with open addressing (2, slots); key 0 is a free slot."""
    slots = 1 << max(4, (2 * len(values)).bit_length())
    table = np.zeros((2, slots), np.int32)
    for key, value in values.items():
        slot = key & slots - 1
        while table[0, slot]:
            slot = slot + 1 & slots - 1
        table[:, slot] = key, value
    return table


def _lines(name: str) -> list[str]:
    lines = _FOLDER.joinpath(name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
