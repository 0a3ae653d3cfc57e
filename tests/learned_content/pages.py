"""Pages of which main content is known, with their blocks and the labels of these.

A set is a file of JSON Lines, compressed by xz: `html`, or `body` in base64, and either `text`, the main
content, or `with` and `without`, passages that it has and has not.
"""

from __future__ import annotations

import base64
import bisect
import json
import lzma
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.text.blocks import END, START, Blocks, read
from stream.text.decode import decode
from stream.text.markup import unescaped
from tests.bench.quality.extraction import COMMENTS

KNOWN, TOLD, GUESSED = 10.0, 1.0, 0.3
"""Weights of blocks of passages, of blocks by the text of the whole page, and of blocks by a peer's text."""


@dataclass(slots=True)
class LabelledPage:
    set: str
    row: dict[str, Any]
    html: str
    host: str
    blocks: Blocks
    texts: list[str]
    labels: NDArray[np.int8]
    """1 for content, 0 for none, -1 if unknown (blocks,)."""
    weights: NDArray[np.float64]


def labelled(path: Path, guesses: dict[str, str]) -> list[LabelledPage]:
    """The pages of a set. `guesses` are main contents by a peer, by the page's `id`."""
    name = path.name.partition(".")[0]
    return [_labelled(name, row, guesses.get(row["id"], "")) for row in rows_of(path)]


def rows_of(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def html_of(row: dict[str, Any]) -> str:
    html: str = row["html"] if "html" in row else decode(base64.b64decode(row["body"]))
    return html


def _labelled(name: str, row: dict[str, Any], guess: str) -> LabelledPage:
    html = html_of(row)
    blocks = read(html.encode("utf-8", "replace").replace(b"\0", b""))
    text = blocks.text.tobytes()
    texts = [
        unescaped(text[start:end].decode("utf-8", "replace")).replace("\xad", "")
        for start, end in blocks.blocks[:, (START, END)].tolist()
    ]
    by = _by_passages(row, texts, guess) if "with" in row else _by_text(row, texts)
    return LabelledPage(name, row, html, host_of(html), blocks, texts, *by)


_OWN_URL = re.compile(
    r"""(?:rel=["']?canonical["']?[^>]*?href=|property=["']?og:url["']?[^>]*?content=)"""
    r"""["']?https?://([^/"'> ]+)"""
)
_LINK = re.compile(r"""href=["']?https?://([^/"'> ]+)""")


def host_of(html: str) -> str:
    """The host that a page names as its own, or to which most of its links go."""
    own = _OWN_URL.search(html)
    hosts = Counter(_LINK.findall(html)).most_common(1)
    host = own[1] if own else hosts[0][0] if hosts else html[:99]
    return host.lower().removeprefix("www.")


def normal(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _by_passages(
    row: dict[str, Any], texts: list[str], guess: str
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    labels, weights = np.full(len(texts), -1, np.int8), np.zeros(len(texts))
    lines, whole = {normal(line) for line in guess.split("\n")}, normal(guess)
    starts, joined = [], []
    at = 0
    for place, text in enumerate(map(normal, texts)):
        starts.append(at)
        joined.append(text)
        at += len(text) + 1
        if text and guess:
            labels[place] = text in whole if len(text) >= 25 else text in lines or "- " + text in lines
            weights[place] = GUESSED
    page = " ".join(joined)
    for name, label in (("without", 0), ("with", 1)):
        for passage in filter(None, row[name]):
            at = page.find(passage)
            while at >= 0:
                first = bisect.bisect_right(starts, at) - 1
                last = bisect.bisect_right(starts, at + len(passage) - 1) - 1
                labels[first : last + 1] = label
                weights[first : last + 1] = KNOWN
                at = page.find(passage, at + 1)
    return labels, weights


_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff]|[^\W\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff]+"
)


def tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def _by_text(row: dict[str, Any], texts: list[str]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    gold = tokens(row["text"].partition(COMMENTS)[0])
    runs = {tuple(gold[at : at + 4]) for at in range(len(gold) - 3)}
    joined = f" {' '.join(gold)} "
    labels, weights = np.full(len(texts), -1, np.int8), np.zeros(len(texts))
    own = [tokens(text) for text in texts]
    long = [len(each) >= 6 for each in own]
    for place, each in enumerate(own):
        if long[place]:
            share = sum(tuple(each[at : at + 4]) in runs for at in range(len(each) - 3)) / (len(each) - 3)
            labels[place] = share > 0.5
            weights[place] = TOLD if not 0.2 <= share <= 0.8 else TOLD * 0.4
    for place, each in enumerate(own):
        if not long[place] and each:
            near = range(max(0, place - 3), min(len(own), place + 4))
            beside = any(long[other] and labels[other] == 1 for other in near)
            labels[place] = beside and f" {' '.join(each)} " in joined
            weights[place] = TOLD * 0.25
    return labels, weights
