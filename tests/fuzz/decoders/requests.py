"""Requests to the dashboard: whatever is asked, the answer is never an internal error."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import ClassVar
from unittest.mock import AsyncMock, create_autospec

import msgspec
from aiohttp import EMPTY_PAYLOAD, HttpVersion11, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from stream.dashboard.answers import About, Election, System
from stream.dashboard.counting.app import Statistics
from stream.dashboard.counting.latest_verdicts import LatestVerdicts
from stream.dashboard.counting.rows import ClusterRow, Counts
from stream.dashboard.counting.state import State
from stream.dashboard.counting.view import View
from stream.dashboard.deployment.changes import ChangeLog
from stream.dashboard.deployment.lag_history import LagHistory
from stream.dashboard.deployment.system import Watch
from stream.dashboard.lookup.kept_pages import KeptPages
from stream.dashboard.lookup.lookup import BusyError, Finder
from stream.dashboard.lookup.superseded import SupersededClusters
from stream.dashboard.web.api import Api
from stream.dashboard.web.gate import Gate
from stream.dashboard.web.server import application
from stream.figures import Meta
from stream.ops.health import Health
from stream.ops.metrics import DashboardMetrics
from stream.settings import load
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import NUMBERS, STRINGS, damaged

TOKEN = "correct-horse-battery-staple"  # noqa: S105
ABOUT = About("neardup", "0.1.0", "0" * 16, {}, {}, {}, "neardup.rejected")
PATHS = (
    "/", "/host", "/cluster", "/login", "/livez", "/readyz", "/metrics", "/api/openapi.json",
    "/api/v1/session", "/api/v1/figures", "/api/v1/hosts", "/api/v1/neighbours", "/api/v1/clusters",
    "/api/v1/clusters/abcd1234.1.1", "/api/v1/clusters/abcd1234.1.1/comparison", "/api/v1/verdicts",
    "/api/v1/system", "/api/v1/lag", "/api/v1/changes", "/api/v1/about",
    "/api/v1/lookup", "/static/main.js", "/static/../server.py", "/nothing",
)  # fmt: skip
METHODS = ("GET", "GET", "GET", "POST", "POST", "HEAD", "OPTIONS", "DELETE", "PUT", "TRACE")
NAMES = (
    "range", "from", "to", "host", "limit", "offset", "before", "verdict", "role", "one", "other", "format",
    "part",
)  # fmt: skip
VALUES = (
    "15m",
    "all",
    "99999d",
    "00000000001h",
    "duplicate",
    "csv",
    "1e308",
    "nan",
    "-0",
    "٣",
    *map(str, NUMBERS),
    *STRINGS,
)
HOSTS = (
    "127.0.0.1:8787",
    "localhost",
    "[::1]",
    "[",
    "a.example",
    "",
    ":",
    "127.0.0.1:99999999",
    "[::1",
    "\u2066",
)
CREDENTIALS = (f"Bearer {TOKEN}", "Bearer", "Bearer \udcff", "Basic eDp5", "", "bearer " + "x" * 5000)


class Requests(Decoder):
    """The web application, without its sockets: gate, routes, parameters and bodies."""

    name: ClassVar = "dashboard requests"
    bytes_alone: ClassVar = False

    def __enter__(self) -> Requests:
        self._clock = itertools.count(1_900_000_000.0, 30.0)  # so that few wrong tokens come in a minute
        statistics = create_autospec(Statistics, instance=True)
        statistics.view = View(lambda _window, _host: Counts())
        statistics.state = create_autospec(State, instance=True)
        statistics.state.cluster.return_value, statistics.state.history.return_value = ClusterRow(), []
        statistics.state.meta = Meta(cluster="here", journal="ab" * 16, topic="verdicts")
        finder = create_autospec(Finder, instance=True)
        finder.look_up = AsyncMock(side_effect=BusyError("not now"))
        superseded = create_autospec(SupersededClusters, instance=True)
        superseded.clusters = set()
        kept = create_autospec(KeptPages, instance=True)
        kept.election = Election("none")
        watch = create_autospec(Watch, instance=True)
        watch.now = System("neardup", 1_900_000_000.0, [], [], [], None, None, None, None, 0, 0, None)
        watch.lags = LagHistory(1_900_000_000.0)
        watch.changes = ChangeLog(1_900_000_000.0)
        gate, metrics = Gate(load(dashboard_token=TOKEN), lambda: next(self._clock)), DashboardMetrics()
        made = Api(statistics, LatestVerdicts(), watch, finder, superseded, kept, ABOUT, gate, metrics)
        self._app = application(made, gate, load(), metrics, Health())
        self._app.freeze()
        self._runner = self.stack.enter_context(asyncio.Runner())
        first = make_mocked_request("GET", "/")  # making the doubles of a connection takes 10 ms
        self._connection = first.protocol, first.writer
        return self

    def make(self, rng: random.Random) -> bytes:
        path = rng.choice(PATHS)
        if rng.random() < 0.1:
            path += rng.choice(("/", "%00", "%2e%2e/", "%", "?", "\u00ff", "%ff"))
        query = "&".join(f"{rng.choice(NAMES)}={rng.choice(VALUES)}" for _ in range(rng.choice((0, 1, 2, 5))))
        body = msgspec.json.encode({"text": "hello", "url": None} if rng.random() < 0.5 else {"token": TOKEN})
        asked = {
            "method": rng.choice(METHODS),
            "target": f"{path}?{query}" if query else path,
            "host": HOSTS[0] if rng.random() < 0.9 else rng.choice(HOSTS),
            "credentials": CREDENTIALS[0] if rng.random() < 0.8 else rng.choice(CREDENTIALS),
            "cookie": rng.choice(
                ("", "neardup_session_neardup=1.2", "neardup_session_neardup=9999999999." + "0" * 64, ";=,")
            ),
            "type": rng.choice(("application/json", "text/plain", "", "application/json; charset=nonsense")),
            "origin": rng.choice(
                ("", "", "http://127.0.0.1:8787", "null", "http://[", "https://elsewhere.example")
            ),
            "body": damaged(rng, body) if rng.random() < 0.5 else body,
        }
        return msgspec.json.encode(
            {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in asked.items()}
        )

    def check(self, data: bytes) -> str:
        return self._runner.run(self._ask(msgspec.json.decode(data, type=_RequestFields)))

    def _request(self, method: str, target: str, headers: CIMultiDict[str]) -> web.Request:
        raw = tuple(
            (name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()
        )
        message = RawRequestMessage(
            method,
            target,
            HttpVersion11,
            CIMultiDictProxy(headers),
            raw,
            False,
            None,
            False,
            False,
            URL(target),
        )
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        return web.Request(message, EMPTY_PAYLOAD, *self._connection, task, loop, client_max_size=1 << 20)

    async def _ask(self, asked: _RequestFields) -> str:
        headers = CIMultiDict({"Host": asked.host, "Content-Type": asked.type})
        for name in ("credentials", "cookie", "origin"):
            if value := getattr(asked, name):
                headers["Authorization" if name == "credentials" else name.title()] = value
        try:
            request = self._request(asked.method, asked.target, headers)
        except ValueError:
            return "no URL"  # aiohttp's own parser refuses it before anybody else sees it
        request._read_bytes = asked.body
        request._transport_peername = ("127.0.0.1", 1)
        try:
            response = await self._app._handle(request)
        except web.HTTPException as error:
            response = error
        assert response.status < 500 or response.status == 503, response.status
        if not asked.credentials.startswith("Bearer " + TOKEN) and asked.target.startswith("/api/v1/fig"):
            assert response.status in (400, 401, 403, 404, 405, 415, 421, 429), response.status
        return str(response.status)


class _RequestFields(msgspec.Struct):
    method: str
    target: str
    host: str
    credentials: str
    cookie: str
    type: str
    origin: str
    body: bytes
