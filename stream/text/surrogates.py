"""Lone surrogates: unpaired halves of UTF-16 characters, left behind by JSON escapes and broken decoders."""

from __future__ import annotations

import re
from typing import Final

SURROGATE: Final = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, as in browsers. Two that make a character in UTF-16
    are that character. The result encodes as UTF-8."""
    if not SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
