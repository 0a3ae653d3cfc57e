"""How deep the elements of a page nest, by its tags: a compiled loop over its bytes."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled

# Neither void elements nor those that the parser closes by itself can nest without another between them.
_SHALLOW: Final = re.findall(
    r"\w+",
    "area base br col embed hr img input link meta param source track wbr "
    "p li dt dd tr td th thead tbody tfoot option a button html head body",
)
_LESS, _SLASH, _A, _Z = map(ord, "</az")
_LOWER: Final = ord("a") - ord("A")
_OFFSET: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
"""Of FNV-1a, by which names are told apart."""
_SLOT_BITS: Final = 10
_SHIFT: Final = np.uint64(64 - _SLOT_BITS)
_LAST_SLOT: Final = (1 << _SLOT_BITS) - 1
_MOST_NAMES: Final = 1 << _SLOT_BITS - 1


def deeper_than(page: bytes, depth: int) -> bool:
    """Whether elements may nest deeper than that in a page of UTF-8. This may err towards True: scripts and
    comments count too, and a page with hundreds of names of elements is deep."""
    return bool(_deeper_than(np.frombuffer(page, np.uint8), depth, *_SHALLOW_NAMES))


@compiled
def _deeper_than(
    page: NDArray[np.uint8], limit: int, names: NDArray[np.uint64], opened: NDArray[np.int64]
) -> bool:
    starts = 0
    for at in range(len(page) - 1):  # vectorised, as the loop below cannot be
        starts += (page[at] == _LESS) & (page[at + 1] != _SLASH)
    if starts <= limit:  # three pages in four
        return False
    names, opened = names.copy(), opened.copy()
    count = depth = at = 0
    while True:
        while at < len(page) and page[at] != _LESS:
            at += 1
        at += 1
        closing = at < len(page) and page[at] == _SLASH
        at += closing
        if at >= len(page):
            return False
        if not _A <= _IN_NAME[page[at]] <= _Z:
            continue
        name = _OFFSET
        while at < len(page) and _IN_NAME[page[at]]:
            name = (name ^ np.uint64(_IN_NAME[page[at]])) * _PRIME
            at += 1
        slot = np.int64(name >> _SHIFT)
        while names[slot] and names[slot] != name:
            slot = slot + 1 & _LAST_SLOT
        if not closing and opened[slot] >= 0:
            count += names[slot] == 0
            names[slot] = name
            opened[slot] += 1
            depth += 1
            if depth > limit or count > _MOST_NAMES:
                return True
        elif closing and opened[slot] > 0:  # an end tag without its start tag closes nothing
            opened[slot] -= 1
            depth -= 1


def _in_name() -> NDArray[np.uint8]:
    """Byte of a tag's name -> the same in lower case, 0 for what ends a name (256,)."""
    table = np.arange(256, dtype=np.uint8)
    table[ord("A") : ord("Z") + 1] += _LOWER
    table[list(b" \t\n\v\f\r/>")] = 0
    return table


def _shallow_names() -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Open addressing by the highest bits of a name's hash: the hash of each name, 0 for none, and how many
    elements of it are open, below 0 for those that need no counting (1024,)."""
    names, opened = np.zeros(_LAST_SLOT + 1, np.uint64), np.zeros(_LAST_SLOT + 1, np.int64)
    for name in _SHALLOW:
        hashed = int(_OFFSET)
        for letter in name.encode():
            hashed = (hashed ^ letter) * int(_PRIME) & (1 << 64) - 1
        slot = hashed >> int(_SHIFT)
        while names[slot]:
            slot = slot + 1 & _LAST_SLOT
        names[slot], opened[slot] = hashed, -1
    return names, opened


_IN_NAME: Final = _in_name()
_SHALLOW_NAMES: Final = _shallow_names()
