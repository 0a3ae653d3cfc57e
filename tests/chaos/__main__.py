"""`make chaos`: faults of every kind against real brokers, and an account of every page.

python -m tests.chaos --minutes 60 --brokers 3 --seed 7
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

import click

from tests.chaos import schedule
from tests.chaos.configurations import configuration
from tests.chaos.epoch import Epoch
from tests.chaos.kafka_cluster.brokers import KafkaCluster
from tests.chaos.report import Report

EPOCH_SECONDS: Final = 240.0
"""Seconds of faults in a namespace, before the next one."""
RATE: Final = 60.0


async def run(report: Report, minutes: float, rate: float, epoch_seconds: float, file: Path | None) -> None:
    """Run epochs until the time is over. The logs of epochs that are not clean are kept."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    started, left, number = time.monotonic(), minutes * 60, 0
    async with KafkaCluster(report.brokers, [schedule.listener(role) for role in schedule.ROLES]) as kafka:
        while left > 0:
            wrong, directory = report.wrong, Path(tempfile.mkdtemp(prefix=f"neardup-chaos-{number}-"))
            epoch = Epoch(kafka, report, number, configuration(report.seed, number), directory, rate)
            try:
                await epoch.run(min(left, epoch_seconds))
            except Exception as error:
                traceback.print_exc()
                report.unexplained.append(f"epoch {number} was cut short: {error!r}")
            left, number = left - epoch_seconds, number + 1
            report.seconds = round(time.monotonic() - started, 1)
            report.write(file)
            click.echo(f"epoch {number}: {report.progress}", err=True)
            if report.wrong == wrong:
                shutil.rmtree(directory)
            else:
                click.echo(f"logs are kept in {directory}", err=True)


@click.command("make chaos")
@click.option("--minutes", default=10.0, show_default=True, help="Of faults, over all epochs.")
@click.option("--brokers", default=3, show_default=True, help="Fewer than 3 run with --dev.")
@click.option("--seed", type=int, help="Of schedule, pages and configurations; drawn, and told, without it.")
@click.option("--rate", default=RATE, show_default=True, help="Pages a second.")
@click.option("--epoch-seconds", default=EPOCH_SECONDS, show_default=True, help="Of faults in a namespace.")
@click.option("--report", "file", type=Path, help="File that takes the report as JSON, after each epoch.")
def main(
    minutes: float, brokers: int, seed: int | None, rate: float, epoch_seconds: float, file: Path | None
) -> None:
    """Kill, stop, cut and damage a deployment, and check every verdict.

    Exit code 1 when a verdict is missing, repeated or different, or when something happened that would have
    needed a person and that no fault explains.
    """
    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    repeat = f"--minutes {minutes:g} --brokers {brokers} --seed {seed} --rate {rate:g}"
    command = f"make chaos ARGS='{repeat} --epoch-seconds {epoch_seconds:g}'"
    report = Report(seed, brokers, command)
    asyncio.run(run(report, minutes, rate, epoch_seconds, file))
    click.echo(str(report))
    sys.exit(0 if report.is_clean else 1)


if __name__ == "__main__":
    main()
