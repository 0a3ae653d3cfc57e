"""`neardup run`."""

from __future__ import annotations

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, JUDGE_STATE, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


@click.command("run", cls=SectionCommand)
@with_settings(
    *CONNECTION,
    "dev",
    *JUDGE_STATE,
    "worker_processes",
    "page_deadline",
    "page_bytes",
    "tables_memory",
    "elect",
    "elect_seconds",
    "elector_name",
    "ops_host",
    "ops_port",
    "dashboard_name",
    "dashboard_host",
    "dashboard_port",
    "dashboard_open",
    "dashboard_lookups",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    help="Number of workers, each with --worker-processes child processes.",
    type=click.IntRange(1),
)
@click.option(
    "--dashboard/--no-dashboard",
    "with_dashboard",
    default=True,
    show_default=True,
    help="Also run a dashboard. One per namespace is enough.",
)
def command(settings: Settings, workers: int, with_dashboard: bool) -> None:
    """Run workers, a judge and a dashboard under one supervisor, until interrupted; with --elect an elector
    as well."""
    from stream.ops.signals import run_unless_stopped, stop_event_on_signals
    from stream.supervisor import Supervisor, claim_ports, dashboard, deployment

    async def run() -> None:
        with stop_event_on_signals() as stop:
            roles = deployment(settings, workers)
            if with_dashboard:
                roles.append(dashboard(settings, roles))
            await run_unless_stopped(stop, claim_ports(settings, roles))
            if stop.is_set():
                return
            async with Supervisor(roles, 2 * settings.shutdown_seconds) as supervisor:
                await supervisor.attend(stop)

    run_role("run", settings, run())
