"""`neardup verdicts export`."""

from __future__ import annotations

import asyncio

import click

from stream.cli.options import CONNECTION, with_settings
from stream.ops import logging
from stream.settings import Settings


@click.group("verdicts")
def command() -> None:
    """Take the verdicts elsewhere."""


@command.command("export")
@with_settings(*CONNECTION)
@click.argument("target")
def export(settings: Settings, target: str) -> None:
    """Append the verdicts that TARGET lacks to its table `verdicts`, up to the present end.

    TARGET is postgresql://user@host/database (the password in PGPASSWORD), a directory NAME.parquet, to which
    files are added, or the path of a DuckDB file. How far it came stands in the same place: run it as often
    as you like, no verdict is there twice, also after a crash.
    """
    from stream.integrations.sinks import open_sink
    from stream.kafka.export import export as export_verdicts

    logging.configure(settings.log_format, "export")
    with open_sink(target) as sink:
        exported = asyncio.run(export_verdicts(settings, sink))
    click.echo(f"{exported:,} new verdicts in {target.partition('://')[0] if '://' in target else target}")
