"""Texts -> who was named a duplicate of whom, by `scan`: workers' children, journal rows, judge."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stream.fingerprint.scheme import Scheme
from stream.local.scan import scan
from stream.messages.verdict_options import VerdictOptions
from stream.settings import load
from stream.sources.source import Message
from tests.bench.quality.figures import Named


def pages(contents: list[str], kind: str = "text") -> Iterator[Message]:
    """A message each, every one of a URL of its own."""
    for number, content in enumerate(contents):
        url = f"https://bench.example/{number}"
        yield Message(json.dumps({"url": url, kind: content}).encode(), url, url)


def named_of(contents: list[str], scheme: Scheme, options: VerdictOptions, kind: str = "text") -> Named:
    """Judge contents, each as a page of a URL of its own, in order."""
    return asyncio.run(_named_of(contents, scheme, options, kind))


async def _named_of(contents: list[str], scheme: Scheme, options: VerdictOptions, kind: str) -> Named:
    named: Named = []
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        settings = load(tables_memory=64 << 20, page_deadline=120)
        messages = pages(contents, kind)
        async for decided in scan(
            settings, messages, Path(directory) / "state", scheme=scheme, options=options
        ):
            for verdict in decided.verdict_records():
                other = verdict.duplicate_of if verdict.verdict == "duplicate" else None
                named.append(int(other.url.rpartition("/")[2]) if other else None)
    return named
