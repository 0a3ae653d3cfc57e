"""`neardup publish`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, with_settings, with_sources
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.output import if_interrupted
from stream.settings import Settings


@click.command("publish", cls=SectionCommand)
@with_settings(*CONNECTION)
@with_sources
@click.option(
    "--key",
    type=click.Choice(["url", "host", "none"]),
    default="url",
    show_default=True,
    help="Key of the Kafka records, which decides the partition.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum pages per second.")
def command(settings: Settings, opened: list[Any], key: Any, rate: float | None) -> None:
    """Publish the pages in SOURCES to the pages topic.

    SOURCES are JSON Lines, CSV, TSV, Parquet, web archives (WARC), saved pages or directories of them, or -
    for stdin. Exits with code 1 when a source is damaged, of which the pages before the damage
    are published, when workers will reject all pages, or when all that the sources have is passed over.
    """
    from stream.cli.progress import (
        nothing_read,
        passed_over_by,
        reading,
        show_damages,
        show_passed_over,
        show_rejections,
        show_repeated_ids,
    )
    from stream.roles.publisher import publish
    from stream.sources.rejections import Rejections

    logging.configure(settings.log_format, "publish")
    published, rejections = 0, Rejections()
    with (
        if_interrupted(lambda: f"published at least {quantity(published, 'page')}"),
        reading(opened) as reader,
    ):

        def progress(messages: int, _: int) -> None:
            nonlocal published
            published = messages
            reader.advance(messages)

        count = asyncio.run(
            publish(settings, opened, progress=progress, rate=rate, key=key, rejections=rejections)
        )
    show_passed_over(passed_over_by(opened))
    unfit = rejections.counts.total()
    warning = f"; workers will reject {unfit:,} of them" if unfit else ""
    click.echo(f"published {quantity(count, 'page')} to {settings.namespace}.pages{warning}")
    show_rejections(rejections)
    show_repeated_ids(opened)
    if show_damages(opened) or nothing_read(opened) or (count and unfit == count):
        sys.exit(1)
