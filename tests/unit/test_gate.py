"""Authentication of the dashboard by tokens, cookies and proxies, and protection against other sites."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from stream.dashboard.recent_events import MOST_KEYS, RecentEvents
from stream.dashboard.role import DashboardRole
from stream.dashboard.web.api import Api
from stream.dashboard.web.gate import FAILURE_SECONDS, FAILURES, SESSION_SECONDS, Gate, answer, check_reach
from stream.dashboard.web.server import HEADERS, application
from stream.errors import EXIT_REFUSED, SettingsError
from stream.ops.health import Health
from stream.ops.metrics import DashboardMetrics
from stream.settings import Settings, load

TOKEN = "correct-horse-battery-staple"  # noqa: S105
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PROXY: dict[str, Any] = {"dashboard_user_header": "X-User", "dashboard_trusted_proxies": "127.0.0.1"}
ELSEWHERE = PROXY | {"dashboard_trusted_proxies": "10.0.0.0/8"}
JSON = {"Content-Type": "application/json"}
LOGIN, FIGURES = "/api/v1/session", "/api/v1/figures"


class _Api(Api):
    """Every answer is empty: who gets it is what is tried here."""

    def __init__(self) -> None: ...

    def routes(self) -> list[web.RouteDef]:
        async def empty(_: web.Request) -> web.Response:
            return answer({})

        return [web.get(FIGURES, empty), web.post("/api/v1/lookup", empty)]


def test_events_are_counted_for_so_long() -> None:
    clock = Clock()
    events = RecentEvents(60, clock)
    for key, at in (("a", 0), ("b", 10), ("a", 20), ("a", 50), ("b", 55)):
        clock.now = 1000 + at
        events.add(key)
    clock.now = 1061
    assert (events.count("a"), events.count("b"), events.count("c"), events.largest) == (2, 2, 0, 2)
    waits = [events.wait(*each) for each in (("a", 3), ("a", 2), ("a", 1), ("c", 1))]
    assert waits == [0, 20, 50, 0]
    events.take_back("a")
    events.take_back("c")
    assert (events.count("a"), events.wait("a", 1), events.count("c")) == (1, 20, 0)
    clock.now = 1114
    events.take_back("a")
    assert (events.count("a"), events.largest) == (0, 1)
    clock.now = 1200
    assert events.largest == 0
    for number in range(MOST_KEYS + 5):
        events.add(f"{number}")
    assert (events.count("4"), events.count("5"), events.count(f"{MOST_KEYS + 4}")) == (0, 1, 1)


class Clock:
    now = 1_900_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def dashboard(clock: Clock | None = None, **options: Any) -> AsyncIterator[TestClient[Any, Any]]:
    gate = Gate(load(**options), clock or Clock())
    app = application(_Api(), gate, load(), DashboardMetrics(), Health())
    async with TestClient(TestServer(app)) as client:
        yield client


async def status(client: TestClient[Any, Any], method: str, path: str, **options: Any) -> int:
    async with client.request(method, path, allow_redirects=False, **options) as response:
        for name in HEADERS:
            assert name in response.headers
        assert TOKEN not in str(response.headers) + await response.text()
        return response.status


async def test_with_a_token_nothing_but_health_and_the_login_is_open() -> None:
    async with dashboard(dashboard_token=TOKEN) as client:
        for path in (FIGURES, "/api/openapi.json", "/api/v1/nothing", "/metrics"):
            assert await status(client, "GET", path) == 401, path
            assert await status(client, "GET", path, headers={"Authorization": "Bearer wrong"}) == 401
            found = await status(client, "GET", path, headers=BEARER)
            assert found == (404 if path.endswith("nothing") else 200)
        assert await status(client, "POST", "/api/v1/lookup", json={}) == 401
        assert await status(client, "POST", "/api/v1/lookup", json={}, headers=BEARER) == 200
        assert await status(client, "GET", f"{FIGURES}?token={TOKEN}") == 401
        for path, login in (("/", "/login"), ("/host", "/login?to=host"), ("/cluster", "/login?to=cluster")):
            async with client.get(path, allow_redirects=False) as response:
                assert (response.status, response.headers["Location"]) == (303, login)
        for path in ("/livez", "/readyz", "/login", "/static/login.js"):
            assert await status(client, "GET", path) != 401, path
    async with dashboard(dashboard_token=TOKEN, dashboard_metrics_open=True) as client:
        assert await status(client, "GET", "/metrics") == 200
    async with dashboard() as client:
        assert await status(client, "GET", FIGURES) == 200


async def test_a_browser_exchanges_the_token_for_a_cookie_that_ends() -> None:
    clock = Clock()
    async with dashboard(clock, dashboard_token=TOKEN) as client:
        async with client.post(LOGIN, json={"token": TOKEN}) as response:
            assert response.status == 200
            cookie = response.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert TOKEN not in cookie
        assert await status(client, "GET", "/") == await status(client, "GET", FIGURES) == 200
        value = cookie.split("=", 1)[1].split(";")[0]
        name = cookie.split("=", 1)[0]
    async with dashboard(clock, dashboard_token=TOKEN) as client:  # a restart ends no session
        forged = f"{int(clock.now) + 9**9}.{value.split('.', 1)[1]}"
        for given, expected in ((value, 200), (forged, 401), ("", 401), ("..", 401), ("é.ü", 401)):
            assert await status(client, "GET", FIGURES, headers={"Cookie": f"{name}={given}"}) == expected
        clock.now += SESSION_SECONDS
        assert await status(client, "GET", FIGURES, headers={"Cookie": f"{name}={value}"}) == 401
    clock.now -= SESSION_SECONDS
    async with dashboard(clock, dashboard_token=TOKEN[::-1]) as client:  # another token does
        assert await status(client, "GET", FIGURES, headers={"Cookie": f"{name}={value}"}) == 401


async def test_who_logs_out_is_out() -> None:
    async with dashboard(dashboard_token=TOKEN) as client:
        await status(client, "POST", LOGIN, json={"token": TOKEN})
        assert await status(client, "DELETE", LOGIN) == 200
        assert await status(client, "GET", FIGURES) == 401


async def test_behind_tls_the_cookie_is_secure() -> None:
    for proxies, secure in (("127.0.0.1", True), ("10.0.0.1", False)):
        options = {"dashboard_token": TOKEN, "dashboard_trusted_proxies": proxies}
        async with (
            dashboard(**options) as client,
            client.post(LOGIN, json={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"}) as response,
        ):
            assert ("Secure" in response.headers["Set-Cookie"]) == secure


@pytest.mark.parametrize("login", [True, False])
async def test_who_guesses_must_wait_even_with_the_right_token(login: bool) -> None:
    clock = Clock()

    async def attempt(token: str) -> int:
        if login:
            return await status(client, "POST", LOGIN, json={"token": token})
        return await status(client, "GET", FIGURES, headers={"Authorization": f"Bearer {token}"})

    async with dashboard(clock, dashboard_token=TOKEN) as client:
        assert [await attempt(f"guess {i}") for i in range(FAILURES)] == [401] * FAILURES
        assert await attempt(TOKEN) == 429
        clock.now += FAILURE_SECONDS
        assert await attempt(TOKEN) == 200


async def test_a_guesser_behind_a_trusted_proxy_locks_out_only_itself() -> None:
    def said(address: str) -> dict[str, str]:
        # What stands before the last hop was said by whoever asks.
        return {"X-Forwarded-For": f"10.9.9.{clients.pop()}, {address}"}

    clients = list(range(50))
    async with dashboard(dashboard_token=TOKEN, dashboard_trusted_proxies="127.0.0.1") as client:
        for _ in range(FAILURES):
            await status(client, "POST", LOGIN, json={"token": "guess"}, headers=said("203.0.113.7"))
        right = {"token": TOKEN}
        assert await status(client, "POST", LOGIN, json=right, headers=said("203.0.113.7")) == 429
        assert await status(client, "POST", LOGIN, json=right, headers=said("203.0.113.8")) == 200


async def test_a_name_counts_only_from_a_trusted_proxy() -> None:
    named = {"X-User": "somebody"}
    async with dashboard(**PROXY) as client:
        assert await status(client, "GET", FIGURES, headers=named) == 200
        assert await status(client, "GET", FIGURES) == 401
        assert await status(client, "GET", FIGURES, headers={"X-User": " "}) == 401
        assert await status(client, "GET", FIGURES, headers=[("X-User", "a"), ("X-User", "b")]) == 401
        assert await status(client, "POST", LOGIN, json={"token": TOKEN}) == 404
    async with dashboard(**ELSEWHERE) as client:
        assert await status(client, "GET", FIGURES, headers=named) == 401
        assert await status(client, "GET", FIGURES, headers=named | {"X-Forwarded-For": "10.0.0.1"}) == 401


@pytest.mark.parametrize("path", ["/api/v1/lookup", LOGIN])
async def test_pages_of_other_sites_change_nothing(path: str) -> None:
    async with dashboard(dashboard_token=TOKEN) as client:
        own = str(client.make_url("/")).rstrip("/")
        for headers, expected in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "none"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Origin": own}, 403),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Origin": own}, 200),
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
            ({}, 200),
        ):
            data = b'{"token": "%s"}' % TOKEN.encode()
            found = await status(client, "POST", path, data=data, headers=JSON | BEARER | headers)
            assert found == expected, headers


def test_beyond_loopback_somebody_must_be_asked() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "dashboard.example"):  # noqa: S104
        with pytest.raises(SettingsError, match=r"dashboard_token.*dashboard_user_header") as refused:
            check_reach(load(dashboard_host=host))
        assert host in str(refused.value)
        for options in ({"dashboard_token": TOKEN}, PROXY):
            check_reach(load(dashboard_host=host, **options))
    for host in ("127.0.0.1", "::1", "localhost"):
        check_reach(load(dashboard_host=host))
    with pytest.raises(SettingsError, match="dashboard_host: 0"):
        DashboardRole(load(dashboard_host="0.0.0.0"))  # noqa: S104
    assert SettingsError.exit_code == EXIT_REFUSED


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dashboard_token": "short"}, "dashboard_token has fewer than 16"),
        ({"dashboard_user_header": "X-User"}, "requires dashboard_trusted_proxies"),
        ({"dashboard_trusted_proxies": "10.0.0.0/33"}, "dashboard_trusted_proxies: '10.0.0.0/33'"),
        ({"dashboard_user_header": "X User"}, "--dashboard-user-header"),
    ],
)
def test_half_an_authentication_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(**options)
    assert said in str(refused.value)
    assert "short" not in str(refused.value)


async def test_the_token_is_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    settings = load(dashboard_token=TOKEN)
    assert TOKEN not in repr(settings) + str(settings) + repr(Gate(settings))
    assert Settings(**{k: v for k, v in settings.model_dump().items() if v is not None}) == settings
    with caplog.at_level(logging.DEBUG):
        async with dashboard(dashboard_token=TOKEN) as client:
            await status(client, "POST", LOGIN, json={"token": TOKEN})
            await status(client, "POST", LOGIN, json={"token": TOKEN + "x"})
            await status(client, "GET", FIGURES, headers=BEARER)
    assert TOKEN not in caplog.text
