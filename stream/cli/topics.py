"""`neardup topics create|seed|describe`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream.cli.group import CommandGroup, SectionCommand
from stream.cli.options import CONNECTION, with_scheme, with_settings, with_verdict_options
from stream.messages.verdict_options import VerdictOptions
from stream.ops import logging
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.messages.journal import Genesis


@click.group("topics", cls=CommandGroup)
def command() -> None:
    """Create or describe the topics, or save the journal's seed."""


@command.command("create", cls=SectionCommand)
@with_settings(*CONNECTION, "dev", "partitions", "verdict_routes", "verdict_format", "elect", "elector_name")
@with_verdict_options
@with_scheme
def create(settings: Settings, options: VerdictOptions, scheme: Any) -> None:
    """Create the topics, and write the genesis of the journal. Running it again is safe.

    That record holds the scheme and the verdict options, which cannot be changed afterwards.
    """
    from stream.kafka import topics

    logging.configure(settings.log_format, "topics")
    genesis = asyncio.run(topics.create(settings, scheme, options))
    click.echo(_genesis_line(settings, genesis))
    click.echo("next: `neardup run` starts workers, a judge and a dashboard", err=True)


def _genesis_line(settings: Settings, genesis: Genesis) -> str:
    options = genesis.options
    design = f", {options.blocks} choose {options.choose}" if options.strict else ""
    return (
        f"journal {genesis.journal[:8]} of namespace {settings.namespace}, format {genesis.version}: "
        f"scheme {genesis.scheme_id}, seed digest {genesis.scheme.seed_digest}, "
        f"mode {options.mode}{design}"
    )


@command.command("seed")
@with_settings(*CONNECTION)
@click.argument("file", type=click.Path(path_type=Path))
def seed(settings: Settings, file: Path) -> None:
    """Write the journal's seed to FILE, for `--scheme seed_file=FILE` of commands without a broker.

    FILE must be new, and only its owner may read it. Whoever knows the seed can craft pages that hide
    copies, or that make the pages of others duplicates.
    """
    from stream.errors import SettingsError
    from stream.kafka import topics
    from stream.output import writing

    logging.configure(settings.log_format, "topics")
    genesis = asyncio.run(topics.wait_for_genesis(settings, timeout=10))
    if file.is_file():  # replacing it would keep its owner and its permissions
        raise SettingsError(f"{file}: is there already; name a new file")
    os.umask(0o077)
    with writing(file) as output:
        output.write(genesis.seed.hex().encode() + b"\n")


@command.command("describe")
@with_settings(*CONNECTION, "dev", "verdict_routes", "elect", "elector_name")
def describe(settings: Settings) -> None:
    """Show the topics with their partitions, records and relevant configuration, and the journal's genesis.

    Exits with code 1 when a topic is missing or misconfigured.
    """
    from stream.kafka import topics

    logging.configure(settings.log_format, "topics")
    rows, genesis = asyncio.run(topics.describe(settings))
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
    click.echo("\n" + (genesis if isinstance(genesis, str) else _genesis_line(settings, genesis)))
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
