"""Reference implementation of the pages that are kept, by their definition: of all verdicts so far, without
state. It shares no code with the elector."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from urllib.parse import urlsplit

from stream.messages.best import BestRecord, KeptPage
from stream.messages.verdict import PageRef
from stream.pages.times import rfc3339

CLUSTERED = ("unique", "duplicate", "recrawl")
POLICIES = ("first", "longest", "newest", "quality", "hosts=b.example,c.example")


@dataclass(frozen=True)
class Judged:
    """A verdict, with what the journal says of its page."""

    page: int
    """Packed id, which sorts in the order of judgement."""
    url: str
    key: Hashable
    """Equal for spellings of one URL; None where there is none, as no other page has this URL then."""
    verdict: str
    cluster: int | None
    """Page of the cluster's anchor; None for `insufficient`, `rejected` and `expired`."""
    length: int = 0
    quality: float | None = None
    fetched_at: int | None = None
    """Milliseconds since the epoch."""


@dataclass(frozen=True)
class Member:
    """The newest version of a URL, and the first page since which the URL is in its cluster."""

    newest: Judged
    since: int


def members(judged: Iterable[Judged]) -> dict[int, list[Member]]:
    """Return the members of each cluster: URLs of which the newest version is in it. Clusters that all URLs
    left have none. A version that could not be read replaces nothing, and one that is too short is in no
    cluster."""
    versions: dict[Hashable, list[Judged]] = {}
    for each in judged:
        if each.verdict != "rejected":
            versions.setdefault(url_of(each), []).append(each)
    found: dict[int, list[Member]] = {}
    for of_url in versions.values():
        newest = of_url[-1]
        for each in of_url:
            if each.cluster == each.page:  # it began the cluster
                found.setdefault(each.page, [])
        if newest.cluster is None:
            continue
        since = newest.page
        for each in reversed(of_url):
            if each.cluster != newest.cluster:
                break
            since = each.page
        found.setdefault(newest.cluster, []).append(Member(newest, since))
    return found


def unseen(judged: Sequence[Judged], until: int, most: int, time: Callable[[Judged], int]) -> list[Judged]:
    """Return what a turn adds to these verdicts: for each URL in a cluster that was seen last at a log time
    up to `until`, its newest version again, now in no cluster. At most `most` URLs leave, those first that
    were not seen for longest. `time` returns the log time of a page. A page that could not be read does not
    count as seen."""
    newest = {url_of(each): each for each in judged if each.verdict != "rejected"}
    due = [each for each in newest.values() if each.cluster is not None and time(each) <= until]
    oldest = sorted(due, key=lambda each: each.page)[:most]
    return [replace(each, verdict="expired", cluster=None) for each in oldest]


def rank(member: Member, elect: str) -> tuple[float, ...]:
    """Return the place of a member in its cluster, least first. Of equal ones that comes first which is there
    for the longest time; what a page does not say is the worst."""
    page = member.newest
    first = (member.since,)
    match elect.partition("="):
        case "first", _, _:
            return first
        case "longest", _, _:
            return (-page.length, *first)
        case "newest", _, _:
            return (inf if page.fetched_at is None else -page.fetched_at, *first)
        case "quality", _, _:
            return (inf if page.quality is None else -page.quality, -page.length, *first)
        case "hosts", _, listed:
            host, hosts = urlsplit(page.url).hostname, listed.split(",")
            return (hosts.index(host) if host in hosts else len(hosts), -page.length, *first)
    raise ValueError(elect)


def kept(judged: Iterable[Judged], elect: str) -> dict[int, Judged | None]:
    """Return the kept page of each cluster that there ever was, None where no URL is left in it."""
    return {
        cluster: min(found, key=lambda each: rank(each, elect)).newest if found else None
        for cluster, found in members(judged).items()
    }


@dataclass(frozen=True)
class Told:
    """What an elector says of a cluster at a pause."""

    cluster: int
    best: Judged | None
    was: Judged | None
    members: int
    as_of: int


def url_of(page: Judged | None) -> Hashable:
    """What is kept is a URL, of which the newest version counts."""
    if page is None:
        return None
    return ("page", page.page) if page.key is None else ("url", page.key)


def tell(before: dict[int, Told], judged: Sequence[Judged], elect: str) -> list[Told]:
    """Return what is to be said of clusters at a pause after these verdicts, beyond what was said `before`:
    where another URL is kept, and where a cluster of which something was said has twice as many members.

    Of a cluster of which nothing was said, the URL of its first page is kept.
    """
    found = []
    of_clusters, pages = members(judged), {each.page: each for each in judged}
    for cluster, page in kept(judged, elect).items():
        size, last = len(of_clusters[cluster]), before.get(cluster)
        was = last.best if last else pages[cluster]
        grew = bool(last and page and size >= 2 * last.members)
        if url_of(page) != url_of(was) or grew:
            found.append(Told(cluster, page, was, size, max(each.page for each in judged)))
    return found


def record_of(told: Told, journal: str = "9f576ade") -> BestRecord:
    """The record that says it; `because` is not exact."""
    page, grew = told.best, url_of(told.best) == url_of(told.was)
    best = None
    if page:
        moment = None if page.fetched_at is None else rfc3339(page.fetched_at)
        best = KeptPage(page.url, show(page.page, journal), page.length, page.quality, moment)
    return BestRecord(
        cluster=show(told.cluster, journal),
        best=best,
        was=PageRef(told.was.url, show(told.was.page, journal)) if told.was else None,
        because="grew" if grew else "joined" if page else "left",
        members=told.members,
        as_of=show(told.as_of, journal),
        decided_at=rfc3339(1_700_000_000_000 + told.as_of),
    )


def verdict_of(page: Judged) -> dict[str, object]:
    """The fields of its verdict that tell which page is kept."""
    return {
        "id": show(page.page),
        "url": page.url,
        "verdict": page.verdict,
        "cluster": None if page.cluster is None else show(page.cluster),
    }


def show(page: int, journal: str = "9f576ade") -> str:
    """The published form of a packed id."""
    return f"{journal}.{page >> 16}.{page & 65535}"


def crawl(seed: int, n: int, *, offset: int = 1) -> list[Judged]:
    """Verdicts as a judge may give them: copies, recrawls, changed URLs, URLs that flip between two pages,
    pages that cannot be read or are too short, and spellings of one URL."""
    rng = random.Random(seed)
    found: list[Judged] = []
    clusters: list[int] = []
    baselines: dict[int, list[int]] = {}
    """URL -> clusters of its last two different pages, newest first."""
    for number in range(n):
        page = offset + number // 7 << 16 | number % 7
        which = rng.randrange(max(4, n // 4))
        host = rng.choice(("a", "b", "c", "d")) if which % 3 else "a"
        url = f"https://{'abcd'[which % 4]}.example/{which}" + rng.choice(
            ("", "", "#top", "?utm_source=feed")
        )
        key: Hashable = which
        if rng.random() < 0.03:  # of a URL without a key, which no other page has
            url, key = f"https://{host}.example/{'x' * 9}/{number}", None
        known = baselines.get(which, []) if key is not None else []
        cluster: int | None
        chance = rng.random()
        if chance < 0.05:
            verdict, cluster = "rejected", None
        elif chance < 0.1:
            verdict, cluster = "insufficient", None
        elif known and chance < 0.55:
            verdict, cluster = "recrawl", rng.choice(known)
            if cluster == known[0] and rng.random() < 0.15:  # its anchor is gone: it is judged again
                cluster = page if rng.random() < 0.5 else rng.choice(clusters[-5:])
                clusters += [cluster] if cluster == page else []
                baselines[which] = [cluster, *known[1:]]
        else:
            others = [each for each in clusters[-5:] if each not in known[:1]]
            if others and chance < 0.85:
                verdict, cluster = "duplicate", rng.choice(others)
            else:
                verdict, cluster = "unique", page
                clusters.append(page)
            if key is not None:
                baselines[which] = [cluster, *known][:2]
        found.append(
            Judged(
                page, url, key, verdict, cluster,
                length=rng.choice((0, 90, 100, 100, 110, 4_000_000_000)),
                quality=rng.choice((None, None, -0.0, 0.0, 0.5, -1e300, 1e300)),
                fetched_at=rng.choice((None, 0, -1, 1_000, 1_700_000_000_000 + number)),
            )
        )  # fmt: skip
    return found


@dataclass
class Topics:
    """Verdicts, and what an elector says of them, that may be killed after it sent its records: then it says
    the same again."""

    elect: str
    rng: random.Random
    judged: list[Judged] = field(default_factory=list)
    records: list[BestRecord] = field(default_factory=list)
    told: dict[int, Told] = field(default_factory=dict)

    def pause(self, pages: list[Judged]) -> None:
        """Publish verdicts on pages, and what the elector says at a pause after them."""
        self.judged += pages
        news = tell(self.told, self.judged, self.elect)
        self.told.update({each.cluster: each for each in news})
        self.rng.shuffle(news)  # of different partitions
        sent = [record_of(each) for each in news]
        self.records += [*sent[: self.rng.randrange(len(sent) + 1)], *sent] if sent else []

    def compacted(self) -> list[BestRecord]:
        """What is left of the records: at least the last one of each cluster."""
        last = {each.cluster: number for number, each in enumerate(self.records)}
        return [
            each
            for number, each in enumerate(self.records)
            if last[each.cluster] == number or self.rng.random() < 0.3
        ]

    def wanted(self) -> dict[str, object]:
        """Cluster -> URL that is kept."""
        now = kept(self.judged, self.elect).items()
        return {show(cluster): url_of(page) for cluster, page in now}


def pauses(topics: Topics, seed: int, pages: int = 300) -> Iterator[list[Judged]]:
    """Publish a crawl, and yield what is published at each pause."""
    left = crawl(seed, pages)
    while left:
        size = topics.rng.choice((1, 5, 20, 60))
        now, left = left[:size], left[size:]
        topics.pause(now)
        yield now
