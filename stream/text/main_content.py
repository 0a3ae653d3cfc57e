"""Which blocks of a page are its main content, by a compiled loop.

The container whose blocks have the most text outside links is the main one, with those beside it that have
nearly as much (as in Arc90's Readability). Names of elements and classes only weigh: a container that is
named a bar, a box or a comment is left out unless much of the page's prose is in it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.blocks import (
    BAR,
    BOX,
    CELL,
    COMMENTS,
    CONTENT,
    END,
    FLAGS,
    INSIDE,
    ITEM,
    KIND,
    LINKED,
    LIST,
    PARENT,
    SIZE,
    START,
    TITLE,
)

PROSE: Final = 60
"""Least text outside links of a block of prose. Texts are measured as in `stream.text.blocks`."""
PROSE_LINKS: Final = 0.4
"""Largest share of a prose block's text that may be in links."""
BAR_PROSE: Final = 0.3
BOX_PROSE: Final = 0.2
NAMED_CONTENT_PROSE: Final = 0.1
"""A bar, a box, or one that is named content too, has at most this share of the page's prose. This and all
other numbers here were chosen on the pages of docs/quality.md that are for tuning."""
NOTE: Final = 100
NOTE_PROSE: Final = 0.6
NOTE_LINKS: Final = 0.2
NOTE_AROUND: Final = 0.5
"""A box stays if its prose is at least NOTE and NOTE_PROSE of its text, at most NOTE_LINKS of that is in
links, and NOTE_AROUND of the page's prose is in the container around it."""
LINK_LIST: Final = 0.5
"""A block is part of a menu if more than this share of it is in links, and of it with its two neighbours."""
LONGEST_LIST: Final = 30
"""Most blocks of a list of links that stays between blocks of text."""
TEXT: Final = 40
"""Least text outside links of a block between which lists of links stay."""
SCORED: Final = 20
"""Least text outside links of a block that counts for its container."""
FULL_SCORE: Final = 600
"""A longer block counts as one of this length."""
ITEM_WEIGHT: Final = 0.5
"""Of blocks of list items."""
PARENT_WEIGHT: Final = 0.6
GRANDPARENT_WEIGHT: Final = 0.2
"""What counts for the containers around."""
CONTENT_WEIGHT: Final = 1.5
"""Of containers that are named content."""
BESIDE: Final = 0.4
"""A container beside the main one belongs to it from this share of its score on."""
LEAST: Final = 120
"""Less main content is none."""
LEAST_OF_COMMENTS: Final = 0.03
"""Main content that is less than this share of the comments is a question: the answers belong to it."""
_WITHOUT: Final = (BAR | BOX | COMMENTS, BAR | BOX, BAR, 0)
"""What is left out, until main content is found."""


@compiled
def main_content(
    text: NDArray[np.uint8], blocks: NDArray[np.int32], containers: NDArray[np.int32]
) -> NDArray[np.uint8]:
    """The main content of a page (see `Blocks`), a line a block; empty if there is none."""
    linked_lists = _menus(blocks)
    unwanted, comments = _unwanted(blocks, containers)
    for without in _WITHOUT:
        kept, size = _chosen(blocks, containers, linked_lists, unwanted, without)
        if size >= LEAST and (not without & COMMENTS or size >= LEAST_OF_COMMENTS * comments):
            return _joined(text, blocks, kept)
    return text[:0]


@compiled
def body(
    text: NDArray[np.uint8], blocks: NDArray[np.int32], containers: NDArray[np.int32]
) -> NDArray[np.uint8]:
    """All of a page but bars, or all if that is nothing."""
    bars = np.zeros(len(containers), np.bool_)
    for i in range(1, len(containers)):
        flags = containers[i, FLAGS]
        bars[i] = bars[containers[i, PARENT]] or (flags & BAR != 0 and not flags & CONTENT)
    kept = np.zeros(len(blocks), np.bool_)
    for i in range(len(blocks)):
        kept[i] = not bars[blocks[i, INSIDE]]
    return _joined(text, blocks, kept if kept.any() else ~kept)


@compiled
def _joined(text: NDArray[np.uint8], blocks: NDArray[np.int32], kept: NDArray[np.bool_]) -> NDArray[np.uint8]:
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


@compiled
def _menus(blocks: NDArray[np.int32]) -> NDArray[np.bool_]:
    menu = np.zeros(len(blocks), np.bool_)
    for i in range(len(blocks)):
        if blocks[i, LINKED] > LINK_LIST * blocks[i, SIZE]:
            size = linked = 0
            for near in range(max(0, i - 1), min(len(blocks), i + 2)):
                size += blocks[near, SIZE]
                linked += blocks[near, LINKED]
            menu[i] = linked > LINK_LIST * size
    return menu


@compiled
def _unwanted(blocks: NDArray[np.int32], containers: NDArray[np.int32]) -> tuple[NDArray[np.int32], int]:
    """Of each container, BAR, BOX and COMMENTS if it is in one that counts as such; and the size of all
    comments."""
    count = len(containers)
    prose, sizes, linked = np.zeros(count), np.zeros(count), np.zeros(count)
    unwanted = np.zeros(count, np.int32)
    for i in range(1, count):
        unwanted[i] = (unwanted[containers[i, PARENT]] | containers[i, FLAGS]) & COMMENTS
    comments = 0
    for i in range(len(blocks)):
        inside, size, links = blocks[i, INSIDE], blocks[i, SIZE], blocks[i, LINKED]
        sizes[inside] += size
        linked[inside] += links
        if unwanted[inside]:
            comments += size
        elif size - links >= PROSE and links < PROSE_LINKS * size:
            prose[inside] += size - links
    for i in range(count - 1, 0, -1):
        parent = containers[i, PARENT]
        prose[parent] += prose[i]
        sizes[parent] += sizes[i]
        linked[parent] += linked[i]
    for i in range(1, count):
        flags, parent = containers[i, FLAGS], containers[i, PARENT]
        unwanted[i] |= unwanted[parent]
        named = flags & CONTENT != 0
        if flags & BAR and prose[i] <= (NAMED_CONTENT_PROSE if named else BAR_PROSE) * prose[0]:
            unwanted[i] |= BAR
        if flags & BOX and prose[i] <= (NAMED_CONTENT_PROSE if named else BOX_PROSE) * prose[0]:
            note = (
                prose[i] >= max(NOTE, NOTE_PROSE * sizes[i])
                and linked[i] <= NOTE_LINKS * sizes[i]
                and prose[parent] >= NOTE_AROUND * prose[0]
            )
            if not note:
                unwanted[i] |= BOX
    return unwanted, comments


@compiled
def _chosen(
    blocks: NDArray[np.int32],
    containers: NDArray[np.int32],
    menus: NDArray[np.bool_],
    unwanted: NDArray[np.int32],
    without: int,
) -> tuple[NDArray[np.bool_], int]:
    """Which blocks are the main content if `without` is left out, and the size of their text."""
    kept = np.zeros(len(blocks), np.bool_)
    scores = _scores(blocks, containers, menus, unwanted, without)
    top = 0
    for i in range(len(scores)):
        if scores[i] > scores[top]:
            top = i
    if scores[top] <= 0:
        return kept, 0
    parent = containers[top, PARENT]
    chosen = np.zeros(len(containers), np.bool_)
    chosen[0] = top == 0
    for i in range(1, len(containers)):
        above = containers[i, PARENT]
        chosen[i] = (
            chosen[above] or i == top or (top and above == parent and scores[i] >= BESIDE * scores[top])
        )
    first, last = len(blocks), -1
    for i in range(len(blocks)):
        inside, free = blocks[i, INSIDE], blocks[i, SIZE] - blocks[i, LINKED]
        beside = inside == parent and free >= PROSE and 4 * blocks[i, LINKED] < blocks[i, SIZE]
        kept[i] = (chosen[inside] or beside) and not unwanted[inside] & without
        if kept[i] and not menus[i] and free >= TEXT:
            first, last = min(first, i), i
    return _without_menus(blocks, menus, kept, first, last)


@compiled
def _without_menus(
    blocks: NDArray[np.int32], menus: NDArray[np.bool_], kept: NDArray[np.bool_], first: int, last: int
) -> tuple[NDArray[np.bool_], int]:
    """`kept` without the lists of links, except short ones between blocks `first` and `last`."""
    size = run = begun = 0
    for i in range(len(blocks) + 1):
        listed = i < len(blocks) and menus[i]
        if i < len(blocks) and not kept[i]:
            continue
        if listed:
            if not run:
                begun = i
            run += 1
            last_of_run = i
            continue
        if run:
            stays = first < begun and last_of_run < last and run <= LONGEST_LIST
            for listed_block in range(begun, last_of_run + 1):
                if kept[listed_block]:
                    kept[listed_block] = stays
                    size += blocks[listed_block, SIZE] if stays else 0
            run = 0
        if i < len(blocks):
            size += blocks[i, SIZE]
    return kept, size


@compiled
def _scores(
    blocks: NDArray[np.int32],
    containers: NDArray[np.int32],
    menus: NDArray[np.bool_],
    unwanted: NDArray[np.int32],
    without: int,
) -> NDArray[np.float64]:
    """Of each container: the text of blocks in it outside links, by the share that links have in it. A
    container of one block, such as a `div` in place of a `p`, is a paragraph of the one around it."""
    count = len(containers)
    scores, sizes, linked = np.zeros(count), np.zeros(count), np.zeros(count)
    held = np.zeros(count, np.int32)
    for i in range(len(blocks)):
        held[blocks[i, INSIDE]] += 1
    for i in range(count - 1, 0, -1):
        held[containers[i, PARENT]] += held[i]
    around = np.zeros(count, np.int32)  # the nearest container that is no list, no item and no paragraph
    for i in range(1, count):
        flags, parent = containers[i, FLAGS], containers[i, PARENT]
        is_list = flags & (LIST | ITEM) != 0
        is_paragraph = held[i] == 1 and not flags & CELL and not containers[parent, FLAGS] & ITEM
        around[i] = around[parent] if is_list or is_paragraph else i
    for i in range(len(blocks)):
        inside = blocks[i, INSIDE]
        sizes[inside] += blocks[i, SIZE]
        linked[inside] += blocks[i, LINKED]
        free = blocks[i, SIZE] - blocks[i, LINKED]
        if unwanted[inside] & without or menus[i] or blocks[i, KIND] & TITLE or free < SCORED:
            continue
        score = min(free, FULL_SCORE) * (ITEM_WEIGHT if containers[inside, FLAGS] & ITEM else 1.0)
        own = around[inside]
        parent = around[containers[own, PARENT]]
        scores[own] += score
        if own:
            scores[parent] += score * PARENT_WEIGHT
        if parent:
            scores[around[containers[parent, PARENT]]] += score * GRANDPARENT_WEIGHT
    for i in range(count - 1, 0, -1):
        sizes[containers[i, PARENT]] += sizes[i]
        linked[containers[i, PARENT]] += linked[i]
    for i in range(count):
        scores[i] *= 1 - linked[i] / max(1.0, sizes[i])
        if containers[i, FLAGS] & CONTENT:
            scores[i] *= CONTENT_WEIGHT
    return scores
