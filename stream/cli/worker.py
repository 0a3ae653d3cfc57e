"""`neardup worker`."""

from __future__ import annotations

import asyncio

import click

from stream.cli.options import CONNECTION, with_settings
from stream.ops import logging
from stream.settings import Settings


@click.command("worker")
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
    """Fingerprint pages into the journal.

    One uses every core by its children; several machines share the partitions.
    """
    from stream.kafka.worker import WorkerRole

    logging.configure(settings.log_format, "worker")
    asyncio.run(WorkerRole(settings).run())
