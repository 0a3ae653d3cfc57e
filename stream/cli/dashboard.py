"""`neardup dashboard`."""

from __future__ import annotations

import click

from stream.cli.options import CONNECTION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings


@click.command("dashboard")
@with_settings(*CONNECTION, "dev", "state_dir", "dashboard_host", "dashboard_port")
def command(settings: Settings) -> None:
    """Show what is decided, as it is decided, on a web page. One dashboard a namespace."""
    from stream.dashboard.role import DashboardRole

    async def run() -> None:
        await DashboardRole(settings).run()

    run_role("dashboard", settings, run())
