"""The web server for the page, its files and the API, with headers that keep hostile content inert."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from stream.dashboard.web.api import LOOKUP_BYTES, SECONDS, Api, Handler
from stream.dashboard.web.gate import PAGES, Gate, ProblemError, host_of, is_loopback
from stream.dashboard.web.openapi import document
from stream.errors import DiskError, StateError
from stream.ops.health import Health
from stream.ops.metrics import Metrics
from stream.ops.server import add_ops_routes
from stream.settings import Settings

STATIC: Final = Path(__file__).parent / "static"
KINDS: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
HEADERS: Final = {
    # Whatever a crawled URL injects, only our own scripts run and no data is sent elsewhere.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "Cache-Control": "no-cache",
}

log = structlog.get_logger(__name__)


def application(
    api: Api, gate: Gate, settings: Settings, metrics: Metrics, health: Health
) -> web.Application:
    """Build the web application."""
    app = web.Application(
        middlewares=[_guard(settings.dashboard_host, gate, api)], client_max_size=LOOKUP_BYTES
    )
    app.on_response_prepare.append(_add_headers)
    contract = msgspec.json.encode(document())

    async def openapi(_: web.Request) -> web.Response:
        return web.Response(body=contract, content_type="application/json")

    app.add_routes([*gate.routes(), *api.routes(), web.get("/api/openapi.json", openapi)])
    add_ops_routes(app, metrics, health, settings.namespace)
    app.add_routes([_file("/", STATIC / "index.html"), _file("/login", STATIC / "login.html")])
    app.add_routes([_file(page, STATIC / f"{page[1:]}.html") for page in PAGES])
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in KINDS and path.suffix != ".html":
            app.add_routes([_file(f"/static/{path.relative_to(STATIC).as_posix()}", path)])
    return app


def _file(place: str, path: Path) -> web.RouteDef:
    """Return a route for one static file. No path from a request is ever opened."""

    async def serve(_: web.Request) -> web.FileResponse:
        return web.FileResponse(path, headers={"Content-Type": f"{KINDS[path.suffix]}; charset=utf-8"})

    return web.get(place, serve)


def _guard(host: str, gate: Gate, api: Api) -> Middleware:
    loopback = is_loopback(host)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            # By DNS rebinding, another site can point its own name at 127.0.0.1 and read our figures.
            if loopback and not is_loopback(host_of(f"//{request.host}")):
                raise ProblemError(421, "Misdirected request", "this dashboard answers on loopback only")
            gate.admit(request)
            if request.path == "/api/v1/events":
                return await handler(request)
            async with asyncio.timeout(SECONDS):
                return await handler(request)
        except ProblemError as problem:
            return problem.response()
        except TimeoutError:
            detail = f"the answer took longer than {SECONDS:g} s"
            return ProblemError(504, "Gateway timeout", detail).response()
        except web.HTTPException as error:
            if error.status < 400 or not request.path.startswith("/api/"):
                raise
            return ProblemError(
                error.status, error.reason, f"{request.method} {request.path[:200]}"
            ).response()
        except web.RequestPayloadError as error:  # malformed compression or length
            return ProblemError(400, "Bad request", f"the body cannot be read: {error}").response()
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("request_failed", path=request.path)
            if isinstance(error, StateError | DiskError):
                api.statistics.fail(error)
            return ProblemError(500, "Internal error", "see the log of the dashboard").response()

    return guard


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
