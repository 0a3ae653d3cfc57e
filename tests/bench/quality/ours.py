"""Texts -> who was named a duplicate of whom, by `scan`: workers' children, journal rows, judge."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stream.fingerprint.minima import MINIMA_WORDS
from stream.fingerprint.row import Status
from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.local.scan import scan
from stream.messages.verdict_options import VerdictOptions
from stream.settings import load
from stream.sources.source import Message
from tests.bench.quality.figures import Named


@dataclass
class ScannedTexts:
    """What `scan` made of n pages."""

    named: Named
    fingerprint: np.ndarray
    minima: np.ndarray
    ready: np.ndarray

    def candidates(self, options: VerdictOptions, pairs: Iterable[tuple[int, int]]) -> float:
        """Share of (anchor, page) pairs that share a bucket and are near enough."""
        a, b = np.array(list(pairs), np.int64).reshape(-1, 2).T
        design = Rule(options, Scheme()).design()
        words = self.fingerprint if options.strict else self.minima
        met = (design.keys(words[a]) == design.keys(words[b])).any(axis=1)
        near = np.bitwise_count(self.fingerprint[a] ^ self.fingerprint[b]) <= options.within
        return round(float((met & near & self.ready[a] & self.ready[b]).mean()), 4) if len(a) else 1.0


def pages(contents: list[str], kind: str = "text") -> Iterator[Message]:
    """A message each, every one of a URL of its own."""
    for number, content in enumerate(contents):
        url = f"https://bench.example/{number}"
        yield Message(json.dumps({"url": url, kind: content}).encode(), url, url)


def scanned(messages: Iterable[Message], scheme: Scheme, options: VerdictOptions) -> ScannedTexts:
    """Judge messages of the URLs that `pages` gives, in order."""
    return asyncio.run(_scanned(messages, scheme, options))


async def _scanned(messages: Iterable[Message], scheme: Scheme, options: VerdictOptions) -> ScannedTexts:
    named: Named = []
    columns: list[tuple[np.ndarray, ...]] = []
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        settings = load(tables_memory=64 << 20, page_deadline=120)
        async for decided in scan(
            settings, messages, Path(directory) / "state", scheme=scheme, options=options
        ):
            for verdict in decided.verdict_records():
                other = verdict.duplicate_of if verdict.verdict == "duplicate" else None
                named.append(int(other.url.rpartition("/")[2]) if other else None)
            batch = decided.batch
            ready = batch.status == Status.READY
            columns.append((batch.fingerprint[:, 0], batch.sketch[:, -MINIMA_WORDS:], ready))
    return ScannedTexts(named, *(np.concatenate(each) for each in zip(*columns, strict=True)))
