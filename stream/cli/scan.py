"""`neardup scan`."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import click

from stream.cli.options import with_scheme, with_settings, with_sources, with_verdict_options
from stream.ops import logging
from stream.settings import Settings


@click.command("scan")
@with_settings("worker_processes", "page_deadline", "page_bytes", "tables_memory", "tables_generation")
@with_sources
@click.option(
    "-o",
    "--output",
    type=click.File("wb", lazy=False),
    help="File for the verdicts, JSON Lines; - for stdout.",
)
@with_verdict_options
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def command(
    settings: Settings,
    opened: list[Any],
    output: BinaryIO | None,
    options: Any,
    scheme: Any,
    as_json: bool,
) -> None:
    """Judge pages offline: SOURCES are JSON Lines, web archives, directories of saved pages, or -."""
    logging.configure(settings.log_format, "scan")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="neardup-scan-") as directory:
        seen = asyncio.run(_scan(settings, opened, Path(directory) / "state", scheme, options, output))
    seconds = time.monotonic() - started
    if as_json:
        sys.stdout.write(json.dumps(seen.summary(seconds)) + "\n")
    else:
        verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in seen.verdicts.most_common())
        click.echo(f"{seen.pages:,} pages: {verdicts}; {seen.pages / seconds:,.0f} pages/s", err=True)


class Seen:
    """What went in and what came out."""

    def __init__(self) -> None:
        self.pages = 0
        self.verdicts: Counter[str] = Counter()
        self._offsets: Counter[int] = Counter()

    def going_in(self, messages: Iterable[Any]) -> Iterator[Any]:
        """Count the messages on their way."""
        for message in messages:
            self.pages += 1
            yield message

    def came_out(self, verdict: str, offset: int) -> None:
        """Count a verdict of the message of that number."""
        self.verdicts[verdict] += 1
        self._offsets[offset] += 1

    def summary(self, seconds: float) -> dict[str, Any]:
        """The last line of `--json`."""
        return {
            "pages": self.pages,
            "verdicts": dict(self.verdicts),
            "missing": self.pages - len(self._offsets),
            "repeated": self._offsets.total() - len(self._offsets),
            "seconds": round(seconds, 3),
            "pages_per_second": round(self.pages / seconds, 1),
        }


async def _scan(
    settings: Settings, opened: list[Any], directory: Path, scheme: Any, options: Any, sink: BinaryIO | None
) -> Seen:
    import msgspec

    from stream.cli.progress import reading
    from stream.messages.verdict import VerdictRecord
    from stream.scan import scan

    decode = msgspec.json.Decoder(VerdictRecord).decode
    seen = Seen()
    with reading(opened) as advance:
        messages = seen.going_in(chain.from_iterable(opened))
        async with aclosing(scan(settings, messages, directory, scheme=scheme, options=options)) as chunks:
            async for decided in chunks:
                values = decided.json()
                for verdict in map(decode, values):
                    seen.came_out(verdict.verdict, verdict.source.offset)
                if sink:
                    sink.writelines(value + b"\n" for value in values)
                advance(seen.verdicts.total())
    return seen
