"""`neardup judge`."""

from __future__ import annotations

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, JUDGE_STATE, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


@click.command("judge", cls=SectionCommand)
@with_settings(
    *CONNECTION,
    "dev",
    *JUDGE_STATE,
    "tables_memory",
    "tables_generation",
    "judge_rows",
    "verdict_routes",
    "verdict_format",
    "ops_host",
    "ops_port",
)
def command(settings: Settings) -> None:
    """Decide the pages of the journal and publish verdicts.

    One judge leads. Further judges stand by, and one of them takes over when the leader ends.
    """
    from stream.roles.judge.role import JudgeRole

    run_role("judge", settings, JudgeRole(settings).run())
