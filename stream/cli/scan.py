"""`neardup scan`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream.cli.group import SectionCommand
from stream.cli.options import (
    with_same_pages,
    with_scheme,
    with_settings,
    with_sources,
    with_verdict_options,
)
from stream.cli.quantity import quantity
from stream.interpreted import interpret_loops
from stream.ops import logging
from stream.output import if_interrupted
from stream.scratch import ScratchDirectory
from stream.settings import Settings
from stream.sources.rejections import Rejections
from stream.sources.row_warnings import RowWarnings
from stream.sources.small import are_small

if TYPE_CHECKING:
    from stream.local.scan import ScannedBatch
    from stream.messages.verdict import VerdictRecord


@click.command("scan", cls=SectionCommand)
@with_settings("worker_processes", "page_deadline", "page_bytes", "tables_memory", "tables_generation")
@partial(with_sources, counted=True)
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="Write the verdicts to NAME.parquet (a directory), NAME.duckdb, NAME.csv, or else as JSON"
              " Lines; - for stdout.")  # fmt: skip
@click.option("--clusters", type=click.Path(),
              help="Also write the clusters, with their sizes and how many pages came from which source, over"
              " all that the index has, to NAME.parquet, NAME.csv, or else as JSON Lines.")  # fmt: skip
@click.option("--index", "index_directory", type=click.Path(path_type=Path, file_okay=False),
              help="Continue the index in this directory, or make it: pages are judged against all that it"
              " has.  [default: a new one, removed at the end]")  # fmt: skip
@with_same_pages
@with_verdict_options
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON line at the end.")
def command(
    settings: Settings,
    opened: list[Any],
    output: Path | None,
    clusters: str | None,
    index_directory: Path | None,
    same_pages: bool,
    options: Any,
    scheme: Any,
    as_json: bool,
) -> None:
    """Judge the pages in SOURCES without a broker, each against those before it.

    SOURCES are JSON Lines, CSV, TSV, Parquet, web archives (WARC), saved pages or directories of them, rows
    of `neardup fingerprint --output`, or - for stdin. With --index, a scan of rows that was interrupted or
    killed goes on when it is run again, and its output gets every verdict once. Exits with code 1 when all
    pages are rejected, a source is damaged, or all that it has is passed over.
    """
    from stream.cli.progress import (
        damages_of,
        list_counts,
        nothing_read,
        passed_over_by,
        show_crowding,
        show_damages,
        show_passed_over,
        show_rejections,
        show_repeated_ids,
        show_warnings,
    )
    from stream.sources.overlap import names_of, refuse_overlap

    logging.configure(settings.log_format, "scan")
    for option, written in (("output", output), ("index", index_directory)):
        if written:
            refuse_overlap(option, written, names_of(opened))
    if index_directory is None and are_small(opened):
        interpret_loops()
    counted = None
    if clusters:
        from stream.local.clusters import write_clusters
        from stream.sinks.report import refuse_other_report
        from stream.stores.objects import path_of

        counted = path_of(clusters)
        refuse_other_report("clusters", counted)
        others = [str(each) for each in (output, index_directory) if each]
        refuse_overlap("clusters", counted, [*names_of(opened), *others])
    started = time.monotonic()
    seen = ScanCounts()
    with ScratchDirectory("scan") as temporary:
        place = index_directory or Path(temporary) / "index"
        kept = index_directory is not None
        asyncio.run(_scan(settings, opened, place, kept, same_pages, scheme, options, output, seen))
        if counted:
            write_clusters(place, counted)
    seconds = time.monotonic() - started
    passed_over = passed_over_by(opened)
    if as_json:
        sys.stdout.write(
            json.dumps(
                seen.summary(seconds) | {"passed_over": dict(passed_over), "damaged": damages_of(opened)}
            )
            + "\n"
        )
    else:
        verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in seen.verdicts.most_common())
        click.echo(
            f"{quantity(seen.pages, 'page')}{': ' if verdicts else ''}{verdicts}{seen.described_rate}",
            err=True,
        )
        show_rejections(seen.rejections)
        show_crowding(seen.crowding)
        show_warnings(seen.warnings)
        show_passed_over(passed_over)
    show_repeated_ids(opened)
    damaged = show_damages(opened)
    if seen.pages and seen.verdicts["rejected"] == seen.pages:
        if as_json:
            why, was = list_counts(seen.rejections.counts), "was" if seen.pages == 1 else "were"
            click.echo(f"neardup: all {quantity(seen.pages, 'page')} {was} rejected for {why}", err=True)
        sys.exit(1)
    if damaged or nothing_read(opened):
        sys.exit(1)


class ScanCounts:
    """Counts of pages read and verdicts given."""

    def __init__(self) -> None:
        self.pages = 0
        self.messages = 0
        """Pages read of sources other than rows."""
        self.described_rate = ""
        self.verdicts: Counter[str] = Counter()
        self.rejections = Rejections()
        self.warnings = RowWarnings()
        self.crowding = Counter(full_buckets=0, cut_lists=0)
        self._distinct = 0
        self._next: dict[str, int] = {}
        """Topic id -> the offset after the last verdict's: verdicts come in order."""

    def counting_messages(self, messages: Iterable[Any]) -> Iterator[Any]:
        """Yield the messages and count them."""
        for message in messages:
            self.pages += 1
            self.messages += 1
            yield message

    def count_verdict(self, verdict: VerdictRecord) -> None:
        """Count a verdict, also by the offset of its page."""
        self.verdicts[verdict.verdict] += 1
        source = verdict.source
        if source.offset >= self._next.get(source.topic_id, 0):
            self._distinct += 1
            self._next[source.topic_id] = source.offset + 1

    def count_rows(self, scanned: ScannedBatch) -> None:
        """Count the pages of a batch that are rejected, or odd."""
        for row, origin in zip(scanned.rows, scanned.origins, strict=True):
            self.warnings.count(row, origin)
            if row.reason is not None:
                self.rejections.count(row.reason, str(origin), row.detail)

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return the last line of `--json`."""
        return {
            "pages": self.pages,
            "verdicts": dict(self.verdicts),
            "reasons": dict(self.rejections.counts),
            "examples": self.rejections.examples,
            "missing": self.pages - self._distinct,
            "repeated": self.verdicts.total() - self._distinct,
            **self.crowding,
            **self.warnings.summary(),
            "seconds": round(seconds, 3),
            "pages_per_second": round(self.pages / seconds, 1),
        }


async def _scan(
    settings: Settings,
    opened: list[Any],
    directory: Path,
    keep: bool,
    same_pages: bool,
    scheme: Any,
    options: Any,
    output: Path | None,
    seen: ScanCounts,
) -> None:
    import msgspec

    from stream.cli.progress import reading
    from stream.local.index import TOPIC_ID, VERDICT_LOG
    from stream.local.scan import index_in, judge_sources, rows_id
    from stream.local.scan_output import BegunRows, verdicts_to
    from stream.local.shared_ids import refuse_other_pages
    from stream.messages.verdict import VerdictRecord
    from stream.sources.rows import RowsSource
    from stream.sources.source import arguments_of, refuse_unreadable

    decode = msgspec.json.Decoder(VerdictRecord).decode
    with index_in(directory, settings, scheme, options) as index:
        of_rows = [each for each in opened if isinstance(each, RowsSource)]
        for each in of_rows:  # before any page of another source is judged
            each.refuse_misfits(index.scheme)
        once = {rows_id(each): each for each in of_rows}.values()
        remaining = {each: each.count - index.judged(rows_id(each)) for each in once}
        if (
            len(of_rows) == len(opened)
            and not any(remaining.values())
            and not (directory / VERDICT_LOG).exists()
        ):
            return  # an output is left as it is
        if not same_pages:
            await refuse_other_pages(settings, index, directory, opened)
        partial_rows = [
            BegunRows(each.name, rows_id(each), each.count - rows)
            for each, rows in remaining.items()
            if 0 < rows < each.count
        ]
        with (
            verdicts_to(output, index, directory if keep else None, partial_rows) as verdicts,
            reading(opened) as progress,
            if_interrupted(lambda: f"judged {quantity(seen.verdicts.total(), 'page')}"),
        ):
            values: list[bytes] = []

            def before(scanned: ScannedBatch) -> None:
                values[:] = verdicts.log(scanned)
                seen.count_rows(scanned)

            sources = [
                each if isinstance(each, RowsSource) else seen.counting_messages(each) for each in opened
            ]
            seen.pages += sum(remaining.values())
            repeated_ids = next((each.repeated_ids for each in opened if each.repeated_ids), None)
            if same_pages:
                repeated_ids = None  # they are meant
            judged_messages = 0
            async with aclosing(
                judge_sources(settings, index, sources, before, arguments_of(opened))
            ) as chunks:
                async for decided in chunks:
                    seen.crowding.update(decided.crowding)
                    records = list(map(decode, values))
                    for record in records:
                        seen.count_verdict(record)
                        if repeated_ids is not None and record.change in ("unchanged", "changed"):
                            repeated_ids.add_recrawl(record.url, str(record.origin))
                    verdicts.write(values, records)
                    judged_messages += sum(record.source.topic_id == TOPIC_ID for record in records)
                    progress.advance(seen.verdicts.total(), seen.messages - judged_messages)
            seen.described_rate = progress.describe_rate()
            if not seen.pages:
                refuse_unreadable(opened)
