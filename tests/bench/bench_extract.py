"""HTML -> fingerprint as a worker's child does it, against the extraction library alone on the same pages,
interleaved; and where the child's time goes.

The library is resiliparse; it is given the same decoded pages, and asked once for their main content.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from stream.children import child
from stream.children.child import FingerprintRequest
from stream.children.chunk import CHUNK_BYTES, CHUNK_PAGES
from stream.children.guard import Guard
from stream.children.position import Position
from stream.fingerprint.row import Row
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys, unit_keys
from stream.fingerprint.tokens_compiled import scanned_tokens
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.content import page_text
from stream.pages.outside.outside import Outside
from stream.pages.page import decode_page
from stream.text.normalise_compiled import normalised_points
from tests.bench.bench_worker import pages

PAGES = 400
ROUNDS = 5
PAGES_A_CHUNK = min(CHUNK_PAGES, CHUNK_BYTES // 75_000)
"""Pages of that many bytes that a child gets at once."""
BATCH = 16
"""Texts segmented at once: about as many as the fingerprinter takes."""
PAGE_BYTES = 16 << 20
OUTSIDE = Outside()


class _Sink:
    """Where a child's rows go: encoded, and dropped."""

    pause = child.QUEUED_BATCHING_SECONDS

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def flush(self) -> None:
        child.frame(self.rows)
        self.rows = []


def run(data: Path | None = None, count: int = PAGES, rounds: int = ROUNDS) -> dict[str, Any]:
    """Microseconds a page and `ratio`, the library's time to ours, each decoding included; `extract_ratio`,
    its time for main content to that of our extraction; `shares` of our time by stage. Medians of the rounds'
    processor time."""
    values = pages(count, data)
    fingerprinter = PageFingerprinter()
    fingerprinter.warm()
    frames = [
        child.frame(FingerprintRequest(list(values[first : first + PAGES_A_CHUNK]), careful=False))
        for first in range(0, len(values), PAGES_A_CHUNK)
    ]
    decoded = [decode_page(value, PAGE_BYTES) for value in values]
    documents = [page.html or "" for page in decoded]
    texts = [page_text(page) for page in decoded]
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: _child(frames, fingerprinter),
        "library": lambda: [_library(value) for value in values],
        "decode": lambda: [decode_page(value, PAGE_BYTES) for value in values],
        "library_without_decode": lambda: [extracted(document) for document in documents],
        "extract": lambda: [page_text(page) for page in decoded],
        "normalise_and_segment": lambda: _segment(texts),
        "from_text": lambda: fingerprinter.texts(texts),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.process_time()
            work()
            seconds[name].append(time.process_time() - began)
    median = {name: statistics.median(each) for name, each in seconds.items()}
    parts = {
        "decode": median["decode"],
        "extract": median["extract"],
        "normalise_and_segment": median["normalise_and_segment"],
        "hash": median["from_text"] - median["normalise_and_segment"],
    }
    parts["rest"] = median["ours"] - sum(parts.values())
    return {
        "pages": len(values),
        "megabytes": round(sum(map(len, values)) / 1e6, 1),
        "text_megabytes": round(sum(len(text.encode()) for text in texts) / 1e6, 2),
        **{f"{name}_us_a_page": round(each / len(values) * 1e6, 1) for name, each in median.items()},
        "ratio": _ratio(seconds["library"], seconds["ours"]),
        "extract_ratio": _ratio(seconds["library_without_decode"], seconds["extract"]),
        "extraction_mb_s": round(sum(map(len, documents)) / median["extract"] / 1e6, 1),
        "shares": {name: round(part / median["ours"], 3) for name, part in parts.items()},
    }


def _ratio(of: list[float], to: list[float]) -> float:
    return round(statistics.median(x / y for x, y in zip(of, to, strict=True)), 3)


def _child(frames: Sequence[bytes], fingerprinter: PageFingerprinter) -> None:
    """What a child does from the frames of requests to those of their rows."""
    with closing(Position()) as position:
        guard = Guard(600, PAGE_BYTES, position)
        for content in frames:
            request = child._REQUEST.decode(content[child.LENGTH :])
            child._answer(request, fingerprinter, guard, _Sink(), OUTSIDE)  # type: ignore[arg-type]


def _library(value: bytes) -> str:
    return extracted(decode_page(value, PAGE_BYTES).html or "")


def extracted(document: str) -> str:
    """The main content of a page by the library."""
    tree = HTMLTree.parse(document.replace("\0", "\ufffd"))
    text: str = extract_plain_text(
        tree,
        preserve_formatting=False,
        main_content=True,
        list_bullets=False,
        alt_texts=False,
        links=False,
        form_fields=False,
        noscript=False,
        comments=False,
    )
    return text


def _segment(texts: list[str]) -> None:
    for first in range(0, len(texts), BATCH):
        points = normalised_points(texts[first : first + BATCH])
        scanned_tokens(points, hash_keys(PUBLIC_SEED), unit_keys(PUBLIC_SEED))
