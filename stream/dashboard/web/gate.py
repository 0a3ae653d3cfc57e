"""Authentication for the dashboard: by token, or by a user name from a trusted reverse proxy.

Programs send the token (`Authorization: Bearer`). Browsers exchange it for a session cookie (HttpOnly,
SameSite=Strict), which is an expiry time signed with the token. So nothing is stored, and changing the token
ends all sessions. Wrong tokens are counted by client address and rate-limited.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog
from aiohttp import web

from stream.dashboard.answers import LoginRequest, Problem, Session
from stream.dashboard.recent_events import RecentEvents
from stream.errors import SettingsError
from stream.settings import Settings, networks

OPEN: Final = ("/livez", "/readyz", "/login", "/api/v1/session")
"""Paths without authentication: health and login. Files under /static/ are public too."""
PAGES: Final = ("/host", "/cluster")
"""Pages beside the overview, to which a login returns."""
SESSION_SECONDS: Final = 12 * 3600
FAILURES: Final = 5
"""Wrong tokens that an address may send per FAILURE_SECONDS."""
FAILURE_SECONDS: Final = 60.0
LOOKUP_SECONDS: Final = 3600.0
"""Seconds for which `dashboard_lookups` holds."""
T = TypeVar("T")
Way = Literal["nobody", "token", "session", "proxy"]

log = structlog.get_logger(__name__)


class ProblemError(Exception):
    """A request that is refused with a problem document (RFC 9457)."""

    def __init__(self, status: int, title: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.problem, self.headers = Problem(title, status, detail), headers

    def response(self) -> web.Response:
        """Return the problem document as a response."""
        headers = {name.replace("_", "-"): value for name, value in self.headers.items()}
        if self.problem.status == 503:
            headers["Retry-After"] = "2"
        return answer(self.problem, self.problem.status, headers, "application/problem+json")


def decode_body(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body. Raises ProblemError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(400, "Bad request", f"the body: {error}") from None


def answer(
    body: Any, status: int = 200, headers: dict[str, str] | None = None, kind: str = "application/json"
) -> web.Response:
    """Return `body` as a JSON response."""
    return web.Response(body=msgspec.json.encode(body), status=status, headers=headers, content_type=kind)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is that of the local machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(url: str) -> str:
    """Return the host of a URL, or an empty string without one or for a malformed URL."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def check_reach(settings: Settings) -> None:
    """Raise SettingsError if other machines could reach the dashboard without authentication."""
    if is_loopback(settings.dashboard_host) or settings.dashboard_token or settings.dashboard_user_header:
        return
    raise SettingsError(
        f"dashboard_host: {settings.dashboard_host} is reachable from other machines without authentication:"
        " set dashboard_token (NEARDUP_DASHBOARD_TOKEN), or dashboard_user_header with"
        " dashboard_trusted_proxies, or listen on 127.0.0.1"
    )


class Gate:
    """Admits requests, or raises ProblemError. `now` returns the time in seconds since the epoch."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        token = settings.dashboard_token
        self._token = token.get_secret_value().encode() if token else None
        self._header = settings.dashboard_user_header
        self._proxies = networks(settings.dashboard_trusted_proxies)
        self._cookie = f"neardup_session_{settings.namespace}"  # cookies are shared between ports
        self._open = (*OPEN, "/metrics") if settings.dashboard_metrics_open else OPEN
        self._now = now
        self._failures = RecentEvents(FAILURE_SECONDS, now)
        self._lookups = RecentEvents(LOOKUP_SECONDS, now)
        self._most_lookups, self._lookups_open = settings.dashboard_lookups, settings.dashboard_open

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for login and logout."""
        return [
            web.get("/api/v1/session", self.session),
            web.post("/api/v1/session", self.log_in),
            web.delete("/api/v1/session", self.log_out),
        ]

    def admit(self, request: web.Request) -> None:
        """Return if the request is allowed. Otherwise raise ProblemError, or redirect a browser to the
        login."""
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            self._refuse_other_sites(request)
        if request.path in self._open or request.path.startswith("/static/"):
            return
        if self.way(request) is not None:
            return
        if self._token is None:
            raise ProblemError(
                401, "Unauthorized", f"requests must come from a trusted proxy, with {self._header}"
            )
        if request.path == "/":
            raise web.HTTPSeeOther("/login")
        if request.path in PAGES:  # a browser keeps the fragment
            raise web.HTTPSeeOther(f"/login?to={request.path[1:]}")
        raise ProblemError(
            401,
            "Unauthorized",
            "send Authorization: Bearer with the dashboard's token",
            WWW_Authenticate="Bearer",
        )

    def admit_lookup(self, request: web.Request) -> None:
        """Return if the request may look up a page now, which counts against its client's quota. Otherwise
        raise ProblemError: whoever can ask often what the judge would say of a page can craft copies that it
        does not find."""
        if self.way(request) == "nobody" and not self._lookups_open:
            raise ProblemError(
                403,
                "Forbidden",
                "pages are looked up with a token alone: set dashboard_token, or start with --open",
            )
        client = self._client(request)
        if wait := self._lookups.wait(client, self._most_lookups):
            detail = f"{self._most_lookups} pages an hour may be looked up; wait {wait} s"
            raise ProblemError(429, "Too many requests", detail, Retry_After=str(wait))
        self._lookups.add(client)

    def return_lookup(self, request: web.Request) -> None:
        """Let a look-up that got no answer, and so says nothing of a page, count no longer."""
        self._lookups.take_back(self._client(request))

    def is_outsider(self, request: web.Request) -> bool:
        """Return whether the request was admitted without authentication."""
        return self.way(request) == "nobody"

    def way(self, request: web.Request) -> Way | None:
        """Return how a request is authenticated, or None. Raises ProblemError if its address must wait."""
        if self._token is None and self._header is None:
            return "nobody"
        if self._header and self._from_proxy(request):
            named = request.headers.getall(self._header, [])
            if len(named) == 1 and named[0].strip():
                return "proxy"
        if self._token is None:
            return None
        if self._is_valid_session(request.cookies.get(self._cookie, "")):
            return "session"
        kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        return "token" if self._check_token(request, credentials.strip()) else None

    # Handlers.

    async def session(self, request: web.Request) -> web.Response:
        """Return how the request is authenticated."""
        return answer(Session(self.way(request)), headers={"Cache-Control": "no-store"})

    async def log_in(self, request: web.Request) -> web.Response:
        """Set a session cookie in exchange for the token."""
        if self._token is None:
            raise ProblemError(404, "Not found", "login is disabled: this dashboard has no token")
        given = decode_body(await request.read(), LoginRequest).token
        if not self._check_token(request, given.strip()):
            raise ProblemError(401, "Unauthorized", "this is not the dashboard's token")
        response = answer(Session("session"), headers={"Cache-Control": "no-store"})
        response.set_cookie(
            self._cookie,
            self._sign(int(self._now()) + SESSION_SECONDS),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=self._over_tls(request),
        )
        return response

    async def log_out(self, request: web.Request) -> web.Response:
        """Delete the session cookie."""
        response = answer(Session(None))
        response.del_cookie(self._cookie, httponly=True, samesite="Strict", secure=self._over_tls(request))
        return response

    # Request headers, and whether to trust them.

    def _refuse_other_sites(self, request: web.Request) -> None:
        """Refuse requests from pages of other sites (CSRF). Their forms cannot send JSON either."""
        site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
        if site is not None:
            same = site == "same-origin"
        else:  # an old browser, or a program, which sends neither header
            same = origin is None or _netloc(origin) == self._host(request)
        if not same:
            raise ProblemError(403, "Forbidden", "the request comes from a page of another site")
        if request.method == "POST" and request.content_type != "application/json":
            raise ProblemError(415, "Unsupported media type", "the body must be application/json")

    def _host(self, request: web.Request) -> str:
        forwarded = request.headers.get("X-Forwarded-Host") if self._from_proxy(request) else None
        return (forwarded or request.host).lower()

    def _over_tls(self, request: web.Request) -> bool:
        return request.secure or (
            self._from_proxy(request) and request.headers.get("X-Forwarded-Proto", "").lower() == "https"
        )

    def _from_proxy(self, request: web.Request) -> bool:
        return self._is_trusted(request.remote or "")

    def _is_trusted(self, address: str) -> bool:
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in network for network in self._proxies)

    def _client(self, request: web.Request) -> str:
        """Return who asks: the user that a proxy names, or the client address."""
        if self._header and self._from_proxy(request) and (user := request.headers.get(self._header, "")):
            return f"user {user[:256]}"
        return self._address(request)

    def _address(self, request: web.Request) -> str:
        """Return the client address: the last hop that is not a trusted proxy."""
        hops = [request.remote or ""]
        if self._from_proxy(request):
            forwarded = ",".join(request.headers.getall("X-Forwarded-For", []))
            hops = [*(each.strip() for each in forwarded.split(",") if each.strip()), *hops]
        return next((hop for hop in reversed(hops) if not self._is_trusted(hop)), hops[0])[:64]

    # Tokens and cookies.

    def _check_token(self, request: web.Request, token: str) -> bool:
        address = self._address(request)
        if wait := self._failures.wait(address, FAILURES):
            raise ProblemError(
                429, "Too many requests", f"too many wrong tokens; wait {wait} s", Retry_After=str(wait)
            )
        if hmac.compare_digest(token.encode(errors="replace"), self._token or secrets.token_bytes()):
            return True
        log.warning("wrong_token", address=address)
        self._failures.add(address)
        return False

    def _sign(self, expires: int) -> str:
        content = f"{expires}.{secrets.token_urlsafe(16)}"
        return f"{content}.{self._signature(content)}"

    def _signature(self, content: str) -> str:
        return hmac.new(self._token or b"", f"session {content}".encode(), "sha256").hexdigest()

    def _is_valid_session(self, cookie: str) -> bool:
        content, _, signature = cookie.rpartition(".")
        expires = content.partition(".")[0]
        if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
            return False
        return int(expires) > self._now()
