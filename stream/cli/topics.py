"""`neardup topics create|describe`."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from stream.cli.options import CONNECTION, with_scheme, with_settings, with_verdict_options
from stream.judge.options import VerdictOptions
from stream.ops import logging
from stream.settings import Settings


@click.group("topics")
def command() -> None:
    """Create or describe the topics."""


@command.command("create")
@with_settings(*CONNECTION, "dev", "partitions", "verdict_routes", "verdict_format")
@with_verdict_options
@with_scheme
def create(settings: Settings, options: VerdictOptions, scheme: Any) -> None:
    """Create the topics and write the journal's genesis. Safe to run again.

    Scheme and verdict options are fixed from then on: they live in the journal.
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
    """Show the topics with their partitions, records and what matters of their configuration."""
    from rich.console import Console
    from rich.table import Column, Table

    from stream.kafka import topics

    logging.configure(settings.log_format, "topics")
    rows = asyncio.run(topics.describe(settings))
    table = Table(
        Column("topic", no_wrap=True), "parts", "replicas", "offsets", "cleanup", "retention", "problems"
    )
    for row in rows:
        table.add_row(
            row.name,
            str(row.partitions),
            str(row.replicas),
            f"{row.offsets:,}",
            row.cleanup,
            "for ever" if row.retention_ms is None else f"{row.retention_ms / 3_600_000:g} h",
            "\n".join(row.problems),
        )
    Console().print(table)
