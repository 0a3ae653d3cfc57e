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

from stream.cli.options import structure, with_scheme, with_settings, with_sources
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
@click.option("--mode", type=click.Choice(["verified", "strict"]), default="verified", show_default=True)
@click.option("-k", "--distance", type=click.IntRange(0, 63), help="Largest Hamming distance.")
@click.option("--option", "given", multiple=True, metavar="NAME=VALUE", help="Verdict option, e.g. blocks=6.")
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def command(
    settings: Settings,
    opened: list[Any],
    output: BinaryIO | None,
    mode: str,
    distance: int | None,
    given: tuple[str, ...],
    scheme: Any,
    as_json: bool,
) -> None:
    """Judge pages offline: SOURCES are JSON Lines, web archives, directories of saved pages, or -."""
    import msgspec

    from stream.judge.options import VerdictOptions

    logging.configure(settings.log_format, "scan")
    if mode == "strict":
        k = 3 if distance is None else distance
        base = VerdictOptions.paper(k=k, blocks=k + 2)
    else:
        base = VerdictOptions() if distance is None else VerdictOptions(distance=distance)
    chosen = [f"{name}={value}" for name, value in msgspec.structs.asdict(base).items()]
    options = structure(VerdictOptions, (*chosen, *given), "--option")
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
    from stream.cli.progress import reading
    from stream.scan import scan

    seen = Seen()
    with reading(opened) as advance:
        messages = seen.going_in(chain.from_iterable(opened))
        async with aclosing(scan(settings, messages, directory, scheme=scheme, options=options)) as chunks:
            async for decided in chunks:
                for verdict in decided.verdicts():
                    seen.came_out(verdict.verdict, verdict.source.offset)
                if sink:
                    sink.writelines(value + b"\n" for each in decided.messages() for value in each.value)
                advance(seen.verdicts.total())
    return seen
