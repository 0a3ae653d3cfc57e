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
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise BrokerError(f"no free port on {HOST} between {PORTS.start} and {PORTS.stop}")
