"""A proxy for Kafka's protocol that can withhold requests or answer them itself."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 1, 2, 3, 9, 10
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Request:
    """One request as it came, with its header."""

    api: int
    version: int
    correlation: int
    frame: bytes


@dataclass
class Proxy:
    """What the proxy does; change it at any time."""

    port: int = 0
    withhold: Callable[[Request], bool] = lambda request: False
    """Requests that the broker never gets, as if it were silent."""
    answer: Callable[[Request], bytes | None] = lambda request: None
    """The body that a request is answered with, if not by the broker."""
    seen: list[Request] = field(default_factory=list)
    """Requests withheld or answered by the proxy."""

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"


@asynccontextmanager
async def open_proxy(bootstrap_servers: str) -> AsyncIterator[Proxy]:
    """Context manager that runs a proxy of a Kafka cluster with one broker. Metadata name its port, so
    clients keep using it."""
    port = int(bootstrap_servers.rpartition(":")[2])
    proxy = Proxy()
    handlers: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await _serve(proxy, port, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has gone
        finally:
            handlers.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def _serve(proxy: Proxy, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    broker_reader, broker_writer = await asyncio.open_connection(HOST, port)
    apis: dict[int, int] = {}
    here, there = (HOST.encode() + struct.pack(">i", each) for each in (proxy.port, port))

    async def back() -> None:
        while True:
            frame = await _frame(broker_reader)
            if apis.pop(struct.unpack_from(">i", frame)[0]) in (METADATA, FIND_COORDINATOR):
                frame = frame.replace(there, here)
            _send(writer, frame)
            await writer.drain()

    returning = asyncio.create_task(back())
    try:
        while True:
            frame = await _frame(reader)
            request = Request(*struct.unpack_from(">hhi", frame), frame)
            if proxy.withhold(request):
                proxy.seen.append(request)
            elif (body := proxy.answer(request)) is not None:
                proxy.seen.append(request)
                _send(writer, struct.pack(">i", request.correlation) + body)
            else:
                apis[request.correlation] = request.api
                _send(broker_writer, frame)
                await broker_writer.drain()
    finally:
        returning.cancel()
        broker_writer.close()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await returning


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
