"""`neardup dashboard`."""

from __future__ import annotations

import os
from typing import Final

import click

from stream.cli.options import CONNECTION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings

NICE: Final = 10
"""Figures may lag behind; the pipeline must not wait for them where they share a processor."""


@click.command("dashboard")
@with_settings(*CONNECTION, "dev", "state_dir", "rebuild_damaged", "dashboard_host", "dashboard_port")
def command(settings: Settings) -> None:
    """Show what is decided, as it is decided, on a web page. One is enough for a namespace."""
    from stream.dashboard.role import DashboardRole

    async def run() -> None:
        await DashboardRole(settings).run()

    os.nice(NICE)
    run_role("dashboard", settings, run())
