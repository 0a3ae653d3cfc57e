"""HTTP server for `/metrics`, `/livez` and `/readyz` of a role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from stream.ops.awaited import shown_by
from stream.ops.health import Health
from stream.ops.http import http_server
from stream.ops.metrics import Metrics
from stream.settings import Settings

OFF: Final = -1
CLOSE_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


def add_ops_routes(app: web.Application, metrics: Metrics, health: Health) -> None:
    """Add the three paths to an application, for roles with an HTTP server of their own."""

    async def show_metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(metrics.registry), headers={"Content-Type": content_type})

    async def livez(_: web.Request) -> web.Response:
        live, details = health.live()
        return web.json_response({"live": live, **details}, status=200 if live else 503)

    async def readyz(_: web.Request) -> web.Response:
        ready, checks = await health.ready()
        trouble = {"trouble": why} if (why := health.awaited or health.trouble) else {}
        answer = {"ready": ready, "checks": checks, "started": round(health.started, 3), **trouble}
        return web.json_response(answer, status=200 if ready else 503)

    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)


@asynccontextmanager
async def ops_server(settings: Settings, metrics: Metrics, health: Health) -> AsyncIterator[str | None]:
    """Context manager that serves the three paths. Yields the base URL, or None if `ops_port` is OFF.

    Raises PortTakenError.
    """
    if settings.ops_port == OFF:
        yield None
        return
    app = web.Application()
    add_ops_routes(app, metrics, health)
    host, port = settings.ops_host, settings.ops_port
    async with http_server(app, host, port, options="ops", close_seconds=CLOSE_SECONDS) as url:
        log.info("ops_listening", url=url, paths=["/metrics", "/livez", "/readyz"])
        with shown_by(metrics, health):
            yield url
