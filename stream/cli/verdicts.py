"""`neardup verdicts export`."""

from __future__ import annotations

import asyncio

import click

from stream.cli.group import Group
from stream.cli.options import CONNECTION, PATH, with_settings
from stream.ops import logging
from stream.output import if_interrupted
from stream.settings import Settings


@click.group("verdicts", cls=Group)
def command() -> None:
    """Take the verdicts elsewhere."""


@command.command("export")
@with_settings(*CONNECTION)
@click.argument("target", type=PATH)
def export(settings: Settings, target: str) -> None:
    """Append the verdicts that TARGET lacks to its table `verdicts`, up to the present end.

    TARGET is postgresql://user@host/database (the password in PGPASSWORD), a directory NAME.parquet, to which
    files are added, or a DuckDB file NAME.duckdb. How far it came stands in the same place: run it as often
    as you like, no verdict is there twice, also after a crash.
    """
    from stream.kafka.export import export as export_verdicts
    from stream.sinks.open import name_of, open_sink

    logging.configure(settings.log_format, "export")
    with if_interrupted(lambda: "what was exported stays; run it again to go on"), open_sink(target) as sink:
        exported = asyncio.run(export_verdicts(settings, sink))
    click.echo(f"{exported:,} new verdicts in {name_of(target)}")
