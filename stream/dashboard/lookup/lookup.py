"""Looks up the verdicts of a URL, and the verdict that a page would get now. Nothing is stored or published.

The dashboard has its own copy of the judge's state, which follows the decisions topic like that of a standby
judge. Pasted pages are fingerprinted, and compared with each other, in a child process, because they may
crash it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from stream.children.pool import ChildPool, configuration_of
from stream.dashboard.answers import (
    ClusterPages,
    Comparison,
    FormerPage,
    Lookup,
    LookupRequest,
    MemberPage,
    NearAnchor,
    OtherPage,
    Window,
)
from stream.dashboard.counting.app import directory_of
from stream.dashboard.counting.rows import ClusterRow
from stream.dashboard.counting.verdict_columns import normal
from stream.dashboard.lookup.member_pages import compare_members, compare_texts, page_message
from stream.dashboard.recent_events import RecentEvents
from stream.errors import NeardupError
from stream.fingerprint.lanes import distances, first_words, from_integers
from stream.fingerprint.parity import ONE
from stream.fingerprint.row import NO_DIGEST, Row, Status
from stream.fingerprint.sketch import SketchPairs
from stream.judge.decision.candidates_compared import FingerprintedPages, compare
from stream.judge.ids import show
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.judge.state.baselines import Baseline
from stream.kafka.in_flight import in_thread
from stream.messages.journal import Genesis
from stream.messages.verdict import VerdictRecord
from stream.pages.outside.schema_registry import registry_of
from stream.settings import MIB, Settings
from stream.states.follower import JudgeFollower, open_follower

COMPARER: Final = "stream.dashboard.lookup.comparer.Comparer"
MEMORY: Final = 64 * MIB
"""RAM for the newest anchors. It is small because a look-up may wait for RocksDB."""
NEAREST: Final = 10
NEWEST: Final = 1 << 21
"""Newest anchors that are searched for near ones that are no candidates, which reads 32 MiB."""
FAR_COMPARED: Final = 1024
"""Anchors whose sketches that search reads: those with the nearest fingerprints."""
NO_URL: Final = "http://pasted.invalid/"
"""Placeholder for the URL of a pasted page without one."""
RETRY_SECONDS: Final = 5.0
MOST_WAITING: Final = 8
NEAR_SECONDS: Final = 3600.0
"""Time for which look-ups near an anchor are counted."""

log = structlog.get_logger(__name__)


class BusyError(Exception):
    """Too many look-ups are waiting, or the anchors are not loaded yet; the message says which."""


class Finder:
    """Looks pages up; `run` keeps its anchors up to date."""

    def __init__(
        self,
        settings: Settings,
        genesis: Genesis,
        history: Callable[[str], list[VerdictRecord]],
        cluster: Callable[[str], ClusterRow],
    ) -> None:
        self._settings = settings.model_copy(update={"tables_memory": min(MEMORY, settings.tables_memory)})
        self._genesis, self._history, self._cluster = genesis, history, cluster
        self._directory = directory_of(settings) / "anchors"
        self._follower: JudgeFollower | None = None
        self._pool: ChildPool | None = None
        self._one_at_a_time = asyncio.Lock()
        self._one_pair_at_a_time = asyncio.Lock()
        self._waiting = 0
        self._near = RecentEvents(NEAR_SECONDS, time.monotonic)
        """Pages looked up, by the anchor that was the most similar."""
        self.behind = 0
        """Lag behind the decisions topic, in offsets."""

    @property
    def anchors(self) -> int | None:
        """Number of anchors; None until the end of the decisions topic was reached once."""
        return self._follower.state.tables.anchors if self._follower else None

    @property
    def window(self) -> Window | None:
        """What is remembered; None without a lifetime."""
        if (lifetime := self._genesis.options.lifetime) is None:
            return None
        window, state = Window(lifetime), self._follower.state if self._follower else None
        if state is not None and state.window is not None and (expiry := state.window.expiry).oldest >= 0:
            window.log_time, window.oldest = state.time / 1000, expiry.oldest / 1000
            window.late_pages, window.late_seconds = expiry.late_pages, expiry.late / 1000
        return window

    async def run(self) -> None:
        """Follow the decisions until cancelled, starting over after an error."""
        configuration = configuration_of(self._settings, self._genesis.scheme, self._genesis.seed, COMPARER)
        while True:
            try:
                async with (
                    ChildPool(1, configuration, registry_of(self._settings)) as self._pool,
                    open_follower(self._settings, self._genesis, self._directory, restore=True) as follower,
                ):
                    await self._follow(follower)
            except (NeardupError, OSError) as error:
                log.warning("lookup_unavailable", error=str(error), retry_seconds=RETRY_SECONDS)
            finally:
                self._pool = None
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, follower: JudgeFollower) -> None:
        try:
            while True:
                async with self._one_at_a_time:
                    await follower.follow()
                bounds = await follower.decisions.bounds()
                self.behind = max(0, bounds.stable - follower.decisions.position)
                if not self.behind:
                    self._follower = follower
                await asyncio.sleep(0)
        finally:
            self._follower = None
            async with self._one_at_a_time:  # let a running look-up finish before the state is closed
                pass

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._waiting >= MOST_WAITING:
            raise BusyError("too many look-ups are waiting; try again in a moment")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def look_up(self, request: LookupRequest) -> Lookup:
        """Look up a URL or page. Raises BusyError if that is not possible at the moment."""
        with self._admitted():
            return await self._look_up(request)

    async def compare_members(self, one: VerdictRecord, other: VerdictRecord) -> Comparison:
        """Compare two pages by their messages. Raises BusyError, and PageGoneError if one cannot be read."""
        with self._admitted():
            async with self._one_pair_at_a_time:  # messages may be large
                pair = [(await page_message(self._settings, each.source), each) for each in (one, other)]
                if (pool := self._pool) is None:
                    raise BusyError("the process that reads pages is not there yet; try again in a moment")
                return await compare_members(pool, *pair)

    async def _look_up(self, request: LookupRequest) -> Lookup:
        url = request.url.strip() if request.url else None
        history = await in_thread(self._history, normal(url)) if url else []
        cluster_id = next((each.cluster for each in history if each.cluster), None)
        answer = Lookup(
            url=url,
            verdict=None,
            why=_why_of_history(history),
            history=history,
            cluster=await self.cluster(cluster_id) if cluster_id else None,
            near=[],
            behind=self.behind,
        )
        if request.text is None and request.html is None:
            return answer
        pool = self._pool
        if pool is None or self._follower is None:
            raise BusyError("the anchors are still being loaded; try again in a moment")
        page = _message(url or NO_URL, request)
        (row,) = await pool.fingerprint([page])
        if request.compare is not None:
            rule = Rule(self._genesis.options, self._genesis.scheme)
            answer.comparison = await compare_pages(
                pool, rule, _message(NO_URL, request.compare), (page, row)
            )
        if row.status == Status.REJECTED:
            answer.verdict, answer.why = "rejected", f"rejected: {row.reason} ({row.detail or 'no detail'})"
            return answer
        if row.status == Status.INSUFFICIENT:
            answer.verdict = "insufficient"
            answer.why = "insufficient: the page has too little text for a fingerprint"
            return answer
        async with self._one_at_a_time:
            if self._follower is None:
                raise BusyError("the anchors are being reloaded; try again in a moment")
            judge = self._follower.judge
            near, match, baseline, is_orphan = await in_thread(_nearest, judge, row, url)
            answer.anchors = judge.state.tables.anchors
            answer.searched = min(answer.anchors, NEWEST)
        if near:
            self._near.add(near[0].id)
        answer.near = near
        answer.verdict, answer.why = _verdict_now(near, match, baseline, is_orphan=is_orphan)
        if answer.cluster is None and answer.verdict == "duplicate" and match:
            answer.cluster = await self.cluster(match.id)
        return answer

    @property
    def near_one_anchor(self) -> int:
        """The most pages looked up lately of which one anchor was the most similar."""
        return self._near.largest

    async def cluster(self, cluster: str) -> ClusterPages | None:
        """Return the size and some pages of a cluster, or None if it has no members beside its anchor."""
        pages = cluster_pages(cluster, await in_thread(self._cluster, cluster))
        return None if pages is None else await in_thread(without_former, pages, self._history)


def _message(url: str, page: LookupRequest | OtherPage) -> bytes:
    """Return the page message of a pasted page."""
    content = {"html": page.html} if page.html is not None else {"text": page.text}
    return msgspec.json.encode({"url": url, **content})


async def compare_pages(pool: ChildPool, rule: Rule, other: bytes, page: tuple[bytes, Row]) -> Comparison:
    """Compare a page message with that of another page, as if that were its anchor. `page` is the message
    with its row."""
    value, row = page
    (anchor,) = await pool.fingerprint([other])
    for name, side in (("the page to compare with", anchor), ("the page", row)):
        if side.status == Status.REJECTED:
            return Comparison(f"{name} is rejected: {side.reason} ({side.detail or 'no detail'})")
    comparison = await compare_texts(pool, other, value)
    if comparison.shingles is None:
        return comparison
    for name, side in (("the page to compare with", anchor), ("the page", row)):
        if side.status == Status.INSUFFICIENT:
            comparison.why = f"{name} has too little text for a fingerprint"
            return comparison
    (likeness,) = _likeness(rule, SketchPairs.of(_sketch(row), _sketch(anchor)))
    distance = (anchor.fingerprint ^ row.fingerprint).bit_count()
    comparison.distance = None if rule.options.public else distance
    comparison.alike, comparison.similarity, comparison.why = _apply_rule(
        rule, distance, likeness, row.status
    )
    return comparison


def _sketch(row: Row) -> NDArray[np.uint64]:
    """Return the sketch of a row as an array (1, lanes)."""
    return np.frombuffer(row.sketch, "<u8").reshape(1, -1).astype(np.uint64)


def cluster_pages(cluster: str, row: ClusterRow) -> ClusterPages | None:
    """Return the pages of a cluster. None if it has no members beside its anchor."""
    if not row.members:
        return None
    members = [
        MemberPage(each.url, each.id, each.distance, each.similarity, each.decided_at) for each in row.pages
    ]
    members.sort(key=lambda each: each.decided_at)
    return ClusterPages(cluster, row.anchor or None, 1 + row.members, members, [])


def without_former(pages: ClusterPages, history: Callable[[str], list[VerdictRecord]]) -> ClusterPages:
    """Move the stored pages that left the cluster from its members to its former ones: those of which the
    newest verdict on the URL names another cluster, or none. A rejected page replaces nothing."""
    members = []
    for each in pages.members:
        verdicts = history(normal(each.url)) if each.url else []
        newest = next((verdict for verdict in verdicts if verdict.verdict != "rejected"), None)
        if newest is None or newest.cluster == pages.cluster:
            members.append(each)
        else:
            pages.former.append(FormerPage(each.url, each.id, newest.cluster))
    pages.members = members
    return pages


def _why_of_history(history: list[VerdictRecord]) -> str:
    if not history:
        return "no verdict is stored for this URL"
    last = history[0]
    which = (
        "the only stored verdict" if len(history) == 1 else f"the latest of {len(history)} stored verdicts"
    )
    return f"{which} is {last.verdict}, decided at {last.decided_at}"


def _nearest(
    judge: Judge, row: Row, url: str | None
) -> tuple[list[NearAnchor], NearAnchor | None, NearAnchor | None, bool]:
    """Return the most similar live anchors, best first; the one of which the judge would make the page a
    duplicate; the URL's newest baseline that the page is like, or its newest one; and whether that is the
    newest one, and the cluster of that has no live anchor (rule 22).

    Whether the judge would compare an anchor with the page is not said of those that it would not match: who
    knows which pages share a bucket finds the minima of a page by a few dozen look-ups.
    """
    state, rule = judge.state, judge.rule
    page = FingerprintedPages.of([row], rule.scheme)
    sketch, pairs = page.sketch, compare(state, rule, page)
    candidates, anchors, place = pairs.candidates, pairs.anchors, pairs.place
    order = pairs.best_first(np.arange(len(place)))
    likeness = _likeness(rule, SketchPairs(sketch, candidates.row, anchors.sketch, place))
    near = [
        _near_anchor(
            judge,
            anchors.url(int(place[i])),
            int(anchors.page[place[i]]),
            int(candidates.distance[i]),
            likeness[i],
            row.status,
        )
        for i in order[:NEAREST].tolist()
    ]
    match = next((each for each in near if each.alike), None)
    near += _far(judge, row, {each.id for each in near})
    least = 0 if rule.options.strict else rule.evidence / ONE
    near = [each for each in near if each.alike or (each.similarity or 0) >= least]
    near = sorted(near, key=lambda each: -(each.similarity or 0))[:NEAREST]
    baselines = state.baselines(row.url_digest) if url and row.url_digest != NO_DIGEST else []
    if not baselines:
        return near, match, None, False
    own_baselines = [_near_baseline(judge, each, row, sketch) for each in baselines]
    baseline = next((each for each in own_baselines if each.alike), own_baselines[0])
    alive = state.tables.is_alive(np.array([baselines[0].cluster_anchor]))
    return near, match, baseline, baseline is own_baselines[0] and not alive[0]


def _far(judge: Judge, row: Row, candidates: set[str]) -> list[NearAnchor]:
    """Return the anchors nearest to a page among those that share no bucket with it, best first.

    The tables do not find them, so the newest are searched one by one: by fingerprint, and the nearest of
    them by sketch.
    """
    state, rule, sketch = judge.state, judge.rule, _sketch(row)
    fingerprint = from_integers([row.fingerprint], rule.scheme.width)
    anchors = state.anchors(state.tables.nearest(first_words(fingerprint)[0], FAR_COMPARED, NEWEST))
    distance = distances(anchors.fingerprint, fingerprint)
    place = np.arange(len(anchors.number))
    likeness = _likeness(rule, SketchPairs(sketch, np.zeros_like(place), anchors.sketch, place))
    far: list[NearAnchor] = []
    order = sorted(place.tolist(), key=lambda i: (-likeness[i].similarity, distance[i]))
    for i in order[: NEAREST + len(candidates)]:
        each = _near_anchor(
            judge, anchors.url(i), int(anchors.page[i]), int(distance[i]), likeness[i], row.status
        )
        if each.id not in candidates:
            far.append(each)
    return far


def _near_baseline(judge: Judge, baseline: Baseline, row: Row, sketch: Any) -> NearAnchor:
    distance = (baseline.fingerprint ^ row.fingerprint).bit_count()
    (likeness,) = _likeness(judge.rule, SketchPairs.of(sketch, baseline.sketch))
    return _near_anchor(judge, baseline.url, baseline.page, distance, likeness, row.status)


class _Likeness(NamedTuple):
    """What two sketches say about their pages."""

    similarity: int
    least: int
    """Least similarity that suffices."""
    counted: bool
    """Whether the similarity is counted rather than estimated."""


def _likeness(rule: Rule, pairs: SketchPairs) -> list[_Likeness]:
    """Compare the sketches of each pair."""
    columns = rule.similarities(pairs), rule.least(pairs), rule.counted(pairs)
    return [_Likeness(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]


def _near_anchor(
    judge: Judge, url: str, page: int, distance: int, likeness: _Likeness, status: int
) -> NearAnchor:
    alike, published, why = _apply_rule(judge.rule, distance, likeness, status)
    shown = None if judge.rule.options.public else distance
    return NearAnchor(url, show(judge.genesis.journal, page), shown, published, alike, why)


def _apply_rule(
    rule: Rule, distance: int, likeness: _Likeness, status: int
) -> tuple[bool, float | None, str]:
    """Return whether two pages are alike, their published similarity, and why."""
    similarity, least, counted = likeness
    if (published := rule.disclosed(similarity)) is None:
        alike = distance <= (largest := rule.largest_distance(status))
        return alike, None, f"distance {distance} is {'within' if alike else 'over'} {largest} bits"
    alike = similarity >= least
    enough, how = "at least" if alike else "below", "counted" if counted else "estimated"
    limit = rule.describe_limit(similarity, least)
    return alike, published, f"{how} similarity {published:.2f} is {enough} {limit}"


def _verdict_now(
    near: list[NearAnchor],
    match: NearAnchor | None,
    baseline: NearAnchor | None,
    *,
    is_orphan: bool = False,
) -> tuple[str, str]:
    """Return the verdict that the page would get now, and why."""
    if match and baseline and match.id == baseline.id:
        match = None
    if baseline and baseline.alike:
        why = f"recrawl: matches a last page of this URL; {baseline.why}"
        if is_orphan:
            joins = f"joins that of {match.url}" if match else "becomes an anchor"
            why += f"; its cluster has no anchor any more, so it {joins}"
        return "recrawl", why
    if match:
        return "duplicate", f"duplicate of {match.url}; {match.why}"
    if near and near[0].alike:
        return "unique", f"unique: {near[0].url} is alike, and shares no bucket of the tables with this page"
    if near:
        return "unique", f"unique: the nearest anchor does not match; {near[0].why}"
    return "unique", "unique: no anchor is nearly alike"
