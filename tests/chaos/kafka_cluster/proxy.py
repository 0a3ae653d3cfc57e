"""The network: a TCP proxy on loopback before every listener of every broker, which can be cut or slowed.

A cut holds bytes back instead of throwing them away, as TCP does: what was sent while the network was cut
arrives when it is whole again. New connections are taken and held the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

HOST: Final = "127.0.0.1"
CHUNK: Final = 1 << 16
CONNECT_SECONDS: Final = 0.2
"""Delay before a client of a broker that is down is refused."""

Cut = Literal["whole", "both", "requests", "answers", "refused"]
"""Which way bytes are held back; `refused` ends connections instead, and takes no new ones."""


@dataclass(slots=True, eq=False)
class Link:
    """The way from one client to one broker: `listener` of broker `broker`."""

    listener: str
    broker: int
    port: int
    """Where the client connects."""
    upstream: int
    """Where the broker listens."""
    cut: Cut = "whole"
    delay: float = 0.0
    """Seconds that each direction takes."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _connections: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def open(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._accept, HOST, self.port, limit=CHUNK)

    async def close(self) -> None:
        """End all connections and take no more."""
        if self._server is not None:
            self._server.close()
        await self._end_connections()

    async def set(self, cut: Cut = "whole", delay: float = 0.0) -> None:
        """Cut or slow the link; without arguments it is whole again."""
        async with self._changed:
            self.cut, self.delay = cut, delay
            self._changed.notify_all()
        if cut == "refused":
            await self._end_connections()

    async def _end_connections(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        upstream: asyncio.StreamWriter | None = None
        try:
            if self.cut == "refused":
                return
            try:
                answers, upstream = await asyncio.open_connection(HOST, self.upstream, limit=CHUNK)
            except OSError:
                await asyncio.sleep(CONNECT_SECONDS)
                return
            ways = {
                asyncio.create_task(self._carry(reader, upstream, "requests")),
                asyncio.create_task(self._carry(answers, writer, "answers")),
            }
            try:
                # Kafka's connections end both ways at once.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the link was refused or closed
        finally:
            self._connections.discard(connection)
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, way: Literal["requests", "answers"]
    ) -> None:
        """Forward the bytes of one direction, each `delay` seconds after it was sent, unless the direction is
        cut."""
        clock = asyncio.get_running_loop().time
        waiting: deque[tuple[float, bytes]] = deque()
        reading: asyncio.Task[bytes] | None = None
        with contextlib.suppress(OSError):
            while True:
                reading = reading or asyncio.create_task(source.read(CHUNK))
                pause = max(0.0, waiting[0][0] - clock()) if waiting else None
                try:
                    done, _ = await asyncio.wait({reading}, timeout=pause)
                except BaseException:
                    reading.cancel()
                    raise
                if done:
                    chunk = reading.result()
                    reading = None
                    if not chunk:
                        return
                    waiting.append((clock() + self.delay, chunk))
                while waiting and waiting[0][0] <= clock():
                    async with self._changed:
                        await self._changed.wait_for(lambda: self.cut not in ("both", way))
                    target.write(waiting.popleft()[1])
                    await target.drain()


class Network:
    """All links of a Kafka cluster."""

    def __init__(self) -> None:
        self.links: list[Link] = []

    def of(self, listener: str, broker: int | None = None) -> list[Link]:
        """The links of a listener, to one broker or to all."""
        return [
            link
            for link in self.links
            if link.listener == listener and (broker is None or link.broker == broker)
        ]

    def bootstrap_servers(self, listener: str) -> str:
        """Bootstrap servers of a client that uses this listener."""
        return ",".join(f"{HOST}:{link.port}" for link in self.of(listener))

    async def heal(self) -> None:
        """Make every link whole."""
        for link in self.links:
            await link.set()

    async def __aenter__(self) -> Network:
        for link in self.links:
            await link.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        for link in self.links:
            await link.close()
