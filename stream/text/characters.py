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
HAN: Final = (
    (0x3005, 0x3008),  # 々 〆 〇
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x2_0000, 0x3_23B0),
)
"""Half-open ranges of code points that count as Han characters."""
UNSPACED: Final = (
    (0x0E00, 0x0F00),  # Thai, Lao
    (0x1000, 0x10A0),  # Myanmar
    (0x1780, 0x1800),  # Khmer
    (0x1950, 0x19E0),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AB0),  # Tai Tham
    (0x1B00, 0x1B80),  # Balinese
    (0x3021, 0x302A),  # Hangzhou numerals
    (0x3031, 0x3040),  # repeat marks of kana and Han
    (0x3041, 0x3130),  # hiragana, katakana, Bopomofo
    (0x31A0, 0x31C0),  # Bopomofo Extended
    (0x31F0, 0x3200),  # Katakana Phonetic Extensions
    (0xA000, 0xA4D0),  # Yi
    (0xA980, 0xAA00),  # Javanese, Myanmar Extended-B
    (0xAA60, 0xAAE0),  # Myanmar Extended-A, Tai Viet
    (0x11700, 0x11750),  # Ahom
    (0x16FE0, 0x18D80),  # Tangut, Khitan
    (0x1AFF0, 0x1B300),  # kana extensions, Nushu
)
"""Half-open ranges of the other scripts that are written without spaces, by their blocks: those of the line
breaking classes SA, ID and CJ (UAX 14), Bopomofo, Balinese and Javanese. Only their word characters and marks
count. Tibetan is not among them: its tsheg, which is punctuation, separates syllables."""
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
