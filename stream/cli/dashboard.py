"""`neardup dashboard`."""

from __future__ import annotations

import os
from typing import Final

import click

from stream.cli.options import CONNECTION, with_settings
from stream.cli.role import run_role
from stream.settings import Settings

NICE: Final = 10
"""Added niceness: the dashboard may lag, but must not slow a pipeline on the same machine."""


@click.command("dashboard")
@with_settings(
    *CONNECTION,
    "dev",
    "state_dir",
    "rebuild_damaged",
    "checkpoints",
    "checkpoint_interval",
    "checkpoints_kept",
    "elect",
    "elector_name",
    "flush_seconds",
    "scrub_hours",
    "dashboard_name",
    "dashboard_host",
    "dashboard_port",
    "dashboard_open",
    "dashboard_lookups",
)
def command(settings: Settings) -> None:
    """Serve a web page that shows verdicts and progress live. One dashboard per namespace is enough; a second
    one counts all of it as well, and needs a --dashboard-name."""
    from stream.dashboard.role import DashboardRole

    async def run() -> None:
        await DashboardRole(settings).run()

    os.nice(NICE)
    run_role("dashboard", settings, run())
