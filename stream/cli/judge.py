"""`neardup judge`."""

from __future__ import annotations

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, JUDGE_STATE, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


def _first_number(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None or value == "all":
        return None if value is None else 0
    if not value.isascii() or not value.isdigit():
        raise click.BadParameter(f"{value!r} is neither the number of an anchor nor `all`")
    return int(value)


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
@click.option(
    "--take-back",
    metavar="SEGMENT|all",
    callback=_first_number,
    help="Build tables again that were dropped because probers answer for them: those of the segment that "
    "begins with this anchor and of all later ones, or all. With `prober_replicas` they are dropped again.",
)
def command(settings: Settings, take_back: int | None) -> None:
    """Decide the pages of the journal and publish verdicts.

    One judge leads. Further judges stand by, and one of them takes over when the leader ends.
    """
    from stream.roles.judge.role import JudgeRole

    run_role("judge", settings, JudgeRole(settings, take_back).run())
