"""`neardup query`."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, with_settings, with_sources
from stream.cli.printable import printable
from stream.errors import SettingsError
from stream.ops import logging
from stream.output import STDOUT, write_json
from stream.settings import Settings
from stream.stores.objects import AnyPath, path_of

CHUNK = 256


@click.command("query", cls=SectionCommand)
@with_settings(*CONNECTION, "state_dir", "rebuild_damaged", "checkpoints")
@partial(with_sources, required=False)
@click.option("--clusters", "index", type=click.Path(path_type=Path, file_okay=False), metavar="INDEX",
              help="In place of SOURCES: write the clusters of this index, of `scan` or `dedup`, with their"
              " sizes and how many pages came from which source; it needs no Kafka.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(),
              help="Write the clusters to NAME.parquet, NAME.csv, or else as JSON Lines, compressed if the"
              " name ends in .gz, .bz2, .xz or .zst; - for stdout.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per page.")
def command(
    settings: Settings, opened: list[Any], index: Path | None, output: str | None, as_json: bool
) -> None:
    """Find the anchors that match the pages in SOURCES, without inserting the pages.

    The command keeps its own copy of the judge's state below --state-dir. The first call restores it from a
    checkpoint, or builds it from the topics; later calls bring it up to date.
    """
    from stream.cli.progress import nothing_read, show_damages

    if index:
        if opened:
            raise SettingsError("clusters: are those of an index alone; leave the sources out")
        _write_clusters(index, path_of(output or STDOUT))
        return
    if output:
        raise SettingsError("output: is that of --clusters alone; matching anchors are printed")
    if not opened:
        raise click.UsageError("Missing argument 'SOURCES...'.", click.get_current_context())
    from stream.kafka.clients import with_translated_errors

    logging.configure(settings.log_format, "query")
    asyncio.run(with_translated_errors(_query)(settings, opened, as_json))
    if show_damages(opened) or nothing_read(opened):
        sys.exit(1)


def _write_clusters(index: Path, output: AnyPath) -> None:
    """Write a line or row for each cluster of an index."""
    from stream.local.clusters import write_clusters
    from stream.sinks.report import refuse_other_report
    from stream.sources.overlap import refuse_overlap

    refuse_other_report("output", output)
    refuse_overlap("output", output, [str(index)])
    write_clusters(index, output)


async def _query(settings: Settings, opened: list[Any], as_json: bool) -> None:
    from rich.console import Console

    from stream.judge.query import matching_anchors
    from stream.kafka import topics
    from stream.kafka.open_transactions import hidden_records
    from stream.page_rows.page_fingerprinter import PageFingerprinter
    from stream.states.follower import open_follower

    genesis = await topics.wait_for_genesis(settings, timeout=10)
    fingerprinter = PageFingerprinter(genesis.scheme, genesis.seed)
    directory = settings.state_dir / settings.namespace / "query"
    console = Console(stderr=True)
    async with open_follower(settings, genesis, directory, restore=True) as follower:
        with console.status("following the decisions"):
            await follower.follow_to_stable()
            hidden = await hidden_records(settings, follower.decisions.topic)
        for line in hidden:
            click.echo(line, err=True)
        messages = chain.from_iterable(opened)
        while chunk := list(islice(messages, CHUNK)):
            rows = [fingerprinter.message(message.value, settings.page_bytes) for message in chunk]
            for message, row, matches in zip(
                chunk, rows, matching_anchors(follower.judge, rows), strict=True
            ):
                if as_json:
                    record = {"url": row.url, "reason": row.reason, "anchors": matches}
                    write_json(json.dumps(record, ensure_ascii=False).encode())
                    continue
                click.echo(printable(row.url or message.origin))
                if row.reason:
                    click.echo(f"    rejected: {row.reason}")
                for anchor in matches:
                    click.echo(
                        f"    {printable(anchor['url'])}  (distance {anchor['distance']}, "
                        f"similarity {anchor['similarity']}, id {anchor['id']})"
                    )
                if not matches and not row.reason:
                    click.echo("    no anchor matches")
