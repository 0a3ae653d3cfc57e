"""Classes of characters in one version of Unicode, the same in every version of Python (rule 11).

Unicode is pinned to the version of the oldest supported Python, 3.11. Later versions change neither NFKC nor
the folded case of an assigned character (Unicode's stability policies), so the standard library answers for
those. A character that was not assigned yet stays as it is and is no part of a word.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

UNICODE: Final = "14.0.0"
"""Part of the scheme. Raising it takes a Python that has the new version, at least, on every worker."""
UNASSIGNED, OTHER, WORD, MARK = range(4)
"""Classes of characters: `WORD` is `\\w` of the module `re` (letters, numbers and the underscore), `MARK` the
general categories Mn and Mc."""
LETTERS: Final = "-.wm"
"""The classes in the file."""
TABLE: Final = Path(__file__).with_name("characters.txt")
"""Per line a code point in hexadecimal and the class of the characters from there to the next line's.
`tests/characters_table.py` wrote it."""


@functools.cache
def classes() -> NDArray[np.uint8]:
    """Code point -> class (0x110000,)."""
    runs = [line.split() for line in TABLE.read_text("ascii").splitlines()]
    starts = [int(start, 16) for start, _ in runs]
    class_of_run = np.array([LETTERS.index(letter) for _, letter in runs], np.uint8)
    return class_of_run.repeat(np.diff([*starts, 0x11_0000]))
