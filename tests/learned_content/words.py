"""Weights of words: logarithms of the odds that what has them is content, over hosts.

A page's own host says nothing of its words: where pages are learned from, their words have the weights that
all other hosts give.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from stream.text.block_features import SHORT
from stream.text.blocks import INSIDE, NAME, OWNER, PARENT, SIZE
from stream.text.content_model import hash_of, stems
from tests.learned_content.pages import LabelledPage

LEAST_HOSTS = 4
LEAST_WEIGHT = 6
MOST_WEIGHT = 40
NAMES, TEXTS = range(2)
USUAL = (0.35, 0.25)
"""Share of content among what has names, and among words of short blocks."""
_WORD = re.compile(r"[A-Za-z\u00c0-\u1fff\u2c00-\u2fff\u3040-\ufeff]+")
_ATTRIBUTE = re.compile(
    r"""\b(?:class|id|role|itemprop)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE
)
_PART = re.compile(r"[A-Za-z\u0080-\U0010ffff]+")

Shares = tuple[dict[int, float], dict[int, float]]
"""Of names and of words of texts, by hash: the share of content in what has them."""


class Words(NamedTuple):
    """What hosts say: by kind and hash, the share of each host."""

    hosts: tuple[dict[int, dict[str, float]], dict[int, dict[str, float]]]


def shares(page: LabelledPage) -> Shares:
    blocks, containers = page.blocks.blocks, page.blocks.containers
    known = page.labels >= 0
    mass = np.sqrt(np.minimum(blocks[:, SIZE], 300)) * np.minimum(page.weights, 1) * known
    sums = np.zeros((len(containers), 2))
    np.add.at(sums[:, 0], blocks[:, INSIDE], mass * (page.labels == 1))
    np.add.at(sums[:, 1], blocks[:, INSIDE], mass * (page.labels == 0))
    for place in range(len(containers) - 1, 0, -1):
        sums[containers[place, PARENT]] += sums[place]
    names: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for owner, name in set(map(tuple, page.blocks.names[:, (OWNER, NAME)].tolist())):
        if owner >= 0:
            content, other = sums[owner].tolist()
        elif -1 - owner < len(blocks):
            content, other = (
                float(mass[-1 - owner] * (page.labels[-1 - owner] == label)) for label in (1, 0)
            )
        else:
            continue
        names[name][0] += content
        names[name][1] += other
    texts: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, text in enumerate(page.texts):
        if known[place]:
            for key in short_stems(text):
                texts[key][0 if page.labels[place] == 1 else 1] += float(page.weights[place])
    return tuple({key: a / (a + b) for key, (a, b) in each.items() if a + b} for each in (names, texts))  # type: ignore[return-value]


def short_stems(text: str) -> set[int]:
    found = [stem for word in _WORD.findall(text) for stem in stems(word.lower())]
    return {hash_of(stem) for stem in found} if len(found) <= SHORT else set()


def said(pages: list[LabelledPage], of_page: dict[int, Shares]) -> Words:
    hosts: tuple[dict[int, dict[str, float]], ...] = (defaultdict(dict), defaultdict(dict))
    for page in pages:
        for kind, each in enumerate(of_page[id(page)]):
            for key, share in each.items():
                hosts[kind][key][page.host] = share
    return Words(tuple({k: v for k, v in each.items() if len(v) >= LEAST_HOSTS - 1} for each in hosts))  # type: ignore[arg-type]


def weights(
    words: Words, without: str | None = None, only: Shares | None = None
) -> tuple[dict[int, int], dict[int, int]]:
    """The weights of names and of words, without what a host says, only of those that a page has."""
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for kind, hosts in enumerate(words.hosts):
        for key in hosts if only is None else only[kind]:
            by_host = hosts.get(key)
            if by_host is None:
                continue
            total, number = sum(by_host.values()), len(by_host)
            if without in by_host:
                total, number = total - by_host[without], number - 1
            if number < LEAST_HOSTS + kind - (only is not None):
                continue
            usual = USUAL[kind]
            odds = (total + 3 * usual) / (number - total + 3 * (1 - usual)) * (1 - usual) / usual
            weight = max(-MOST_WEIGHT, min(MOST_WEIGHT, round(10 * math.log(odds))))
            # A word of a short text speaks against it; what speaks for it is its subject.
            if abs(weight) >= LEAST_WEIGHT and (kind == NAMES or weight < 0):
                found[kind][key] = weight
    return found


def spellings(pages: list[LabelledPage]) -> tuple[dict[int, str], dict[int, str]]:
    """Words by their hashes."""
    names, texts = {}, {}
    for page in pages:
        for values in _ATTRIBUTE.findall(page.html):
            for word in _PART.findall("".join(values)):
                small = re.sub("[A-Z]", lambda letter: letter[0].lower(), word)
                names[hash_of(small)] = small
        for text in page.texts:
            for word in _WORD.findall(text):
                texts.update((hash_of(stem), stem) for stem in stems(word.lower()))
    return names, texts
