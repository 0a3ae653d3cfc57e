"""Free ports for brokers and proxies."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from stream.brokers.ports import HOST, PORTS


def free_ports(count: int) -> list[int]:
    """Return distinct ports that nobody listened on a moment ago, below the range that the kernel gives to
    clients."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError(f"fewer than {count} free ports")
