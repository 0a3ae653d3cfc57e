"""Lone surrogates: unpaired halves of UTF-16 characters, left behind by JSON escapes and broken decoders."""

from __future__ import annotations

import re
from typing import Final

SURROGATE: Final = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, as in browsers. The result encodes as UTF-8."""
    return SURROGATE.sub("\ufffd", text)
