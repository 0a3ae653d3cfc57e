"""Which blocks of a page are its main content, by their scores and by what is never content."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.block_features import features, groups_of
from stream.text.block_scores import UNIT, block_scores
from stream.text.blocks import (
    BAR,
    CELL,
    CODE_OF,
    COMMENTS,
    CONSENT,
    CONTENT,
    END,
    FLAGS,
    FORM,
    INSIDE,
    ITEM,
    KIND,
    LINKED,
    PARENT,
    SIZE,
    START,
    TITLE,
    Blocks,
)
from stream.text.content_model import model

LIKELY: Final = 0
"""Score above which a block is content."""
POSSIBLE: Final = -UNIT // 2
"""The same where that leaves next to nothing, such as on a page with a few words."""
UNLIKELY: Final = -2 * UNIT
"""Score up to which a heading before content is none."""
LEAST_PROSE: Final = 40
"""Text outside links of a block of prose that is content where most of the text beside it is. No more than a
fifth of it is in links."""
MOST_OF_PAGE: Final = 85
"""Percentage of the page's text from which on a form or a banner is the page. Old sites have one form around
everything."""
MANY: Final = 1 << 16
"""Features of more blocks are not made: they take 230 bytes each."""
CODE: Final = 4
"""Code elements of a page that may be reference documentation."""
FEW_BYTES: Final = 200
"""Main content of less, as blocks are measured, may be too little to be compared: 8 words are 40 bytes."""
LITTLE: Final = 20
"""Less content, in bytes as blocks are measured, says nothing."""
LEAST_SHARE: Final = 2
"""Content that is less than this percentage of the body says nothing."""
LEAST_SHARE_WITH_CODE: Final = 50
"""The same of a page with CODE code elements, up to FEW_BYTES: of a class in a manual, whose markup is too
long for reference documentation, its name may be all that looks like prose."""
LEAST_OF_COMMENTS: Final = 3
"""Main content that is less than this percentage of the comments is a question: the answers belong to it."""


def main_content(page: Blocks) -> NDArray[np.bool_]:
    """Which blocks are the main content of a page (blocks,). If that says nothing, or if there are more than
    MANY, they are its body."""
    blocks, containers, tables = page.blocks, page.containers, model()
    if len(blocks) > MANY:
        return body(page)
    rows = features(page, tables.names, tables.words, tables.boxes)
    scores = block_scores(blocks, containers, rows, tables.nodes, *tables.roots)
    whole = body(page)
    size = int(blocks[whole, SIZE].sum())
    least = max(LITTLE, LEAST_SHARE * size // 100)
    with_code = page.code >= CODE
    if with_code:
        least = max(least, min(FEW_BYTES, LEAST_SHARE_WITH_CODE * size // 100))
    for limit in (LIKELY,) if with_code else (LIKELY, POSSIBLE):
        kept = _chosen(blocks, containers, scores, limit)
        _complete(blocks, containers, scores, kept)
        if int(blocks[kept, SIZE].sum()) >= least:
            return kept
    return whole


def body(page: Blocks) -> NDArray[np.bool_]:
    """Which blocks are in no bar, form or banner (blocks,), or all if none is."""
    kept = _outside_bars(page.blocks, page.containers)
    return kept if kept.any() else ~kept


@compiled
def _outside_bars(blocks: NDArray[np.int32], containers: NDArray[np.int32]) -> NDArray[np.bool_]:
    bars = _never(blocks, containers)
    for i in range(1, len(containers)):
        flags = containers[i, FLAGS]
        bars[i] |= bars[containers[i, PARENT]] or (flags & BAR != 0 and not flags & CONTENT)
    kept = np.zeros(len(blocks), np.bool_)
    for i in range(len(blocks)):
        kept[i] = not bars[blocks[i, INSIDE]]
    return kept


@compiled
def _chosen(
    blocks: NDArray[np.int32], containers: NDArray[np.int32], scores: NDArray[np.int32], limit: int
) -> NDArray[np.bool_]:
    """Which blocks are content, with scores above a limit."""
    never = _never(blocks, containers)
    comments = np.zeros(len(containers), np.bool_)
    for i in range(1, len(containers)):
        comments[i] = comments[containers[i, PARENT]] or containers[i, FLAGS] & COMMENTS != 0
    kept = np.zeros(len(blocks), np.bool_)
    size = answers = 0
    for i in range(len(blocks)):
        inside = blocks[i, INSIDE]
        kept[i] = scores[i] > limit and not never[inside]
        if kept[i]:
            size += blocks[i, SIZE]
        elif comments[inside] and not never[inside]:
            answers += blocks[i, SIZE]
    if 100 * size < LEAST_OF_COMMENTS * answers:
        for i in range(len(blocks)):
            kept[i] |= comments[blocks[i, INSIDE]] and not never[blocks[i, INSIDE]]
    return kept


@compiled
def _complete(
    blocks: NDArray[np.int32],
    containers: NDArray[np.int32],
    scores: NDArray[np.int32],
    kept: NDArray[np.bool_],
) -> None:
    """Add what belongs to content, so that no copy of a page loses a paragraph whose score is near the limit:
    all prose of a container, or of containers of one shape beside each other, most of whose text is content,
    and headings directly before content. Items of lists and cells of tables are content one by one."""
    never = _never(blocks, containers)
    groups, number = groups_of(containers)
    sizes = np.zeros((number, 2), np.int64)
    for i in range(len(blocks)):
        group = groups[blocks[i, INSIDE]]
        sizes[group, 0] += blocks[i, SIZE]
        if kept[i]:
            sizes[group, 1] += blocks[i, SIZE]
    apart = np.zeros(len(containers), np.bool_)
    for i in range(1, len(containers)):
        apart[i] = apart[containers[i, PARENT]] or containers[i, FLAGS] & (ITEM | CELL) != 0
    for i in range(len(blocks) - 1, -1, -1):
        inside, size, linked = blocks[i, INSIDE], blocks[i, SIZE], blocks[i, LINKED]
        if kept[i] or never[inside]:
            continue
        group = groups[inside]
        is_prose = size - linked >= LEAST_PROSE and 5 * linked <= size
        kept[i] = is_prose and not apart[inside] and 2 * sizes[group, 1] > sizes[group, 0]
        if blocks[i, KIND] & TITLE and scores[i] > UNLIKELY and i + 1 < len(blocks) and kept[i + 1]:
            kept[i] = True


@compiled
def _never(blocks: NDArray[np.int32], containers: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which containers are in a form, or in a banner that asks for consent."""
    sizes = np.zeros(len(containers), np.int64)
    for i in range(len(blocks)):
        sizes[blocks[i, INSIDE]] += blocks[i, SIZE]
    for i in range(len(containers) - 1, 0, -1):
        sizes[containers[i, PARENT]] += sizes[i]
    never = np.zeros(len(containers), np.bool_)
    for i in range(1, len(containers)):
        is_box = containers[i, CODE_OF] == FORM or containers[i, FLAGS] & CONSENT != 0
        never[i] = never[containers[i, PARENT]] or (is_box and 100 * sizes[i] < MOST_OF_PAGE * sizes[0])
    return never


@compiled
def joined(text: NDArray[np.uint8], blocks: NDArray[np.int32], kept: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The text of blocks, a line a block."""
    size = 0
    for i in range(len(blocks)):
        if kept[i]:
            size += blocks[i, END] - blocks[i, START] + 1
    joined = np.empty(size, np.uint8)
    at = 0
    for i in range(len(blocks)):
        if kept[i]:
            for place in range(blocks[i, START], blocks[i, END]):
                joined[at] = text[place]
                at += 1
            joined[at] = _NEWLINE
            at += 1
    return joined


_NEWLINE: Final = ord("\n")
