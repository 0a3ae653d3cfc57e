"""`neardup publish`."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from stream.cli.options import CONNECTION, with_settings, with_sources
from stream.ops import logging
from stream.settings import Settings


@click.command("publish")
@with_settings(*CONNECTION)
@with_sources
@click.option(
    "--key",
    type=click.Choice(["url", "host", "none"]),
    default="url",
    show_default=True,
    help="What decides the partition.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many pages a second.")
def command(settings: Settings, opened: list[Any], key: Any, rate: float | None) -> None:
    """Publish pages: SOURCES are JSON Lines, web archives (WARC), directories of saved pages, or -."""
    from stream.cli.progress import reading
    from stream.kafka.publish import publish

    logging.configure(settings.log_format, "publish")
    with reading(opened) as advance:
        progress = lambda messages, _: advance(messages)  # noqa: E731
        count = asyncio.run(publish(settings, opened, progress=progress, rate=rate, key=key))
    click.echo(f"published {count:,} pages to {settings.namespace}.pages")
