"""`neardup elector`."""

from __future__ import annotations

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


@click.command("elector", cls=SectionCommand)
@with_settings(
    *CONNECTION,
    "dev",
    "elect",
    "elect_seconds",
    "elector_name",
    "state_dir",
    "rebuild_damaged",
    "checkpoints",
    "checkpoint_interval",
    "checkpoints_kept",
    "scrub_hours",
    "ops_host",
    "ops_port",
)
def command(settings: Settings) -> None:
    """Say which page of each cluster is kept, on the topic `NAMESPACE.best`.

    The elector follows what the judge decided, and decides nothing. One runs for each policy: a second
    process of the same name ends the first one.
    """
    from stream.roles.elector.role import ElectorRole

    async def run() -> None:
        await ElectorRole(settings).run()

    run_role("elector", settings, run())
