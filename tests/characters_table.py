"""Writes the table of characters: `python -m tests.characters_table`, by a Python whose Unicode is the pinned
one."""

from __future__ import annotations

import re
import sys
import unicodedata
from itertools import groupby

from stream.text.characters import LETTERS, MARK, OTHER, TABLE, UNASSIGNED, UNICODE, WORD


def class_of(character: str) -> int:
    """The class of a character in the Unicode version of the running Python."""
    if re.match(r"\w", character):
        return WORD
    category = unicodedata.category(character)
    return MARK if category in ("Mn", "Mc") else UNASSIGNED if category == "Cn" else OTHER


def table() -> str:
    """The content of the file."""
    runs = groupby(range(sys.maxunicode + 1), lambda point: class_of(chr(point)))
    return "".join(f"{next(points):04X} {LETTERS[kind]}\n" for kind, points in runs)


if __name__ == "__main__":
    if unicodedata.unidata_version != UNICODE:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, the table is of {UNICODE}")
    TABLE.write_text(table(), "ascii")
