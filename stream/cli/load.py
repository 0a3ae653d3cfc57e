"""`neardup load`."""

from __future__ import annotations

import asyncio
import json
import sys

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, with_settings
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.output import if_interrupted
from stream.roles.loader.limits import MAX_LAG
from stream.settings import Settings


@click.command("load", cls=SectionCommand)
@with_settings(*CONNECTION, "session_seconds")
@click.argument("rows", type=click.Path(file_okay=False))
@click.option("--max-lag", type=click.IntRange(0), default=MAX_LAG, show_default=True,
              help="Pause while more live pages than this wait for workers.")  # fmt: skip
@click.option("--abandon", is_flag=True, help="Load although other rows were not loaded to their end.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON line.")
def command(settings: Settings, rows: str, max_lag: int, abandon: bool, as_json: bool) -> None:
    """Bring the fingerprinted pages in directory ROWS into a running deployment, in their order.

    `neardup fingerprint --output ROWS`, Spark or Ray make such a directory, with the seed of the namespace.
    Every page gets one verdict. After an interruption, run the same command again.
    """
    from stream.roles.loader.load import LoadProgress, load
    from stream.sources.rows import RowsSource

    logging.configure(settings.log_format, "load")
    source = RowsSource(rows)
    loading = LoadProgress(source.count)
    with if_interrupted(
        lambda: f"judged {loading.judged:,} of {quantity(loading.rows, 'row')}; run the same command again"
    ):
        asyncio.run(load(settings, source, loading, max_lag=max_lag, abandon=abandon))
    loaded = loading.rows - loading.judged_before
    if as_json:
        figures = {
            "rows": loading.rows,
            "judged_before": loading.judged_before,
            "digest": source.digest,
            "seconds": round(loading.seconds, 3),
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    click.echo(
        f"{rows}: verdicts on {quantity(loading.rows, 'row')}"
        f"{f', {loading.judged_before:,} of them from before' if loading.judged_before else ''}"
        f"{f'; {loading.rate:,.0f} rows/s' if loaded else ''}"
    )
