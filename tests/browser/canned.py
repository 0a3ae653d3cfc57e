"""The dashboard page with canned API responses: real files and headers, but no brokers and no Faust app.

These tests check how the page shows given responses. `tests/kafka/test_dashboard.py` checks the responses,
and `test_page.py` uses a real dashboard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import web

from stream.dashboard.answers import (
    Changes,
    ClusterFigures,
    ClusterPages,
    Clusters,
    Comparison,
    Election,
    Figures,
    Forgetting,
    FormerPage,
    GroupLag,
    HostFigures,
    HostPages,
    Hosts,
    Kept,
    Lag,
    LagSeries,
    Lookup,
    MemberPage,
    NearAnchor,
    Neighbours,
    PartitionBehind,
    Process,
    ProcessChange,
    RangeAnswer,
    RoleHealth,
    SeenVerdict,
    Series,
    System,
    Verdicts,
    Window,
)
from stream.dashboard.role import about
from stream.dashboard.web.api import Api
from stream.dashboard.web.gate import Gate, answer
from stream.dashboard.web.server import application
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.explain.shingle_diff import LONGEST_OWN, ShingleDiff, TextRun
from stream.messages.journal import Genesis
from stream.messages.verdict import VERDICTS, MessagePosition, NearestPage, PageRef, VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.ops.health import Health
from stream.ops.http import http_server
from stream.ops.metrics import DashboardMetrics
from stream.settings import load

NOON: Final = 1_767_355_200
"""2026-01-02T12:00:00Z."""
STEP: Final = 5
JOURNAL: Final = "9f576ade"
GENESIS: Final = Genesis(
    journal=JOURNAL * 4,
    scheme=Scheme(),
    scheme_id="fd83eb603f825be2",
    options=VerdictOptions(),
    seed=PUBLIC_SEED,
)


@dataclass(frozen=True, slots=True)
class PageContent:
    """What crawled pages and machines bring along, and the page must find room for."""

    urls: tuple[str, ...]
    hosts: tuple[str, ...]
    namespace: str = "neardup"
    pages: int = 7
    """Of every kind, in every step: how large numbers are."""
    detail: str = "all checks pass"


PLAIN: Final = PageContent(
    urls=("https://mirror.example.net/1?utm=a", "https://example.com/news/harbour", "http://a.example/"),
    hosts=("mirror.example.net", "example.com", "a.example", "docs.example.org"),
)
LONG: Final = PageContent(
    urls=(
        f"https://{'sub.' * 40}example.org/{'path-segment/' * 60}",
        f"https://example.org/{'x' * 10_000}",
        f"https://{'h' * 63}.example/?{'key=value&' * 200}",
    ),
    hosts=(f"{'sub.' * 40}example.org", "h" * 63 + ".example", "x" * 253, "a.example"),
    namespace="crawl-of-the-whole-web-in-production-2026",
    pages=8_765_432,
    detail=f"ClientConnectorError: cannot connect to host {'worker-' * 9}7.example:9500, refused",
)
RTL: Final = PageContent(
    urls=(
        "https://example.org/חדשות/המגדלור-בצפון-הנמל-יתוקן-לפני-סופות-החורף",
        "https://مثال.example/أخبار/ستصلح-سلطة-الميناء-المنارة-القديمة-قبل-عواصف-الشتاء",
        "https://evil.example/\u202etxt.exe\u2066\u2067/שלום\u202dabc",
    ),
    hosts=("מגדלור.example", "منارة.example", "\u202eelpmaxe.live", "a.example"),
)
CONTENTS: Final = {"plain": PLAIN, "long": LONG, "right-to-left": RTL}


def verdict(words: PageContent, number: int, kind: str | None = None, **fields: Any) -> VerdictRecord:
    """Return the i-th verdict, with kinds and URLs in turn."""
    kind = kind or VERDICTS[number % len(VERDICTS)]
    other = words.urls[(number + 1) % len(words.urls)]
    like = kind in ("duplicate", "recrawl")
    known = {
        "id": f"{JOURNAL}.3.{number}",
        "url": words.urls[number % len(words.urls)],
        "verdict": kind,
        "change": None if kind in ("insufficient", "rejected") else "new",
        "cluster": f"{JOURNAL}.3.1" if like else None,
        "duplicate_of": PageRef(other, f"{JOURNAL}.3.1") if like else None,
        "distance": number % 15 if like else None,
        "similarity": 1 - number % 20 / 100 if like else None,
        "nearest": NearestPage(other, f"{JOURNAL}.3.1", 0.7241) if kind == "unique" else msgspec.UNSET,
        "fingerprint": "2f4dc81575bc7d19",
        "text_hash": "80e5fa88ac8cfaeaa5ba08d18252a5a4",
        "scheme": "fd83eb603f825be2",
        "source": MessagePosition("neardup.pages", "39fa46b6f91d4d1b8c00c9b1f55c1b9f", number % 3, number),
        "fetched_at": None,
        "decided_at": f"2026-01-02T12:{number // 60 % 60:02d}:{number % 60:02d}.010Z",
        "reason": "unsupported_content" if kind == "rejected" else None,
    }
    return VerdictRecord(**{**known, **fields})


@dataclass(slots=True)
class Canned(Api):
    """Every question has one answer, whatever it asks for. Tests replace some."""

    answers: dict[str, msgspec.Struct | Callable[[str], msgspec.Struct]] = field(default_factory=dict)
    """Path below /api/v1 -> answer, or what makes it of the query."""
    asked: list[str] = field(default_factory=list)
    """Paths and queries, as they came; of a look-up the body."""
    news: asyncio.Queue[Verdicts] = field(default_factory=asyncio.Queue)
    """New verdicts for a page that listens."""

    def routes(self) -> list[web.RouteDef]:
        """All that the page asks for."""
        return [
            *(web.get(f"/api/v1/{path}", self._answer) for path in self.answers if path != "lookup"),
            web.get("/api/v1/clusters/{cluster}", self._cluster),
            web.get("/api/v1/clusters/{cluster}/comparison", self._comparison),
            web.get("/api/v1/events", self._events),
            web.post("/api/v1/lookup", self._answer),
        ]

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs if request.method == "GET" else await request.text())
        found = self.answers[request.path.removeprefix("/api/v1/")]
        return answer(found(request.query_string) if callable(found) else found)

    async def _cluster(self, _: web.Request) -> web.Response:
        found = self.answers["lookup"]
        assert isinstance(found, Lookup)
        return answer(found.cluster)

    async def _comparison(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        found = self.answers["lookup"]
        assert isinstance(found, Lookup)
        return answer(found.comparison)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 2000\n\n")
        while True:
            news = msgspec.json.encode(await self.news.get())
            await response.write(b"event: verdicts\ndata: " + news + b"\n\n")


def canned(words: PageContent | None) -> Canned:
    """Return responses with content for every panel; without words, those of an empty deployment."""
    made = Canned(*[None] * 9)  # type: ignore[arg-type]
    made.answers = _empty() if words is None else _full(words)
    made.answers["about"] = about(load(namespace=words.namespace if words else "neardup"), GENESIS)
    return made


@asynccontextmanager
async def served(api: Api, **options: Any) -> AsyncIterator[str]:
    """The page's URL. `options` are settings."""
    gate = Gate(load(namespace="canned", **options))
    app = application(api, gate, load(), DashboardMetrics(), Health())
    async with http_server(
        app, "127.0.0.1", 0, options="dashboard", close_seconds=1, cancel_handlers=True
    ) as url:
        yield f"{url}/"


def _figures(pages: int, histogram: list[int], hundredths: list[int], reasons: dict[str, int]) -> Figures:
    points = 60
    series = {
        kind: [pages * (1 + (i * (k + 3)) % 7) for i in range(points)] for k, kind in enumerate(VERDICTS)
    }
    verdicts = {kind: sum(column) for kind, column in series.items()}
    total = sum(verdicts.values())
    return Figures(
        range=RangeAnswer(NOON, NOON + points * STEP, STEP),
        pages=total,
        verdicts=verdicts,
        duplicate_ratio=verdicts["duplicate"] / total if total else None,
        pages_per_second=pages / 3,
        series=Series([float(NOON + i * STEP) for i in range(points)], series),
        distances={"duplicate": histogram, "recrawl": histogram} if pages else {},
        similarities={"duplicate": hundredths, "recrawl": hundredths} if pages else {},
        reasons=reasons,
        first=NOON if pages else None,
        last=NOON + points * STEP if pages else None,
        since=None,
    )


def _system(namespace: str, size: int | None, detail: str) -> System:
    roles = (("worker", "pages", "up"), ("judge", "journal", "behind"), ("dashboard", "verdicts", "down"))
    return System(
        namespace=namespace,
        at=NOON,
        roles=[RoleHealth(role, state, "no process in its group") for role, _, state in roles],
        groups=[
            GroupLag(
                role,
                f"{namespace}.{role}",
                f"{namespace}.{topic}",
                "Stable",
                1,
                size or 0,
                83.4,
                *(
                    ([PartitionBehind(7, size, 83.4, "10.0.0.7"), PartitionBehind(8, 5, None, None)], 2)
                    if size and role == "worker"
                    else ([], 0)
                ),
            )
            for role, topic, _ in roles
        ],
        processes=[Process("judge", "http://127.0.0.1:9501", "not ready", detail)] if size else [],
        anchors=size,
        state_bytes=size,
        partitions_read=3,
        partitions=3,
        error=None,
        window=Window(90 * 86_400, NOON, NOON - 89.9 * 86_400, size, 5 * 3600, 0.2137) if size else None,
        forgetting=Forgetting(size, size, NOON - 7200) if size else None,
        clock_ahead=0 if size else None,
    )


def _lag(records: int) -> Lag:
    """A worker that falls behind and catches up, a judge that keeps up, and no measurement of the rest."""
    points = 30
    ages = [max(0.0, 83.4 - abs(i - 15) * 8) for i in range(points)]
    worker = LagSeries("worker", None, list(ages), [round(age) * records for age in ages])
    partitions = [
        LagSeries("worker", each, [age / (1 + each) for age in ages], [*worker.lag_records])
        for each in (0, 7)
    ]
    judge = LagSeries("judge", None, [0.4] * points, [1] * points)
    unknown = LagSeries("dashboard", None, [None] * points, [None] * points)
    return Lag(
        RangeAnswer(NOON, NOON + points * 2 * STEP, 2 * STEP),
        NOON + 5,
        [float(NOON + 2 * i * STEP) for i in range(points)],
        [worker, judge, unknown] if records else [],
        partitions if records else [],
        12 if records else 0,
    )


def _empty() -> dict[str, msgspec.Struct | Callable[[str], msgspec.Struct]]:
    range_ = RangeAnswer(NOON, NOON + 60 * STEP, STEP)
    return {
        "figures": _figures(0, [], [], {}),
        "hosts": Hosts(range_, [], 0, None, complete=True),
        "clusters": Clusters([], Election("none"), 0, None),
        "verdicts": Verdicts([], None),
        "system": _system("neardup", None, ""),
        "lag": _lag(0),
        "changes": Changes(range_, NOON, [], 0, complete=True),
        "neighbours": Neighbours("a.example", 0, [], [], 0),
        "lookup": Lookup(None, None, "no verdict is stored for this URL", [], None, [], 0),
    }


def _full(words: PageContent) -> dict[str, msgspec.Struct | Callable[[str], msgspec.Struct]]:
    pages, urls = words.pages, words.urls
    range_ = RangeAnswer(NOON, NOON + 60 * STEP, STEP)
    hosts = [
        HostFigures(host, 100 * pages, {"duplicate": [90, 40, 3, 0][i] * pages, "unique": pages})
        for i, host in enumerate(words.hosts)
    ]
    election = Election("following", "longest")
    kept = [
        Kept(urls[1], f"{JOURNAL}.3.8", "joined", 4, "2026-01-02T12:00:01.010Z"),
        Kept(urls[1], f"{JOURNAL}.3.1"),
        Kept(None, None, "left", 0, "2026-01-02T12:00:03.010Z"),
    ]
    clusters = [
        ClusterFigures(f"{JOURNAL}.3.{i}", url, 1 + pages * (len(urls) - i), i == 1, kept[i % len(kept)])
        for i, url in enumerate(urls)
    ]
    members = [
        MemberPage(
            url, f"{JOURNAL}.3.{7 + i}", *((3, 0.9871) if i else (None, None)), "2026-01-02T12:00:01.010Z"
        )
        for i, url in enumerate(urls)
    ]
    why = "estimated similarity {} is {} 0.8"
    near = [
        NearAnchor(
            urls[0], f"{JOURNAL}.3.1", 3, 0.9871, alike=True,
            why=why.format(0.987, "at least"),
        ),
        NearAnchor(
            urls[1], f"{JOURNAL}.3.2", 21, 0.5, alike=False,
            why=why.format("0.500", "below"),
        ),
        NearAnchor(
            urls[-1], f"{JOURNAL}.3.5", 19, 0.7, alike=False,
            why=why.format("0.700", "below"),
        ),
    ]  # fmt: skip
    return {
        "figures": _figures(
            pages,
            [pages * (20 - i) if i < 15 else 0 for i in range(64)],
            [pages * (i - 70) if i > 80 else 0 for i in range(101)],
            {"unsupported_content": 9 * pages, "malformed_json": 2 * pages, "too_large": pages},
        ),
        "hosts": Hosts(range_, hosts, 5 * len(hosts), None, complete=False),
        "clusters": Clusters(clusters, election, 5 * len(clusters), None),
        "verdicts": Verdicts(
            [SeenVerdict(40 - i, verdict(words, i)) for i in range(30)],
            11,
        ),
        "system": _system(words.namespace, 1000 * pages, words.detail),
        "lag": _lag(pages),
        "neighbours": Neighbours(
            words.hosts[0],
            5000,
            [HostPages(host, 9 * pages - i) for i, host in enumerate(words.hosts)],
            [HostPages(host, 1 + i) for i, host in enumerate(words.hosts[1:])],
            17,
        ),
        "changes": Changes(
            range_,
            NOON + 5,
            [
                ProcessChange(NOON + 40, "judge", "start", words.detail),
                ProcessChange(
                    NOON + 41, "worker", "rebalance", "1 joined and 1 left; 2 processes in the group"
                ),
                ProcessChange(NOON + 200, "worker", "start", "127.0.0.1:9502 was started"),
            ],
            7,
            complete=False,
        ),
        "lookup": Lookup(
            urls[0],
            "duplicate",
            f"duplicate of {urls[0]}; {near[0].why}",
            [verdict(words, i) for i in range(5)],
            ClusterPages(
                f"{JOURNAL}.3.1",
                urls[0],
                1 + pages,
                members,
                [
                    FormerPage(urls[-1], f"{JOURNAL}.3.20", f"{JOURNAL}.5.1"),
                    FormerPage(None, f"{JOURNAL}.3.21", None),
                ],
                superseded=True,
                kept=kept[0],
                election=election,
            ),
            near,
            12,
            1000 * pages,
            3000 * pages,
            comparison(*words.urls),
        ),
    }


def comparison(*texts: str) -> Comparison:
    """Of two pages that share a sentence, and differ in texts such as these."""
    shared = TextRun(
        shared=True, text="the harbour authority will repair the lighthouse before winter", units=9
    )
    own = [TextRun(shared=False, text=each[:LONGEST_OWN], units=7) for each in texts]
    return Comparison(
        why="estimated similarity 0.987 is at least 0.8",
        alike=True,
        distance=3,
        similarity=0.9871,
        exact_similarity=0.9865,
        shingles=ShingleDiff(
            counts=(7, 7, 14),
            anchor=[own[0], shared],
            page=[shared, own[1], shared, own[-1]],
            left_out=(0, 1234),
        ),
    )
