"""Features of a page's blocks from which their scores come (`stream.text.block_scores`), by a compiled loop.

All are integers. A block is described by its own text, by the element and the names around it, by the
containers that enclose it, by the blocks beside it, and by where in the page it stands. Names of classes and
the like, and words of short blocks, have weights (`content_words.txt`): they speak for content or against it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, inlined
from stream.text.blocks import (
    ARTICLE,
    BAR,
    BLOCKQUOTE,
    BOX,
    CELL,
    CODE_OF,
    COMMENTS,
    CONTENT,
    CONTROLS,
    ELEMENT,
    END,
    FIGURE,
    FLAGS,
    FORM,
    HASH_START,
    HEADER,
    INSIDE,
    ITEM,
    KIND,
    LINKED,
    LINKS,
    LIST,
    NAME,
    OWNER,
    PARENT,
    SHAPE,
    SIZE,
    START,
    TITLE,
    Blocks,
    hashed_letter,
)

LEVELS: Final = 4
"""Enclosing containers that are described: the block's own, and each next one that has more blocks."""
LEVEL: Final = ("size", "links", "prose", "mean", "punctuation", "controls", "blocks", "names", "alike")
BESIDE: Final = (-2, -1, 1, 2)
NEIGHBOUR: Final = ("free", "links", "punctuation", "names")
OWN: Final = (
    *("size", "free", "links", "link count", "words", "word length", "punctuation", "digits", "capitals"),
    *("lines", "element", "container", "depth", "index", "index from end", "place", "prose before"),
    *(
        "prose after",
        "blocks",
        "page size",
        "page prose",
        "page links",
        "page title",
        "from title",
        "heading",
    ),
    *("from heading", "last heading", "bar", "box", "comments", "content", "list", "item", "cell", "form"),
    *("header", "article", "figure", "quote", "own names", "names", "least names", "most names"),
    *(
        "names above",
        "words against",
        "words against before",
        "words against after",
        "consent words",
        "box words",
    ),
    *(
        "alike above",
        "alike text",
        "alike links",
        "free around",
        "links around",
        "punctuation around",
        "score",
    ),
)
FEATURES: Final = (
    *OWN,
    *(f"{each} of level {level}" for level in range(LEVELS) for each in LEVEL),
    *(f"{each} of {place:+d}" for place in BESIDE for each in NEIGHBOUR),
)
"""Columns of the features."""
CONTEXT: Final = (
    *("first score", *(f"score of {place:+d}" for place in (-3, -2, -1, 1, 2, 3))),
    *(f"score of level {level}" for level in range(LEVELS)),
    *("content before", "content after", "best score", "mean score", "mean before", "mean after"),
    *("best before", "best after"),
)
"""Columns that the second stage has besides."""
COLUMNS: Final = len(FEATURES) + len(CONTEXT)

PROSE: Final = 60
"""Least text outside links of a block of prose, of which at most 4 in 10 bytes are in links. Texts are
measured as in `stream.text.blocks`."""
SHORT: Final = 16
"""Most words of a block whose words count."""
STEM: Final = 6
"""Letters of a word by which it is known."""
LONGEST_TITLE: Final = 256
MOST: Final = 60
"""Largest magnitude of a sum of weights."""
FULL: Final = 600


@inlined
def _log(value: int) -> int:
    """8 log2, between its whole numbers by a straight line."""
    if value <= 0:
        return 0
    whole, rest = 0, value
    while rest >= 2:
        rest >>= 1
        whole += 1
    return whole * 8 + (value * 8 >> whole) - 8


@inlined
def _permille(part: int, whole: int) -> int:
    return part * 1000 // whole if whole > 0 else 0


@inlined
def _weight(key: int, keys: NDArray[np.int32], weights: NDArray[np.int32]) -> int:
    slot = key & len(keys) - 1
    while keys[slot]:
        if keys[slot] == key:
            return int(weights[slot])
        slot = slot + 1 & len(keys) - 1
    return 0


@inlined
def _hashed_character(value: int, first: int, second: int, third: int) -> int:
    return hashed_letter(hashed_letter(hashed_letter(value, first), second), third)


@inlined
def _small(lead: int, second: int) -> tuple[int, int]:
    """The small letter of a Latin, Greek or Cyrillic capital of two bytes."""
    if lead == 0xC3 and 0x80 <= second <= 0x9E:
        return lead, second | 0x20
    if (lead == 0xD0 and 0x90 <= second <= 0x9F) or (lead == 0xCE and 0x91 <= second <= 0x9F):
        return lead, second + 0x20
    if (lead == 0xD0 and 0xA0 <= second <= 0xAF) or (lead == 0xCE and 0xA0 <= second <= 0xA9):
        return lead + 1, second - 0x20
    return lead, second


@compiled
def _counts(
    text: NDArray[np.uint8],
    blocks: NDArray[np.int32],
    keys: NDArray[np.int32],
    weights: NDArray[np.int32],
    boxes: NDArray[np.int32],
    counts: NDArray[np.int32],
) -> None:
    """Words, punctuation, digits, capitals, lines, the sum of weights of words, and the number of words
    of consent and of boxes of each block (blocks, 8). A word counts by its first STEM
    letters; each two characters in a row of scripts without spaces are a word."""
    for i in range(len(blocks)):
        words = punctuation = digits = capitals = lines = against = consent = box = 0
        value, letters, before = HASH_START, 0, 0
        at, end = blocks[i, START], blocks[i, END]
        while at <= end:
            letter = int(text[at]) if at < end else 32
            kind = KIND_OF_BYTE[letter]
            if kind == _LETTER:
                if 65 <= letter <= 90:
                    capitals += 1
                    letter |= 0x20
                if letters < STEM:
                    value = hashed_letter(value, letter)
                letters += 1
                at += 1
                continue
            if kind == _LEAD2 and at + 1 < end:
                if letters < STEM:
                    letter, second = _small(letter, int(text[at + 1]))
                    value = hashed_letter(hashed_letter(value, letter), second)
                letters += 1
                at += 2
                continue
            if kind == _LEAD3 and at + 2 < end:
                second, third = int(text[at + 1]), int(text[at + 2])
                if (letter == 0xE3 and second == 0x80) or (letter == 0xEF and second in (0xBC, 0xBD)):
                    punctuation += 1
                    at += 3
                    kind = _BLANK
                elif letter == 0xE2 and second == 0x80:
                    at += 3
                    kind = _BLANK
                else:
                    unspaced = (letter == 0xE0 and 0xB8 <= second <= 0xBB) or 0xE3 <= letter <= 0xE9
                    if unspaced:
                        if before:
                            pair = _hashed_character(before, letter, second, third)
                            words += 1
                            against += _weight(pair, keys, weights)
                            marks = _weight(pair, boxes[0], boxes[1])
                            consent += marks & 1
                            box += marks >> 1
                        before = _hashed_character(HASH_START, letter, second, third)
                        letters = 0
                        value = HASH_START
                    else:
                        if letters < STEM:
                            value = _hashed_character(value, letter, second, third)
                        letters += 1
                    at += 3
                    continue
            else:
                punctuation += kind == _POINT
                digits += kind == _DIGIT
                lines += letter == 10 and at < end
                at += 1
            before = 0
            if letters:
                words += 1
                against += _weight(value, keys, weights)
                marks = _weight(value, boxes[0], boxes[1])
                consent += marks & 1
                box += marks >> 1
                value, letters = HASH_START, 0
        row = counts[i]
        row[0], row[1], row[2], row[3], row[4] = words, punctuation, digits, capitals, lines
        row[5] = max(-MOST, min(MOST, against)) if words <= SHORT else 0
        row[6], row[7] = consent, box


_LETTER, _LEAD2, _LEAD3, _POINT, _DIGIT, _BLANK = range(1, 7)


def _kinds_of_bytes() -> NDArray[np.uint8]:
    kinds = np.zeros(256, np.uint8)
    kinds[65:91] = kinds[97:123] = _LETTER
    kinds[0xC2:0xE0] = _LEAD2
    kinds[0xE0:0xF0] = _LEAD3
    kinds[list(b".,;:!?")] = _POINT
    kinds[48:58] = _DIGIT
    return kinds


KIND_OF_BYTE: Final = _kinds_of_bytes()


@compiled
def _title_match(text: NDArray[np.uint8], start: int, end: int, title: NDArray[np.uint8]) -> int:
    """2 if the title begins with that text, 1 if it has it elsewhere, else 0."""
    while end > start and text[end - 1] <= 32:
        end -= 1
    size = end - start
    for first in range(len(title) - size + 1):
        same = 0
        while same < size and text[start + same] == title[first + same]:
            same += 1
        if same == size:
            return 1 if first else 2
    return 0


@compiled
def groups_of(containers: NDArray[np.int32]) -> tuple[NDArray[np.int64], int]:
    """The number of each container's group (containers,), which are those of one shape beside each other, and
    a number above those of all groups."""
    slots = 1
    while slots < 2 * len(containers) + 2:
        slots *= 2
    keys = np.full(slots, -1, np.int64)
    groups = np.zeros(len(containers), np.int64)
    for i in range(len(containers)):
        key = np.int64(containers[i, PARENT]) << 31 | containers[i, SHAPE]
        slot = (key * 0x9E37_79B1 >> 16) & slots - 1
        while keys[slot] != -1 and keys[slot] != key:
            slot = slot + 1 & slots - 1
        keys[slot] = key
        groups[i] = slot
    return groups, slots


# One loop, as that of the reader: the features share what they are made of.
@compiled
def features(  # noqa: C901
    page: Blocks,
    name_weights: NDArray[np.int32],
    word_weights: NDArray[np.int32],
    box_words: NDArray[np.int32],
) -> NDArray[np.int16]:
    """The features of a page's blocks (blocks, COLUMNS), of which those of CONTEXT are not written.
    Weights are hash tables: keys and values (2, slots)."""
    text, blocks, containers, names = page.text, page.blocks, page.containers, page.names
    n, m = len(blocks), len(containers)
    out = np.zeros((n, COLUMNS), np.int16)
    counts = np.zeros((n, 8), np.int32)
    _counts(text, blocks, word_weights[0], word_weights[1], box_words, counts)
    title = page.title[:LONGEST_TITLE]
    # What names say.
    own_names = np.zeros(n, np.int32)
    named = np.zeros(m, np.int32)
    for i in range(len(names)):
        weight = _weight(names[i, NAME], name_weights[0], name_weights[1])
        owner = names[i, OWNER]
        if owner >= m:
            continue  # it was nested too deeply to be a container
        if owner >= 0:
            named[owner] += weight
        elif -1 - owner < n:
            own_names[-1 - owner] += weight
    flags, elements = np.zeros(m, np.int32), np.zeros(m, np.int64)
    depth, least = np.zeros(m, np.int32), np.zeros(m, np.int32)
    most, above = np.zeros(m, np.int32), np.zeros(m, np.int32)
    for i in range(m):
        parent = containers[i, PARENT]
        flags[i] = containers[i, FLAGS]
        elements[i] = np.int64(1) << containers[i, CODE_OF]
        named[i] = max(-MOST, min(MOST, named[i]))
        if i:
            flags[i] |= flags[parent]
            elements[i] |= elements[parent]
            depth[i] = depth[parent] + 1
            least[i] = min(least[parent], named[i])
            most[i] = max(most[parent], named[i])
            above[i] = above[parent] * 3 // 4 + named[i]
    # What is in each container.
    size, linked, prose = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    held, points, score = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    controls = np.zeros(m, np.int64)
    total = 0
    for i in range(n):
        inside, free = blocks[i, INSIDE], blocks[i, SIZE] - blocks[i, LINKED]
        size[inside] += blocks[i, SIZE]
        linked[inside] += blocks[i, LINKED]
        held[inside] += 1
        points[inside] += counts[i, 1]
        if free >= PROSE and 10 * blocks[i, LINKED] <= 4 * blocks[i, SIZE]:
            prose[inside] += free
            total += free
            score[inside] += 2 * min(free, FULL)
            score[containers[inside, PARENT]] += min(free, FULL)
    for i in range(m):
        controls[i] = containers[i, CONTROLS]
    for i in range(m - 1, 0, -1):
        parent = containers[i, PARENT]
        size[parent] += size[i]
        linked[parent] += linked[i]
        prose[parent] += prose[i]
        held[parent] += held[i]
        points[parent] += points[i]
        controls[parent] += controls[i]
    peak = score.copy()
    top = max(np.int64(1), score[0])
    for i in range(1, m):
        peak[i] = max(peak[i], peak[containers[i, PARENT]])
        top = max(top, score[i])
    # Containers beside it of the same shape.
    slot_of, slots = groups_of(containers)
    alike = np.zeros((slots, 3), np.int64)
    for i in range(1, m):
        if held[i]:
            slot = slot_of[i]
            alike[slot, 0] += 1
            alike[slot, 1] += size[i]
            alike[slot, 2] += linked[i]
    siblings = np.ones(m, np.int64)
    best = np.zeros(m, np.int64)
    for i in range(1, m):
        parent = containers[i, PARENT]
        best[i] = i
        if held[i]:
            siblings[i] = alike[slot_of[i], 0]
        if parent and siblings[best[parent]] >= siblings[i]:
            best[i] = best[parent]
    # The place of the title.
    titled = np.zeros(n, np.int8)
    title_at, longest = -1, 0
    for i in range(n):
        length = blocks[i, END] - blocks[i, START]
        if blocks[i, SIZE] >= 8 and length <= len(title) + 1:
            titled[i] = _title_match(text, blocks[i, START], blocks[i, END], title)
            if titled[i] and length > longest and 2 * blocks[i, LINKED] <= blocks[i, SIZE]:
                title_at, longest = i, length
    before, heading, heading_at = 0, 0, -99
    for i in range(n):
        block, row, inside = blocks[i], out[i], blocks[i, INSIDE]
        free = block[SIZE] - block[LINKED]
        own_prose = free if free >= PROSE and 10 * block[LINKED] <= 4 * block[SIZE] else 0
        if block[KIND] & TITLE:
            heading, heading_at = block[ELEMENT], i
        free_near = all_near = points_near = 0
        for near in range(max(0, i - 3), min(n, i + 4)):
            free_near += blocks[near, SIZE] - blocks[near, LINKED]
            all_near += blocks[near, SIZE]
            points_near += counts[near, 1]
        group = best[inside]
        slot = slot_of[group]
        row[0] = _log(block[SIZE])
        row[1] = _log(free)
        row[2] = _permille(block[LINKED], block[SIZE])
        row[3] = min(99, block[LINKS])
        row[4] = _log(counts[i, 0])
        row[5] = min(999, 10 * block[SIZE] // max(1, counts[i, 0]))
        row[6] = min(99, counts[i, 1])
        row[7] = _permille(counts[i, 2], block[SIZE])
        row[8] = _permille(counts[i, 3], block[SIZE])
        row[9] = min(99, counts[i, 4])
        row[10] = block[ELEMENT]
        row[11] = containers[inside, CODE_OF]
        row[12] = depth[inside]
        row[13] = min(400, i)
        row[14] = min(400, n - 1 - i)
        row[15] = _permille(i, n)
        row[16] = _permille(before, total)
        row[17] = _permille(total - before - own_prose, total)
        row[18] = _log(n)
        row[19] = _log(size[0])
        row[20] = _log(total)
        row[21] = _permille(linked[0], size[0])
        row[22] = titled[i]
        row[23] = max(-99, min(200, i - title_at)) if title_at >= 0 else -100
        row[24] = block[ELEMENT] if block[KIND] & TITLE else 0
        row[25] = min(99, i - heading_at)
        row[26] = heading
        row[27] = flags[inside] & BAR != 0
        row[28] = flags[inside] & BOX != 0
        row[29] = flags[inside] & COMMENTS != 0
        row[30] = flags[inside] & CONTENT != 0
        row[31] = flags[inside] & LIST != 0
        row[32] = flags[inside] & ITEM != 0
        row[33] = flags[inside] & CELL != 0
        row[34] = elements[inside] >> FORM & 1
        row[35] = elements[inside] >> HEADER & 1
        row[36] = elements[inside] >> ARTICLE & 1
        row[37] = elements[inside] >> FIGURE & 1
        row[38] = elements[inside] >> BLOCKQUOTE & 1
        row[39] = max(-MOST, min(MOST, own_names[i]))
        row[40] = named[inside]
        row[41] = least[inside]
        row[42] = most[inside]
        row[43] = above[inside]
        row[44] = counts[i, 5]
        row[45] = counts[i - 1, 5] if i else 0
        row[46] = counts[i + 1, 5] if i + 1 < n else 0
        row[47] = min(99, counts[i, 6])
        row[48] = min(99, counts[i, 7])
        row[49] = min(200, siblings[group])
        if group:
            row[50] = _log((alike[slot, 1] - alike[slot, 2]) // max(1, alike[slot, 0]))
            row[51] = _permille(alike[slot, 2], alike[slot, 1])
        row[52] = _log(free_near)
        row[53] = _permille(all_near - free_near, all_near)
        row[54] = min(99, points_near)
        row[55] = _permille(peak[inside], top)
        column = len(OWN)
        around = inside
        for _ in range(LEVELS):
            row[column] = _log(size[around])
            row[column + 1] = _permille(linked[around], size[around])
            row[column + 2] = _permille(prose[around], total)
            row[column + 3] = _log(size[around] // max(1, held[around]))
            row[column + 4] = _permille(20 * points[around], size[around])
            row[column + 5] = min(20, controls[around])
            row[column + 6] = _log(held[around])
            row[column + 7] = named[around]
            row[column + 8] = min(200, siblings[around])
            column += len(LEVEL)
            within = held[around]
            while around and (held[around] <= within or held[around] < 2):
                around = containers[around, PARENT]
        for place in BESIDE:
            near = i + place
            if 0 <= near < n:
                row[column] = _log(blocks[near, SIZE] - blocks[near, LINKED])
                row[column + 1] = _permille(blocks[near, LINKED], blocks[near, SIZE])
                row[column + 2] = min(99, counts[near, 1])
                row[column + 3] = above[blocks[near, INSIDE]]
            else:
                row[column : column + len(NEIGHBOUR)] = -1
            column += len(NEIGHBOUR)
        before += own_prose
    return out


@compiled
def add_context(
    blocks: NDArray[np.int32],
    containers: NDArray[np.int32],
    scores: NDArray[np.int32],
    first: int,
    out: NDArray[np.int16],
) -> None:
    """Write the columns of CONTEXT, from `first` on: scores (blocks,), 0 to 1000, of a block, of the blocks
    beside it, of what encloses it, and of the page, weighted by their text."""
    n, m = len(blocks), len(containers)
    sums, weights, held = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    total, best = 0, 0
    for i in range(n):
        weight, inside = min(blocks[i, SIZE], 400) + 5, blocks[i, INSIDE]
        sums[inside] += weight * scores[i]
        weights[inside] += weight
        held[inside] += 1
        total += weight * scores[i]
        best = max(best, scores[i])
    for i in range(m - 1, 0, -1):
        parent = containers[i, PARENT]
        sums[parent] += sums[i]
        weights[parent] += weights[i]
        held[parent] += held[i]
    before = 0
    for i in range(n):
        row, column = out[i], first
        row[column] = scores[i]
        column += 1
        for place in (-3, -2, -1, 1, 2, 3):
            row[column] = scores[i + place] if 0 <= i + place < n else -1
            column += 1
        around = blocks[i, INSIDE]
        for _ in range(LEVELS):
            row[column] = sums[around] // max(1, weights[around])
            column += 1
            within = held[around]
            while around and (held[around] <= within or held[around] < 2):
                around = containers[around, PARENT]
        row[column] = _permille(before, total)
        before += scores[i] * (min(blocks[i, SIZE], 400) + 5)
        row[column + 1] = 1000 - _permille(before, total)
        row[column + 2] = best
        row[column + 3] = sums[0] // max(1, weights[0])
        for half in range(2):
            start, stop = (max(0, i - 8), i) if half == 0 else (i + 1, min(n, i + 9))
            mean = weight_of_all = highest = 0
            for near in range(start, stop):
                weight = min(blocks[near, SIZE], 400) + 5
                mean += weight * scores[near]
                weight_of_all += weight
                highest = max(highest, scores[near])
            row[column + 4 + half] = mean // max(1, weight_of_all)
            row[column + 6 + half] = highest
