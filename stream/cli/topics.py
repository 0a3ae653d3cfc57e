"""`neardup topics create|describe`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from stream.cli.group import Group
from stream.cli.options import CONNECTION, with_scheme, with_settings, with_verdict_options
from stream.messages.verdict_options import VerdictOptions
from stream.ops import logging
from stream.settings import Settings


@click.group("topics", cls=Group)
def command() -> None:
    """Create or describe the topics."""


@command.command("create")
@with_settings(*CONNECTION, "dev", "partitions", "verdict_routes", "verdict_format")
@with_verdict_options
@with_scheme
def create(settings: Settings, options: VerdictOptions, scheme: Any) -> None:
    """Create the topics, and write the first record of the journal. Running it again is safe.

    That record holds the scheme and the verdict options, which cannot be changed afterwards.
    """
    from stream.kafka import topics

    logging.configure(settings.log_format, "topics")
    genesis = asyncio.run(topics.create(settings, scheme, options))
    click.echo(
        f"journal {genesis.journal[:8]} of namespace {settings.namespace}: "
        f"scheme {genesis.scheme_id}, mode {genesis.options.mode}, "
        f"{genesis.options.blocks} choose {genesis.options.choose}"
    )


@command.command("describe")
@with_settings(*CONNECTION, "dev", "verdict_routes")
def describe(settings: Settings) -> None:
    """Show the topics with their partitions, records and relevant configuration.

    Exits with code 1 when a topic is missing or misconfigured.
    """
    from stream.kafka import topics

    logging.configure(settings.log_format, "topics")
    rows = asyncio.run(topics.describe(settings))
    table = [("topic", "partitions", "replicas", "records", "cleanup", "retention")]
    for row in rows:
        if row.id is None:
            table.append((row.name, "-", "-", "-", "-", "-"))
            continue
        table.append(
            (
                row.name,
                str(row.partitions),
                str(row.replicas),
                f"{'at most ' if row.markers and row.offsets else ''}{row.offsets:,}",
                row.cleanup,
                "for ever" if row.retention_ms is None else f"{row.retention_ms / 3_600_000:g} h",
            )
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    if any(row.markers and row.offsets for row in rows):
        click.echo(
            "\n'at most': transaction markers are counted as records; `neardup audit` counts the verdicts"
        )
    problems = [problem for row in rows for problem in row.problems]
    if problems:
        click.echo("\n" + "\n".join(problems))
        if any(row.id is None for row in rows):
            click.echo("run `neardup topics create` to create missing topics")
        sys.exit(1)
