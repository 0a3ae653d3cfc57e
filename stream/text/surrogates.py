"""Lone surrogates: halves of a character that JSON escapes and broken decoders leave behind."""

from __future__ import annotations

import re
from typing import Final

SURROGATE: Final = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """`text` with each lone surrogate as U+FFFD, as browsers read them; the result encodes as UTF-8."""
    return SURROGATE.sub("\ufffd", text)
