"""`neardup worker`."""

from __future__ import annotations

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


@click.command("worker", cls=SectionCommand)
@with_settings(
    *CONNECTION,
    "dev",
    "worker_processes",
    "worker_memory",
    "page_deadline",
    "page_bytes",
    "ops_host",
    "ops_port",
)
def command(settings: Settings) -> None:
    """Fingerprint pages and append them to the journal.

    One worker uses all cores through child processes. Workers on several machines share the partitions.
    """
    from stream.roles.worker.role import WorkerRole

    run_role("worker", settings, WorkerRole(settings).run())
