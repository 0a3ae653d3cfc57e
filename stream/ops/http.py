"""HTTP servers for untrusted networks, with limits on connections and on slow clients."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from stream.errors import PortTakenError


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one server. Times are in seconds."""

    connections: int = 256
    """Maximum number of open connections. Above it, the oldest one that has not sent a request yet is
    closed."""
    first_request: float = 10.0
    """Time-out for the head of the first request of a connection."""
    idle: float = 30.0
    """Time-out for the head of a further request on a connection."""
    stalled: float = 30.0
    """Time-out for a client that does not read its response."""


@asynccontextmanager
async def http_server(
    app: web.Application,
    host: str,
    port: int,
    *,
    options: str,
    close_seconds: float,
    cancel_handlers: bool = False,
    limits: HttpLimits | None = None,
) -> AsyncIterator[str]:
    """Context manager that serves an application. Yields its base URL. Port 0 picks a free port.

    `options` is the prefix of the settings for host and port, for error messages. `close_seconds` is how long
    open requests may take at shutdown. Raises PortTakenError.
    """
    connections = _Connections(limits or HttpLimits())
    app.middlewares.insert(0, _request_began)
    runner = web.AppRunner(app, shutdown_timeout=close_seconds, handler_cancellation=cancel_handlers)
    await runner.setup()
    loop = asyncio.get_running_loop()
    manager = runner.server

    def connection() -> _Connection:
        return _Connection(
            connections, manager, loop=loop, access_log=None, keepalive_timeout=connections.limits.idle
        )

    try:
        try:
            listening = await loop.create_server(connection, host, port)
        except OSError as error:
            raise port_error(error, host, port, options) from None
        try:
            taken = listening.sockets[0].getsockname()[1]
            yield f"http://{f'[{host}]' if ':' in host else host}:{taken}"
        finally:
            listening.close()
    finally:
        await runner.cleanup()


def port_error(error: OSError, host: str, port: int, options: str) -> PortTakenError:
    """Return the error for an address that cannot be listened on; `options` is as for `http_server`."""
    where = f"{options}_host {host}, {options}_port {port}"
    if error.errno != errno.EADDRINUSE:
        return PortTakenError(f"{where}: {error.strerror or error}")
    return PortTakenError(
        f"{where}: another process listens on this port; --{options}-port chooses another, 0 a free one"
    )


@dataclass(slots=True)
class _Connections:
    """The open connections of one server."""

    limits: HttpLimits
    all: set[_Connection] = field(default_factory=set)
    silent: dict[_Connection, None] = field(default_factory=dict)
    """Connections that have not sent a request yet, oldest first."""

    def admit(self, new: _Connection) -> None:
        """Add a connection. Above the limit, close the oldest silent one, which may be this one."""
        self.all.add(new)
        self.silent[new] = None
        if len(self.all) > self.limits.connections:
            next(iter(self.silent)).end()

    def remove(self, gone: _Connection) -> None:
        """Remove a closed connection."""
        self.all.discard(gone)
        self.silent.pop(gone, None)


class _Connection(web.RequestHandler):
    """A connection with time-outs that aiohttp lacks: for the first request, and for unread responses."""

    __slots__ = ("_connections", "_deadline", "_stalled")

    def __init__(self, connections: _Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._connections = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        limits = self._connections.limits
        self._deadline = asyncio.get_running_loop().call_later(limits.first_request, self.end)
        self._connections.admit(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def request_began(self) -> None:
        """Report that the head of a request has arrived."""
        self._connections.silent.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        limits = self._connections.limits
        self._stalled = asyncio.get_running_loop().call_later(limits.stalled, self.end)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def log_exception(self, *arguments: Any, **options: Any) -> None:
        """Log errors, except those caused by malformed requests, with which clients could fill the disk."""
        info = options.get("exc_info")
        error = info if isinstance(info, BaseException) else sys.exception()
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            super().log_exception(*arguments, **options)

    def end(self) -> None:
        """Close the connection at once and discard unsent data."""
        self._connections.remove(self)
        if self.transport is not None:
            self.transport.abort()


@web.middleware
async def _request_began(request: web.Request, handler: Any) -> web.StreamResponse:
    connection = request.protocol
    if isinstance(connection, _Connection):
        connection.request_began()
    response: web.StreamResponse = await handler(request)
    return response
