"""`neardup verdicts export`."""

from __future__ import annotations

import asyncio

import click

from stream.cli.group import CommandGroup
from stream.cli.options import CONNECTION, PATH, with_settings
from stream.ops import logging
from stream.output import if_interrupted
from stream.settings import Settings


@click.group("verdicts", cls=CommandGroup)
def command() -> None:
    """Export the verdicts."""


@command.command("export")
@with_settings(*CONNECTION)
@click.argument("target", type=PATH)
def export(settings: Settings, target: str) -> None:
    """Append all verdicts that TARGET does not have yet to its table `verdicts`, then end.

    TARGET is a DuckDB file NAME.duckdb, a directory NAME.parquet, to which files are added, or
    postgresql://user@host/database (with the password in PGPASSWORD). TARGET also stores the position of the
    export, so the command can be repeated: no verdict is exported twice, even after a crash.
    """
    from stream.kafka.names import TopicNames
    from stream.kafka.open_transactions import hidden_records
    from stream.roles.exporter import check_topic
    from stream.roles.exporter import export as export_verdicts
    from stream.sinks.open import name_of, open_sink

    logging.configure(settings.log_format, "export")
    asyncio.run(check_topic(settings))  # before anything is made
    with (
        if_interrupted(lambda: "exported verdicts are kept; run the command again to continue"),
        open_sink(target) as sink,
    ):
        exported = asyncio.run(export_verdicts(settings, sink))
    for line in asyncio.run(hidden_records(settings, TopicNames(settings.namespace).verdicts)):
        click.echo(line, err=True)
    click.echo(f"{exported:,} new verdicts in {name_of(target)}")
