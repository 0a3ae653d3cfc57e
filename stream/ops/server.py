"""HTTP server for `/metrics`, `/livez` and `/readyz` of a role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder

from stream.ops.awaited import shown_by
from stream.ops.health import Health
from stream.ops.http import http_server
from stream.ops.metrics import Metrics
from stream.settings import Settings

OFF: Final = -1
NAMESPACE: Final = "neardup_namespace"
"""Label of all metrics. Where Kubernetes is scraped, `namespace` is that of the pod."""
CLOSE_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class _InNamespace(CollectorRegistry):
    """The metrics of a role, each with the namespace of its deployment as a label."""

    def __init__(self, metrics: Metrics, namespace: str) -> None:
        super().__init__()
        self._registry, self._label = metrics.registry, {NAMESPACE: namespace}

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [each._replace(labels=each.labels | self._label) for each in family.samples]
            yield family


def add_ops_routes(app: web.Application, metrics: Metrics, health: Health, namespace: str) -> None:
    """Add the three paths to an application, for roles with an HTTP server of their own."""
    shown = _InNamespace(metrics, namespace)

    async def show_metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(shown), headers={"Content-Type": content_type})

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
    add_ops_routes(app, metrics, health, settings.namespace)
    host, port = settings.ops_host, settings.ops_port
    async with http_server(app, host, port, options="ops", close_seconds=CLOSE_SECONDS) as url:
        log.info("ops_listening", url=url, paths=["/metrics", "/livez", "/readyz"])
        with shown_by(metrics, health):
            yield url
