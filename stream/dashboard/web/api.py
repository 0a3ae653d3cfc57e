"""The JSON API: figures, latest verdicts, the state of the deployment and look-ups."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from stream.dashboard.answers import (
    About,
    Changes,
    ClusterFigures,
    ClusterPages,
    Clusters,
    Figures,
    HostFigures,
    Hosts,
    Lag,
    LookupRequest,
    RangeAnswer,
    Series,
    Verdicts,
)
from stream.dashboard.counting.app import Statistics
from stream.dashboard.counting.latest_verdicts import LatestVerdicts, TooManyListenersError, VerdictFilter
from stream.dashboard.counting.rows import Counts, Histogram
from stream.dashboard.counting.verdict_columns import normal
from stream.dashboard.counting.windows import DAY, HOUR, MINUTE, WindowPlan
from stream.dashboard.deployment.system import ROLES, Watch
from stream.dashboard.lookup.kept_pages import KeptPages
from stream.dashboard.lookup.lookup import BusyError, Finder, cluster_pages, without_former
from stream.dashboard.lookup.member_pages import PageGoneError
from stream.dashboard.lookup.superseded import SupersededClusters
from stream.dashboard.web import csv_export
from stream.dashboard.web.gate import Gate, ProblemError, answer, decode_body
from stream.judge.rule import to_hundredths
from stream.kafka.in_flight import in_thread
from stream.messages.verdict import VERDICTS, VerdictRecord
from stream.ops.metrics import DashboardMetrics

MOST: Final = 200
"""Maximum `limit`."""
LOOKUP_BYTES: Final = 4 << 20
"""Maximum size of the body of a look-up."""
SECONDS: Final = 15.0
"""Time-out of a request."""
HEARTBEAT_SECONDS: Final = 10.0
LONGEST: Final = 1100 * DAY
"""Maximum length of a range, in seconds."""
TOO_LONG: Final = f"a range has at most {LONGEST // DAY} days"
_RANGE: Final = re.compile(r"^(\d{1,5})([mhd])$")
_UNITS: Final = {"m": MINUTE, "h": HOUR, "d": DAY}

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Api:
    """All handlers under /api/v1."""

    statistics: Statistics
    recent: LatestVerdicts
    watch: Watch
    finder: Finder
    superseded: SupersededClusters
    kept: KeptPages
    about: About
    gate: Gate
    metrics: DashboardMetrics

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, which `stream.dashboard.web.openapi` documents."""
        return [
            web.get("/api/v1/figures", self.figures),
            web.get("/api/v1/hosts", self.hosts),
            web.get("/api/v1/clusters", self.clusters),
            web.get("/api/v1/neighbours", self.neighbours),
            web.get("/api/v1/clusters/{cluster}", self.cluster),
            web.get("/api/v1/clusters/{cluster}/comparison", self.comparison),
            web.get("/api/v1/verdicts", self.verdicts),
            web.get("/api/v1/events", self.events),
            web.get("/api/v1/system", self.system),
            web.get("/api/v1/lag", self.lag),
            web.get("/api/v1/changes", self.changes),
            web.get("/api/v1/about", self.tell_about),
            web.post("/api/v1/lookup", self.lookup),
        ]

    async def figures(self, request: web.Request) -> web.Response:
        """Return the figures of a range."""
        part = request.query.get("part", "series")
        if part not in csv_export.FIGURES:
            raise ProblemError(400, "Bad request", f"part must be one of {', '.join(csv_export.FIGURES)}")
        view, host = self.statistics.view, _host(request)
        plan = view.plan(*_range(request), host)
        series, total = await in_thread(view.series, plan, host), Counts()
        for each in series:
            total.add(each)
        return self._export(
            request,
            part,
            Figures(
                range=RangeAnswer(plan.start, plan.end, plan.step, host),
                pages=total.pages,
                verdicts={kind: total.verdicts.get(kind, 0) for kind in VERDICTS},
                duplicate_ratio=total.verdicts.get("duplicate", 0) / total.pages if total.pages else None,
                pages_per_second=view.rate(time.time()),
                series=Series(
                    _times(plan), {kind: [each.verdicts.get(kind, 0) for each in series] for kind in VERDICTS}
                ),
                distances={kind: _places(histogram, 64) for kind, histogram in total.distances.items()},
                similarities={
                    kind: _places(histogram, 101) for kind, histogram in total.similarities.items()
                },
                reasons=dict(sorted(total.reasons.items(), key=lambda each: (-each[1], each[0]))),
                first=view.first(0.0) or None,
                last=view.last(),
                since=self.statistics.state.meta.since or None,
            ),
            csv_export.FIGURES[part],
        )

    async def hosts(self, request: web.Request) -> web.Response:
        """Return hosts by number of duplicates."""
        start, end = _range(request)
        limit, offset = _number(request, "limit", 20, 1, MOST), _number(request, "offset", 0, 0, 10**9)
        view = self.statistics.view
        now = time.time()
        plan, counts_by_host = view.ranking(
            view.first(now) if start is None else start, now if end is None else end
        )
        ranked = sorted(
            counts_by_host.items(),
            key=lambda each: (-each[1].verdicts.get("duplicate", 0), -each[1].pages, each[0]),
        )
        return self._export(
            request,
            "hosts",
            Hosts(
                range=RangeAnswer(plan.start, plan.end, plan.step),
                hosts=[
                    HostFigures(host, counts.pages, counts.verdicts)
                    for host, counts in ranked[offset : offset + limit]
                ],
                total=len(ranked),
                next=offset + limit if offset + limit < len(ranked) else None,
                complete=not view.pruned,
            ),
            csv_export.hosts,
        )

    async def clusters(self, request: web.Request) -> web.Response:
        """Return clusters by size."""
        limit, offset = _number(request, "limit", 20, 1, MOST), _number(request, "offset", 0, 0, 10**9)
        ranked = sorted(self.statistics.view.clusters.values(), key=lambda each: (-each.members, each.id))
        return self._export(
            request,
            "clusters",
            Clusters(
                clusters=[
                    ClusterFigures(
                        each.id,
                        each.anchor or None,
                        each.members + 1,
                        each.id in self.superseded.clusters,
                        self.kept.of(each.id, each.anchor or None),
                    )
                    for each in ranked[offset : offset + limit]
                ],
                election=self.kept.election,
                total=len(ranked),
                next=offset + limit if offset + limit < len(ranked) else None,
            ),
            csv_export.clusters,
        )

    async def neighbours(self, request: web.Request) -> web.Response:
        """Return the hosts that share pages with a host."""
        host = _host(request)
        if host is None:
            raise ProblemError(400, "Bad request", "host is required")
        return answer(self.recent.neighbours(host))

    async def cluster(self, request: web.Request) -> web.Response:
        """Return the pages of a cluster."""
        pages = await self._cluster(request)
        pages = await in_thread(without_former, pages, self.statistics.state.history)
        pages.superseded = pages.cluster in self.superseded.clusters
        pages.kept = self.kept.of(pages.cluster, pages.anchor)
        pages.election = self.kept.election
        return self._answer(request, pages)

    async def _cluster(self, request: web.Request) -> ClusterPages:
        cluster = request.match_info["cluster"]
        pages = cluster_pages(cluster, await in_thread(self.statistics.state.cluster, cluster))
        if pages is None:
            raise ProblemError(404, "No such cluster", f"cluster {cluster[:80]} has no known members")
        return pages

    async def comparison(self, request: web.Request) -> web.Response:
        """Compare two pages of a cluster."""
        pages = await self._cluster(request)
        urls = {pages.cluster: pages.anchor} | {each.id: each.url for each in pages.members}
        if (kept := self.kept.of(pages.cluster, pages.anchor)) is not None and kept.id is not None:
            urls[kept.id] = kept.url
        pair = [await self._verdict(urls, request.query.get(name, ""), name) for name in ("one", "other")]
        try:
            return self._answer(request, await self.finder.compare_members(*pair))
        except BusyError as error:
            raise ProblemError(503, "Busy", str(error)) from None
        except PageGoneError as error:
            raise ProblemError(404, "No such page", str(error)) from None

    async def _verdict(self, urls: dict[str, str | None], page: str, name: str) -> VerdictRecord:
        """Return the verdict of a page of a cluster, by its id."""
        if page not in urls:
            raise ProblemError(
                404, "No such page", f"{name}: {page[:80]} is not among the cluster's stored pages"
            )
        history = await in_thread(self.statistics.state.history, normal(urls[page] or ""))
        verdict = next((each for each in history if each.id == page), None)
        if verdict is None:
            detail = f"{name}: {page[:80]} is not among the last verdicts of its URL"
            raise ProblemError(404, "No such page", detail)
        return verdict

    async def verdicts(self, request: web.Request) -> web.Response:
        """Return the latest verdicts."""
        limit = _number(request, "limit", 50, 1, MOST)
        before = _number(request, "before", 0, 0, 1 << 62) or None
        newest = self.recent.latest(_filter_of(request), limit, before)
        more = newest[-1].sequence if len(newest) == limit else None
        return self._export(request, "verdicts", Verdicts(newest, more), csv_export.verdicts)

    async def system(self, request: web.Request) -> web.Response:
        """Return roles, lag and positions."""
        return answer(self.watch.now)

    async def lag(self, request: web.Request) -> web.Response:
        """Return lag over time, of the roles and of the partitions of one."""
        role = request.query.get("role")
        if role is not None and role not in ROLES:
            raise ProblemError(400, "Bad request", f"role must be one of {', '.join(ROLES)}")
        lags = self.watch.lags
        plan = lags.plan(*_range(request), time.time())
        partitions, behind = lags.partitions(role, plan) if role else ([], 0)
        return self._export(
            request,
            "lag",
            Lag(
                range=RangeAnswer(plan.start, plan.end, plan.step),
                since=lags.since,
                time=_times(plan),
                roles=[lags.of(each, plan) for each in ROLES],
                partitions=partitions,
                partitions_behind=behind,
            ),
            csv_export.lag,
        )

    async def changes(self, request: web.Request) -> web.Response:
        """Return restarts and rebalances of a range."""
        log = self.watch.changes
        start, end = _range(request)
        start, end = log.first if start is None else start, time.time() if end is None else end
        in_range = log.between(start, end)
        return self._export(
            request,
            "changes",
            Changes(
                range=RangeAnswer(start, end, 0),
                since=log.since,
                changes=in_range[-MOST:],
                left_out=max(0, len(in_range) - MOST),
                complete=log.dropped_until is None or log.dropped_until < start,
            ),
            csv_export.changes,
        )

    def _export(self, request: web.Request, name: str, body: T, to_csv: Callable[[T], str]) -> web.Response:
        """Return an answer as JSON, or as the file that the request asks for."""
        body = self._disclose(request, body)
        wanted = request.query.get("format")
        if wanted is None:
            return answer(body)
        if wanted not in ("csv", "json"):
            raise ProblemError(400, "Bad request", "format must be csv or json")
        file = re.sub(r"[^\w.-]", "_", f"{self.about.namespace}-{name}.{wanted}", flags=re.ASCII)
        headers = {"Content-Disposition": f'attachment; filename="{file}"'}
        if wanted == "json":
            return answer(body, headers=headers)
        return web.Response(text=to_csv(body), content_type="text/csv", charset="utf-8", headers=headers)

    def _answer(self, request: web.Request, body: Any) -> web.Response:
        return answer(self._disclose(request, body))

    def _disclose(self, request: web.Request, body: T) -> T:
        """Return what a client may know: without authentication, similarities to two decimals."""
        return in_hundredths(body) if self.gate.is_outsider(request) else body

    async def tell_about(self, request: web.Request) -> web.Response:
        """Return version, scheme and rule."""
        return answer(self.about)

    async def lookup(self, request: web.Request) -> web.Response:
        """Look up a URL or page."""
        query = decode_body(await request.read(), LookupRequest)
        if query.text is not None and query.html is not None:
            raise ProblemError(400, "Bad request", "text and html exclude each other")
        if not (query.url or query.text is not None or query.html is not None):
            raise ProblemError(400, "Bad request", "one of url, text and html is required")
        if query.compare is not None:
            if (query.compare.text is None) == (query.compare.html is None):
                raise ProblemError(400, "Bad request", "compare: either text or html is required")
            if query.text is None and query.html is None:
                raise ProblemError(400, "Bad request", "compare: the text or html to be compared is missing")
        is_page = query.text is not None or query.html is not None
        if is_page:
            try:
                self.gate.admit_lookup(request)
            except ProblemError:
                self.metrics.lookups.labels("refused").inc()
                raise
            self.metrics.lookups.labels("admitted").inc()
        try:
            return self._answer(request, await self.finder.look_up(query))
        except BusyError as error:
            if is_page:
                self.gate.return_lookup(request)
            raise ProblemError(503, "Busy", str(error)) from None

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream new verdicts as server-sent events."""
        wanted, is_outsider = _filter_of(request), self.gate.is_outsider(request)
        try:
            async with self.recent.listening(wanted) as news:
                response = web.StreamResponse(
                    headers={
                        "Content-Type": "text/event-stream",
                        "Cache-Control": "no-store",
                        "X-Accel-Buffering": "no",
                    }
                )
                await response.prepare(request)
                await response.write(b"retry: 2000\n\n")
                upcoming: asyncio.Future[Any] = asyncio.ensure_future(anext(news))
                try:
                    while True:
                        await asyncio.wait({upcoming}, timeout=HEARTBEAT_SECONDS)
                        if not upcoming.done():
                            await response.write(b": still here\n\n")
                            continue
                        news_of = Verdicts(upcoming.result(), None)
                        body = msgspec.json.encode(in_hundredths(news_of) if is_outsider else news_of)
                        await response.write(b"event: verdicts\ndata: " + body + b"\n\n")
                        upcoming = asyncio.ensure_future(anext(news))
                except ConnectionResetError:
                    return response
                finally:
                    upcoming.cancel()
                    await asyncio.gather(upcoming, return_exceptions=True)
        except TooManyListenersError:
            raise ProblemError(503, "Busy", "too many open event streams") from None


def _range(request: web.Request) -> tuple[float | None, float | None]:
    """Return start and end of the requested range; None means the first verdict, or now."""
    query = request.query
    named = query.get("range")
    if named and ("from" in query or "to" in query):
        raise ProblemError(400, "Bad request", "range excludes from and to")
    if named == "all":
        return None, None
    if named:
        parts = _RANGE.match(named)
        if not parts or not int(parts[1]):
            raise ProblemError(400, "Bad request", "range must be all, or a number with m, h or d, like 15m")
        seconds = int(parts[1]) * _UNITS[parts[2]]
        if seconds > LONGEST:
            raise ProblemError(400, "Bad request", TOO_LONG)
        return time.time() - seconds, None
    start, end = (_moment(query.get(name), name) for name in ("from", "to"))
    if start is None and end is None:
        return time.time() - 15 * MINUTE, None
    if start is not None and end is not None and start >= end:
        raise ProblemError(400, "Bad request", "from must be before to")
    if start is not None and (time.time() if end is None else end) - start > LONGEST:
        raise ProblemError(400, "Bad request", TOO_LONG)
    return start, end


def _times(plan: WindowPlan) -> list[float]:
    return [float(plan.start + i * plan.step) for i in range(plan.points)]


def _moment(value: str | None, name: str) -> float | None:
    if value is None:
        return None
    try:
        moment = float(value)
    except ValueError:
        moment = math.nan
    if not 0 <= moment <= 253_402_300_799:
        raise ProblemError(400, "Bad request", f"{name} must be seconds since 1970-01-01T00:00:00Z")
    return min(moment, time.time())  # steps in the future would be empty


def _number(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    value = request.query.get(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 20 or not least <= int(value) <= most:
        raise ProblemError(400, "Bad request", f"{name} must be a number from {least} to {most}")
    return int(value)


def _host(request: web.Request) -> str | None:
    host = request.query.get("host", "").strip().lower()
    if len(host) > 253:
        raise ProblemError(400, "Bad request", "host has at most 253 characters")
    return host or None


def _filter_of(request: web.Request) -> VerdictFilter:
    verdicts = frozenset(request.query.getall("verdict", []))
    if unknown := verdicts - set(VERDICTS):
        named = ", ".join(sorted(unknown))[:80]
        raise ProblemError(400, "Bad request", f"unknown verdict: {named}; choose from {', '.join(VERDICTS)}")
    return VerdictFilter(_host(request), verdicts)


def in_hundredths(body: T) -> T:
    """Return an answer with similarities to two decimals: four tell into which bins of a sketch shingles
    fall."""
    return msgspec.convert(_round(msgspec.to_builtins(body)), type(body))


def _round(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _round(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_round(each) for each in value]
    return to_hundredths(value) if name == "similarity" and value is not None else value


def _places(histogram: Histogram, size: int) -> list[int]:
    places = [histogram.get(place, 0) for place in range(size)]
    places[-1] += sum(pages for place, pages in histogram.items() if place >= size)
    return places
