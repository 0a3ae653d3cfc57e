"""Letters that are the same to readers but not to Unicode: what two keyboards, encodings or eras of a
language write for one letter.

No language is guessed, so a letter stays where it parts words of a language that has both (hamza seats, vowel
signs, ё). Alef maksura, the ae of Kurdish, the yeh of Uyghur and the chillus of Malayalam are exceptions:
they part few words, and copies of many texts differ in them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("letters.txt")


def _letters() -> dict[str, str]:
    """Letter -> those that stand in its place, none of which is in the table itself."""
    lines = (line.partition("#")[0].strip() for line in TABLE.read_text("ascii").splitlines())
    pairs = (line.split(":") for line in lines if line)
    return {chr(int(one, 16)): "".join(chr(int(each, 16)) for each in rest.split()) for one, rest in pairs}


SAME: Final = _letters()
_ONE_OF_THEM: Final = re.compile(f"[{''.join(SAME)}]")


def with_same_letters(text: str) -> str:
    """`text` with every letter of the table replaced."""
    return _ONE_OF_THEM.sub(lambda match: SAME[match[0]], text)
