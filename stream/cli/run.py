"""`neardup run`."""

from __future__ import annotations

import click

from stream.cli.options import CONNECTION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


@click.command("run")
@with_settings(
    *CONNECTION,
    "dev",
    "state_dir",
    "worker_processes",
    "page_deadline",
    "page_bytes",
    "tables_memory",
    "ops_host",
    "ops_port",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    help="Workers, each with --worker-processes children.",
    type=click.IntRange(1),
)
def command(settings: Settings, workers: int) -> None:
    """Run workers and a judge under one supervisor, until interrupted."""
    from stream.kafka.lifecycle import stop_event_on_signals
    from stream.supervisor import Supervisor, deployment

    async def run() -> None:
        with stop_event_on_signals() as stop:
            async with Supervisor(deployment(settings, workers), 2 * settings.shutdown_seconds) as roles:
                await roles.attend(stop)

    run_role("run", settings, run())
