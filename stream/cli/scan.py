"""`neardup scan`."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream.cli.options import with_output, with_scheme, with_settings, with_sources, with_verdict_options
from stream.ops import logging
from stream.output import Output, if_interrupted, writing
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.messages.verdict import VerdictRecord


@click.command("scan")
@with_settings("worker_processes", "page_deadline", "page_bytes", "tables_memory", "tables_generation")
@with_sources
@with_output("verdicts")
@with_verdict_options
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON line at the end.")
def command(
    settings: Settings,
    opened: list[Any],
    output: Path | None,
    options: Any,
    scheme: Any,
    as_json: bool,
) -> None:
    """Judge the pages in SOURCES without a broker, each against those before it.

    SOURCES are JSON Lines, CSV, TSV, Parquet, web archives (WARC), saved pages or directories of them, or -
    for stdin. Exits with code 1 when all pages are rejected.
    """
    from stream.cli.progress import passed_over_by, show_passed_over

    logging.configure(settings.log_format, "scan")
    started = time.monotonic()
    seen = ScanCounts()
    with (
        writing(output) if output else nullcontext() as sink,
        tempfile.TemporaryDirectory(prefix="neardup-scan-") as directory,
        if_interrupted(lambda: f"{seen.verdicts.total():,} pages were judged"),
    ):
        asyncio.run(_scan(settings, opened, Path(directory) / "state", scheme, options, sink, seen))
    seconds = time.monotonic() - started
    passed_over = passed_over_by(opened)
    if as_json:
        sys.stdout.write(json.dumps(seen.summary(seconds) | {"passed_over": dict(passed_over)}) + "\n")
    else:
        verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in seen.verdicts.most_common())
        click.echo(
            f"{seen.pages:,} pages{': ' if verdicts else ''}{verdicts}; {seen.pages / seconds:,.0f} pages/s",
            err=True,
        )
        if seen.reasons:
            click.echo(
                f"rejected for {_listed(seen.reasons)}; docs/reasons.md explains the reasons", err=True
            )
        show_passed_over(passed_over)
    if seen.pages and seen.verdicts["rejected"] == seen.pages:
        if as_json:
            why = _listed(seen.reasons)
            click.echo(f"neardup: all {seen.pages:,} pages were rejected for {why}", err=True)
        sys.exit(1)


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in counted.most_common())


class ScanCounts:
    """Counts of pages read and verdicts given."""

    def __init__(self) -> None:
        self.pages = 0
        self.verdicts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        """Why pages were rejected."""
        self._offsets: Counter[int] = Counter()

    def counting_messages(self, messages: Iterable[Any]) -> Iterator[Any]:
        """Yield the messages and count them."""
        for message in messages:
            self.pages += 1
            yield message

    def count_verdict(self, verdict: VerdictRecord) -> None:
        """Count a verdict, also by the offset of its page."""
        self.verdicts[verdict.verdict] += 1
        self._offsets[verdict.source.offset] += 1
        if verdict.reason is not None:
            self.reasons[verdict.reason] += 1

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return the last line of `--json`."""
        return {
            "pages": self.pages,
            "verdicts": dict(self.verdicts),
            "reasons": dict(self.reasons),
            "missing": self.pages - len(self._offsets),
            "repeated": self._offsets.total() - len(self._offsets),
            "seconds": round(seconds, 3),
            "pages_per_second": round(self.pages / seconds, 1),
        }


async def _scan(
    settings: Settings,
    opened: list[Any],
    directory: Path,
    scheme: Any,
    options: Any,
    sink: Output | None,
    seen: ScanCounts,
) -> None:
    import msgspec

    from stream.cli.progress import reading
    from stream.messages.verdict import VerdictRecord
    from stream.scan import scan

    decode = msgspec.json.Decoder(VerdictRecord).decode
    with reading(opened) as advance:
        messages = seen.counting_messages(chain.from_iterable(opened))
        async with aclosing(scan(settings, messages, directory, scheme=scheme, options=options)) as chunks:
            async for decided in chunks:
                values = decided.json()
                for verdict in map(decode, values):
                    seen.count_verdict(verdict)
                if sink:
                    sink.write(b"".join(value + b"\n" for value in values))
                advance(seen.verdicts.total())
