"""Finds free ports on this machine."""

from __future__ import annotations

import random
import socket
from typing import Final

from stream.errors import BrokerError

HOST: Final = "127.0.0.1"
PORTS: Final = range(20_000, 32_000)
"""Below the ephemeral ports of Linux and macOS, so that no client takes ours while a broker restarts."""


def free_port() -> int:
    """A port on which no process was listening a moment ago. Raises BrokerError."""
    for port in random.SystemRandom().sample(PORTS, 200):
        if is_free(port):
            return port
    raise BrokerError(f"no free port on {HOST} between {PORTS.start} and {PORTS.stop}")


def is_free(port: int) -> bool:
    """Whether no process was listening on a port a moment ago."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def claim(port: int | None) -> int:
    """Return the port if it is free, or a free one for None. Raises BrokerError."""
    if port is None:
        return free_port()
    if not is_free(port):
        raise BrokerError(f"port {port} of {HOST} is taken by another process")
    return port
