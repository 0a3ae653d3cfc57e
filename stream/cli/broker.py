"""`neardup broker`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from stream.errors import BrokerError

PORT: Final = 9092
POLL_SECONDS: Final = 1.0
"""Interval at which the broker is checked."""


@click.command("broker")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path),
              help="Keep the broker's data in this directory.  [default: a temporary one]")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True,
              help="Port on 127.0.0.1; 0 for a free one.")  # fmt: skip
def command(data: Path | None, port: int) -> None:
    """Start a Kafka broker on this machine, and print its address. It runs until Ctrl-C.

    It is a single Apache Kafka without replicas, access control or encryption, which only this machine can
    reach: to try a deployment with, not for production. It needs Java 17 or newer and Maven, which fetches
    Kafka once, or a Docker engine.
    """
    from stream.brokers.broker import start_own_broker

    try:
        started = start_own_broker(data, _report, port or None)
    except BrokerError as error:
        hint = "; --port chooses another, 0 a free one" if "is taken" in str(error) else ""
        raise BrokerError(f"{error}{hint}") from error
    with started as broker:
        stopping = threading.Event()
        with _stops(stopping):
            _report(f"{broker.description}, until Ctrl-C. In another terminal:")
            click.echo(f"export NEARDUP_BOOTSTRAP_SERVERS={broker.bootstrap_servers} NEARDUP_DEV=1")
            while not stopping.wait(POLL_SECONDS):
                if not broker.alive():
                    where = "" if data is None else f": see {data / 'kafka.log'}"
                    raise BrokerError(f"{broker.description}, has ended{where}")
        _report("stopping the broker")
    _report("its data are gone" if data is None else f"its data are kept in {data}")


def _report(line: str) -> None:
    click.echo(line, err=True)


@contextmanager
def _stops(stopping: threading.Event) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM set an event. A second one ends the process, and thereby the broker."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(*_: object) -> None:
        stopping.set()
        restore()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
