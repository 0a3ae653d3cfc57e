"""`neardup prober`."""

from __future__ import annotations

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


@click.command("prober", cls=SectionCommand)
@with_settings(
    *CONNECTION,
    "dev",
    "prober_group",
    "state_dir",
    "checkpoints",
    "tables_memory",
    "tables_generation",
    "session_seconds",
    "ops_host",
    "ops_port",
)
def command(settings: Settings) -> None:
    """Answer a judge's questions about sealed ranges of anchors.

    Probers share the segments that judges export to the store of checkpoints: each holds the segments
    of the partitions that Kafka assigns to it. A second group of probers holds all segments again.
    """
    from stream.roles.prober.role import ProberRole

    async def run() -> None:
        await ProberRole(settings).run()

    run_role("prober", settings, run())
