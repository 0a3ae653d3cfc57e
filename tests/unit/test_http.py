"""Servers under clients that are slow, many, or send what no browser would. Real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from stream.dashboard.answers import ClusterPages, Election, MemberPage
from stream.dashboard.counting.latest_verdicts import LatestVerdicts
from stream.dashboard.counting.rows import ClusterRow, Counts
from stream.dashboard.counting.view import View
from stream.dashboard.lookup.lookup import BusyError
from stream.dashboard.web.api import LOOKUP_BYTES, Api, in_hundredths
from stream.dashboard.web.gate import Gate
from stream.dashboard.web.server import application
from stream.errors import DamagedStateError, DiskError
from stream.figures import Meta
from stream.ops.health import Health
from stream.ops.http import HttpLimits, http_server
from stream.ops.metrics import DashboardMetrics
from stream.ops.server import add_ops_routes
from stream.settings import load
from tests.genesis import JOURNAL
from tests.waiting import until

TOKEN = "correct-horse-battery-staple"  # noqa: S105
HANG = 600
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(app: web.Application | None = None, **limits: Any) -> AsyncIterator[int]:
    if app is None:
        app = web.Application()
        add_ops_routes(app, DashboardMetrics(), Health(), "n")
    options: dict[str, Any] = {"options": "ops", "close_seconds": 1.0, "cancel_handlers": True}
    async with http_server(app, "127.0.0.1", 0, limits=HttpLimits(**limits), **options) as url:
        yield int(url.rpartition(":")[2])


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def asked(port: int, request: bytes) -> tuple[int, bytes]:
    """Send these bytes. Returns status (0 for none) and body; the server must close the connection."""
    async with connected(port) as (reader, writer):
        writer.write(request)
        async with asyncio.timeout(HANG):
            try:
                answer = await reader.read()
            except ConnectionError:
                return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split(b" ", 2)[1]) if head else 0), body


async def ended(streams: Streams) -> None:
    try:
        while await streams[0].read(1 << 16):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize("sent", [b"", GET, GET + b"X-Drip: "], ids=["nothing", "no end", "drops"])
async def test_a_connection_that_sends_no_request_is_closed(sent: bytes) -> None:
    async with served(first_request=0.3) as port, AsyncExitStack() as stack, asyncio.timeout(HANG):
        clients = [await stack.enter_async_context(connected(port)) for _ in range(50)]
        for _, writer in clients:
            writer.write(sent)

        async def drip() -> None:
            while True:
                for _, writer in clients:
                    if not writer.is_closing():
                        writer.write(b"a")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip()) if sent.endswith(b": ") else None
        await asyncio.gather(*map(ended, clients))
        if dripping:
            dripping.cancel()

        async def answered() -> bool:  # on a busy machine, the server may take a request for late
            return (await asked(port, GET + b"Connection: close\r\n\r\n"))[0] in (200, 503)

        await until(answered)


async def test_half_open_connections_make_way_for_who_asks() -> None:
    async with served(connections=8, first_request=1000) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(port)) for _ in range(30)]
        assert (await asked(port, GET + b"Connection: close\r\n\r\n"))[0] in (200, 503)
        closed = {asyncio.create_task(ended(each)) for each in clients}
        async with asyncio.timeout(HANG):
            for gone in islice(asyncio.as_completed(closed), 30 - 8):
                await gone
        for task in closed:
            task.cancel()


async def test_an_idle_connection_is_closed_in_time() -> None:
    async with served(idle=0.2) as port, connected(port) as (reader, writer):
        writer.write(GET + b"\r\n")
        async with asyncio.timeout(HANG):
            assert (await reader.read()).startswith(b"HTTP/1.1 ")


async def test_a_client_that_reads_no_answer_is_given_up() -> None:
    over = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(1 << 20))
        finally:
            over.set()

    app = web.Application()
    app.router.add_get("/", endless)
    async with served(app, stalled=0.2) as port, connected(port) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(HANG):
            await over.wait()


# The dashboard.


class _Finder:
    anchors = None

    async def look_up(self, asked: Any) -> dict[str, str]:
        if asked.text == "when busy":
            raise BusyError("too many look-ups are waiting")
        return {"url": asked.url or ""}


@asynccontextmanager
async def dashboard(
    cluster: Callable[[str], ClusterRow] = lambda _: ClusterRow(),
    fail: Callable[[Exception], None] = lambda _: None,
    **options: Any,
) -> AsyncIterator[int]:
    view = View(lambda *_: Counts())
    meta = Meta(cluster="here", journal=JOURNAL, topic="verdicts")
    state = SimpleNamespace(cluster=cluster, history=lambda _: [], meta=meta)
    statistics: Any = SimpleNamespace(view=view, state=state, fail=fail)
    kept = SimpleNamespace(election=Election("none"))
    parts: list[Any] = [SimpleNamespace(now={}), _Finder(), SimpleNamespace(clusters=set()), kept, {}]
    gate, metrics = Gate(load(**options)), DashboardMetrics()
    api = Api(statistics, LatestVerdicts(), *parts, gate, metrics)
    async with served(application(api, gate, load(), metrics, Health())) as port:
        yield port


def request(
    path: str, *headers: str, method: str = "GET", host: str = "localhost", body: bytes = b""
) -> bytes:
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    if body:
        head += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize(
    "host", ["[", "]", "[::1", "[x]", "evil.example", "localhost:x", "@", "", "a b", "%"]
)
@pytest.mark.parametrize("options", [{}, {"dashboard_token": TOKEN}])
async def test_a_strange_host_is_misdirected(host: str, options: dict[str, str]) -> None:
    async with dashboard(**options) as port:
        status, _ = await asked(port, request("/api/v1/figures", host=host))
        assert status in (400, 421) or host == "localhost:x"
        assert status < 500


@pytest.mark.parametrize(
    ("error", "ends"),
    [(DamagedStateError("damaged"), True), (DiskError("full"), True), (ValueError("a slip"), False)],
)
async def test_a_state_that_a_request_finds_damaged_ends_the_dashboard(error: Exception, ends: bool) -> None:
    def raising(_: str) -> ClusterRow:
        raise error

    failed = list[Exception]()
    async with dashboard(raising, failed.append) as port:
        assert (await asked(port, request("/api/v1/clusters/a.1.1")))[0] == 500
    assert failed == [error] * ends


async def test_a_strange_origin_is_another_site() -> None:
    async with dashboard() as port:
        for origin in ("http://[", "http://]", "null", "x", "http://evil.example"):
            asks = request("/api/v1/lookup", f"Origin: {origin}", method="POST", body=b'{"url": "u"}')
            assert (await asked(port, asks))[0] == 403


def test_outsiders_are_told_similarities_in_hundredths() -> None:
    pages = ClusterPages(
        "a.1.1", None, 2, [MemberPage("u", "a.2.1", 3, 0.98765, "2026-01-02T00:00:00.000Z")], []
    )
    (member,) = in_hundredths(pages).members
    assert (member.similarity, member.distance, pages.members[0].similarity) == (0.99, 3, 0.98765)


LOOKUP = request("/api/v1/lookup", method="POST", body=b'{"text": "t"}')


async def test_pages_are_looked_up_with_a_token_alone_unless_the_dashboard_is_open() -> None:
    async with dashboard() as port:
        assert (await asked(port, LOOKUP))[0] == 403
        history = request("/api/v1/lookup", method="POST", body=b'{"url": "u"}')
        assert (await asked(port, history))[0] == 200, "it says nothing that verdicts do not"
    async with dashboard(dashboard_open=True) as port:
        assert (await asked(port, LOOKUP))[0] == 200
    async with dashboard(dashboard_token=TOKEN, dashboard_open=True) as port:
        assert (await asked(port, LOOKUP))[0] == 401


async def test_a_client_looks_up_so_many_pages_an_hour() -> None:
    busy = request("/api/v1/lookup", method="POST", body=b'{"text": "when busy"}')
    async with dashboard(dashboard_open=True, dashboard_lookups=3) as port:
        found = [(await asked(port, each))[0] for each in (LOOKUP, busy, busy, LOOKUP, LOOKUP, busy, LOOKUP)]
    assert found == [200, 503, 503, 200, 200, 429, 429], "what got no answer does not count"


@pytest.mark.parametrize("path", ["figures", "hosts"])
async def test_a_range_cannot_escape_its_bound(path: str) -> None:
    async with dashboard() as port:
        for query, status in (
            ("range=99999d", 400),
            ("range=1101d", 400),
            ("range=26401h", 400),
            ("from=0", 400),
            ("range=1100d", 200),
            ("to=253402300799", 200),
            ("to=1e9", 200),
            ("from=253402300799", 200),
            ("from=253402300798&to=253402300799", 200),
            ("from=nan", 400),
            ("to=inf", 400),
            ("to=-1", 400),
            ("limit=0", 400) if path == "hosts" else ("range=0d", 400),
        ):
            found = await asked(port, request(f"/api/v1/{path}?{query}"))
            assert found[0] == status, (query, found)


async def test_what_no_browser_sends_is_refused_and_never_an_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    post = {"method": "POST"}
    lookup = "/api/v1/lookup"
    deep = 100_000
    requests = [
        *(request("/api/v1/figures", method=each) for each in ("HEAD", "TRACE", "PUT", "BREW", "OPTIONS")),
        request("*", method="OPTIONS"),
        request("localhost:80", method="CONNECT"),
        *(request(path) for path in (
            "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "//etc/passwd",
            "/static/%00", "/api/v1/clusters/%00", "/api/v1/clusters/..%2f..", "/%ff%fe",
            "/api/v1/verdicts?verdict=%00", "/api/v1/figures?host=" + "a" * 300,
            "/api/v1/verdicts?before=%d9%a3", "/api/v1/verdicts?limit=" + "9" * 30,
            "/" + "a" * 20_000, "http://evil.example/api/v1/figures", "http://[/", "/api/v1/hosts?offset=1e9",
        )),
        request("/api/v1/figures", "X-Long: " + "a" * 20_000),
        request("/api/v1/figures", *(f"X-{i}: a" for i in range(5_000))),
        request("/api/v1/figures", "Cookie: " + "; ".join(f"a{i}=b" for i in range(500))),
        request("/api/v1/figures", "Cookie: neardup_session_neardup=x.y.z", "Authorization: Bearer"),
        request("/api/v1/figures", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"),
        request("/static/view.js", "Range: bytes=9999999-", "If-Modified-Since: rubbish"),
        request("/static/view.js", "Range: bytes=-0"),
        request("/", "If-None-Match: " + '"a",' * 1000),
        request(lookup, body=b"[" * deep, **post),
        request(lookup, body=b'{"x": ' + b"[" * deep + b"]" * deep + b"}", **post),
        request(lookup, body=b'{"x": ' + b'{"a":' * deep + b"1" + b"}" * deep + b"}", **post),
        request(lookup, body=b'{"url": NaN}', **post),
        request(lookup, body=b'{"url": "\\ud800"}', **post),
        request(lookup, body=b'{"url": "\\u0000"}', **post),
        request(lookup, body=b'{"url": 1e999}', **post),
        request(lookup, body=b"\xff\xfe{}", **post),
        request(lookup, body=json.dumps({"text": "a" * LOOKUP_BYTES}).encode(), **post),
        request(lookup, "Content-Encoding: gzip", body=gzip.compress(bytes(8 * LOOKUP_BYTES)), **post),
        request(lookup, "Content-Encoding: gzip", body=b"rubbish", **post),
        request(lookup, "Transfer-Encoding: chunked", **post) + b"zz\r\n",
        request(lookup, "Content-Length: -1", **post),
        request(lookup, f"Content-Length: {10**20}", "Content-Type: application/json", **post)[:-2],
        request("/api/v1/session", body=b"[" * deep, **post),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 5000 + b"x",
        bytes(20_000),
    ]  # fmt: skip
    for options in ({}, {"dashboard_token": TOKEN}):
        async with dashboard(**options) as port:
            for each in requests:
                status, body = await asked(port, each)
                assert status < 500, (each[:200], status, body[:300])
            assert (await asked(port, request("/livez")))[0] in (200, 503)
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
