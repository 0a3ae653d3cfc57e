"""Lone surrogates: unpaired halves of UTF-16 characters, left behind by JSON escapes and broken decoders."""

from __future__ import annotations

import json
import re
from typing import Final

SURROGATE: Final = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, as in browsers. Two that make a character in UTF-16
    are that character. The result encodes as UTF-8."""
    if not SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replace_escaped_surrogates(document: bytes) -> bytes:
    """JSON in which each escaped lone surrogate, which crawlers do write, is U+FFFD: in names as well as in
    values, at any depth. Raises ValueError if there is no escape or it is not JSON, and RecursionError."""
    if b"\\u" not in document:
        raise ValueError("no escaped characters")
    return replace_surrogates(json.dumps(json.loads(document), ensure_ascii=False)).encode()
