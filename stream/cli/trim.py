"""`neardup trim`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, DURATION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.roles.trimmer.trim import Outcome


@click.command("trim", cls=SectionCommand)
@with_settings(*CONNECTION, "dev", "state_dir", "checkpoints", "ops_host", "ops_port")
@click.option(
    "--every",
    type=DURATION,
    help="Go on and trim at this interval, e.g. 1h, with metrics and health. By default, trim once.",
)
@click.option(
    "--keep",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Keep what was appended within this time.",
)
@click.option("--dry-run", is_flag=True, help="Say what could be deleted. Deletes and verifies nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
def command(settings: Settings, every: float | None, keep: float, dry_run: bool, as_json: bool) -> None:
    """Delete the beginning of the topics decisions and journal that checkpoints of the judge's state replace.

    What the oldest kept checkpoint of the judge or an elector needs stays. Before anything is deleted, the
    newest one of each is restored below --state-dir, read completely and opened: that takes as much disk as
    the state. Without --every, exits with code 1 if something but --keep and the oldest checkpoints holds the
    logs up.
    """
    from stream.errors import SettingsError
    from stream.roles.trimmer.role import TrimRole, trim_once

    if every is not None:
        if dry_run or as_json:
            raise SettingsError("--every: trims again and again; leave --dry-run and --json out")
        if not every:
            raise SettingsError("--every: 0 is no interval; leave it out to trim once")
        run_role("trim", settings, TrimRole(settings, keep, every).run())
        return
    outcomes: list[Outcome] = []

    async def trim() -> None:
        outcomes.append(await trim_once(settings, keep, dry_run=dry_run))

    run_role("trim", settings, trim())
    for outcome in outcomes:
        _show(outcome, dry_run=dry_run, as_json=as_json)
        if outcome.has_problem:
            sys.exit(1)


def _show(outcome: Outcome, *, dry_run: bool, as_json: bool) -> None:
    import msgspec

    if as_json:
        click.echo(msgspec.json.encode(outcome))
        return
    for each in outcome.logs:
        deleted = f"deletes {each.before} to {each.start}" if each.start > each.before else "deletes nothing"
        would = "would be trimmed: " if dry_run else ""
        click.echo(f"{each.topic}: {would}{deleted}, keeps {each.start} to {each.end}")
    click.echo(f"held up ({outcome.held.reason}): {outcome.held.text}")
    click.echo(f"verified: {outcome.verified or 'no checkpoint'}")
    for line in (*outcome.unused, *outcome.damaged):
        click.echo(line, err=True)
