"""`neardup judge`."""

from __future__ import annotations

import asyncio

import click

from stream.cli.options import CONNECTION, with_settings
from stream.ops import logging
from stream.settings import Settings


@click.command("judge")
@with_settings(
    *CONNECTION,
    "dev",
    "state_dir",
    "tables_memory",
    "tables_generation",
    "judge_rows",
    "ops_host",
    "ops_port",
)
def command(settings: Settings) -> None:
    """Decide the journal and publish verdicts. A second judge stands by and takes over."""
    from stream.kafka.judge import JudgeRole

    logging.configure(settings.log_format, "judge")
    asyncio.run(JudgeRole(settings).run())
