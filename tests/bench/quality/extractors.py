"""Peers extract main content: run by the Python of their own environment, with nothing of ours imported.

    python extractors.py METHOD... < [html, ...] > {METHOD: {"texts": [text, ...], "seconds": seconds}, ...}

Seconds are processor time. A page on which a peer fails has no text.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from html import unescape


def without_tags(markup: str) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", markup))


def trafilatura(*, fast: bool) -> Callable[[str], str | None]:
    from trafilatura import extract

    return lambda html: extract(html, fast=fast, include_comments=False)


def readability() -> Callable[[str], str | None]:
    from readability import Document

    return lambda html: without_tags(Document(html).summary())


def justext() -> Callable[[str], str | None]:
    from justext import get_stoplist, justext

    english = get_stoplist("English")
    return lambda html: "\n".join(each.text for each in justext(html, english) if not each.is_boilerplate)


METHODS: dict[str, Callable[[], Callable[[str], str | None]]] = {
    "trafilatura": lambda: trafilatura(fast=False),
    "trafilatura fast": lambda: trafilatura(fast=True),
    "readability-lxml": readability,
    "jusText": justext,
}


def main() -> None:
    logging.disable(logging.CRITICAL)
    pages = json.load(sys.stdin)
    answer = {}
    for name in sys.argv[1:]:
        extract, texts = METHODS[name](), []
        began = time.process_time()
        for page in pages:
            try:
                texts.append(extract(page) or "")
            except Exception:
                texts.append("")
        answer[name] = {"texts": texts, "seconds": time.process_time() - began}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
