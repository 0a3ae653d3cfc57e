"""The dashboard's blocks of verdicts: each URL's last ones are found, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import xxhash
from msgspec import UNSET, structs

from stream.dashboard.counting import history, latest_verdicts
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.latest_verdicts import LatestVerdicts, VerdictFilter
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.state import BLOCKS, KEPT, State
from stream.dashboard.counting.verdict_columns import batch_of, normal
from stream.dashboard.counting.view import View
from stream.figures import Meta
from stream.fingerprint.seed import host_hasher, url_hasher
from stream.judge.ids import pack
from stream.messages.decision import NamedDigests
from stream.messages.requests import What
from stream.messages.verdict import NearestPage, PageRef, VerdictRecord
from stream.pages.times import rfc3339
from stream.tables.store.rocks import CLUSTERS, URLS
from tests.genesis import JOURNAL, genesis_of
from tests.kafka.dashboard_helpers import VerdictMaker

FRESH = Meta(cluster="cluster", journal=JOURNAL, topic="topic")
PARTITION = 2


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    monkeypatch.setattr(history, "BLOCK_BYTES", 4000)
    with closing(State.open(tmp_path / "figures", FRESH)) as opened:
        yield opened


def crawled(times: int) -> list[VerdictRecord]:
    """URLs that come again and again, and one that comes once."""
    made = VerdictMaker()
    found = [made.one(url=FORGOTTEN if i % 5 == 3 else f"http://a.example/{i % 5}") for i in range(5 * times)]
    return [*found, made.one(url="http://once.example/")]


def count(state: State, verdicts: list[VerdictRecord], first: int = 0, partition: int = PARTITION) -> None:
    values, pending = [msgspec.json.encode(each) for each in verdicts], Pending()
    pending.add(batch_of(partition, range(first, first + len(values)), values), 0)
    state.fold(pending, View(state.host_counts), time.time())


GENESIS = genesis_of()
FORGOTTEN = "http://forgotten.example/3"


def forgotten_pages(
    state: State, *named: tuple[What, str], start: int = 8, ids: Sequence[int] = ()
) -> ForgottenPages:
    """Pages that a decision at a journal offset forgets, by names of what was requested."""
    pages, digests = ForgottenPages(GENESIS, state), dict[str, list[bytes]]()
    for what, name in named:
        hasher = url_hasher if what == "url" else host_hasher
        digests.setdefault(f"{what}s", []).append(hasher(GENESIS.seed)(name))
    end = state.meta.decided + 1
    pages._forget(NamedDigests.of(**digests), start, end, end, ids)
    return pages


def check(state: State, verdicts: list[VerdictRecord]) -> None:
    for url in {each.url or "" for each in verdicts}:
        its = [each for each in verdicts if each.url == url]
        assert state.history(normal(url)) == its[::-1][:KEPT]
    assert state.history("http://never.example/") == []


def test_the_last_verdicts_of_each_url_are_found(state: State) -> None:
    verdicts = crawled(2 * KEPT)
    cut = len(verdicts) // 2
    count(state, verdicts[:cut])
    count(state, verdicts[cut:], first=cut + 3)
    assert sum(1 for _ in state.store.scan(BLOCKS)) > 3, "in blocks"
    check(state, verdicts)
    once = structs.replace(verdicts[-1], id=f"{GENESIS.journal[:8]}.1.1", decided_at=rfc3339(0))
    count(state, [once], partition=0)
    assert state.history(normal("http://once.example/")) == [verdicts[-1], once], "of all partitions"


@pytest.mark.parametrize(("what", "name"), [("url", FORGOTTEN), ("host", "forgotten.example")])
def test_a_block_is_rewritten_without_what_it_says_of_forgotten_pages(
    state: State, what: What, name: str
) -> None:
    prefix, verdicts = GENESIS.journal[:8], crawled(KEPT)
    verdicts = [structs.replace(each, id=f"{prefix}.7.{place}") for place, each in enumerate(verdicts)]
    named = PageRef(FORGOTTEN, f"{prefix}.7.3")
    verdicts[-1] = structs.replace(
        verdicts[-1],
        verdict="unique", duplicate_of=None, nearest=NearestPage(named.url, named.id, 0.3),
    )  # fmt: skip
    verdicts[-2] = structs.replace(verdicts[-2], verdict="duplicate", duplicate_of=named)
    count(state, verdicts)
    pages = forgotten_pages(state, (what, name))
    assert erase(state, pages)[0] > 1
    state.compact()
    assert state.history(FORGOTTEN) == []
    check(
        state,
        [
            structs.replace(
                each,
                duplicate_of=None if each.duplicate_of == named else each.duplicate_of,
                nearest=UNSET,
            )
            for each in verdicts
            if each.url != FORGOTTEN
        ],
    )
    assert erase(state, pages)[0] == 0, "once"
    digest = xxhash.xxh3_64_digest(FORGOTTEN.encode())
    assert not any(digest in part for entry in state.store.scan(URLS) for part in entry)
    files = list(state.store.path.glob("*.sst"))
    assert files
    assert not any(digest in each.read_bytes() for each in files)


def erase(state: State, pages: ForgottenPages) -> tuple[int, int]:
    """Erase from all rows, a few at a time, and return how many it were, and in how many turns."""
    rows = turns = 0
    for family in (BLOCKS, CLUSTERS):
        start: bytes | None = b""
        while start is not None:
            keys, start = state.erase_some(family, start, pages.names, pages.rewrite)
            rows, turns = rows + len(keys), turns + 1
    return rows, turns


def test_a_search_for_forgotten_pages_goes_on_where_it_stopped(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    count(state, crawled(KEPT))
    rows = sum(1 for family in (BLOCKS, CLUSTERS) for _ in state.store.scan(family))
    monkeypatch.setattr("stream.dashboard.counting.state.ERASE_SECONDS", 0.0)
    assert 2 < erase(state, ForgottenPages(GENESIS, state))[1] <= rows + 2


def test_pages_that_have_the_key_of_another_url_are_forgotten_by_their_ids(state: State) -> None:
    """And the recrawls of them. A page that is like them stays, and so does one that was crawled later."""
    prefix, made = GENESIS.journal[:8], VerdictMaker()

    def page(place: int, url: str, verdict: str, like: PageRef | None, offset: int = 7) -> VerdictRecord:
        each = made.one(url=url)
        return structs.replace(each, id=f"{prefix}.{offset}.{place}", verdict=verdict, duplicate_of=like)

    gone = PageRef("http://a.example/?session=1", f"{prefix}.7.0")
    verdicts = [
        page(0, gone.url, "unique", None),
        page(1, "http://a.example/?session=2", "recrawl", gone),
        page(2, "http://b.example/", "duplicate", gone),
        page(3, "http://a.example/?session=3", "unique", None, offset=9),
    ]
    count(state, verdicts)
    pages = forgotten_pages(state, ("url", "http://a.example/"))
    assert erase(state, pages)[0] == 0
    pages = forgotten_pages(state, ("url", "http://a.example/"), ids=[pack(7, 0), pack(6, 5)])
    assert erase(state, pages)[0] == 1
    assert [state.history(normal(each.url or "")) for each in verdicts] == [
        [], [], [structs.replace(verdicts[2], duplicate_of=None)], [verdicts[3]],
    ]  # fmt: skip
    assert erase(state, pages)[0] == 0
    assert pages.names("http://any.example/", f"{prefix}.6.5")
    assert not pages.names("http://any.example/", "ffffffff.6.5"), "of another journal"


@pytest.mark.parametrize(
    ("what", "name", "url", "is_named"),
    [
        ("url", "http://a.example/3", "HTTP://A.example:80/3#part", True),
        ("url", "http://a.example/3", "http://a.example/4", False),
        ("url", "http://xn--bcher-kva.example/", "http://bücher.example/", True),
        ("host", "a.example", "https://a.example:8443/x", True),
        ("host", "a.example", "http://www.a.example/x", False),
        ("host", "example", "http://a.example/x", False),
        ("domain", "a.example", "http://www.a.example/x", True),
        ("domain", "a.example", "http://nota.example/x", False),
        ("domain", "a.example", "not a url", False),
    ],
)
def test_pages_are_forgotten_by_urls_hosts_and_domains_until_the_decision(
    state: State, what: What, name: str, url: str, is_named: bool
) -> None:
    prefix, other = GENESIS.journal[:8], "http://other.example/"
    pages = forgotten_pages(state, ("url", other), (what, name))
    assert pages.names(url, f"{prefix}.7.0") == is_named
    assert not pages.names(url, f"{prefix}.8.0"), "crawled again later"
    assert not pages.names(url, "ffffffff.7.0"), "of another journal"
    assert not pages.names(None, f"{prefix}.7.0")
    pages = forgotten_pages(state, (what, name), start=20)
    assert pages.names(url, f"{prefix}.19.0") == is_named
    assert pages.names(other, f"{prefix}.7.0")
    assert not pages.names(other, f"{prefix}.8.0")


async def test_the_latest_verdicts_lose_what_they_say_of_forgotten_pages(state: State) -> None:
    latest, prefix = LatestVerdicts(), GENESIS.journal[:8]
    verdicts = [structs.replace(each, id=f"{prefix}.7.{n}") for n, each in enumerate(crawled(2))]
    for first, last in ((0, 2), (2, 7), (7, len(verdicts))):
        values = [msgspec.json.encode(each) for each in verdicts[first:last]]
        latest.tell(batch_of(PARTITION, range(first, last), values))
    await latest.rewrite(forgotten_pages(state, ("url", FORGOTTEN)).rewrite)
    shown = [each.verdict for each in latest.latest(VerdictFilter(), 100)]
    assert [each.id for each in shown] == [each.id for each in reversed(verdicts)]
    assert [each.url for each in shown if each.url] == [
        each.url for each in reversed(verdicts) if each.url != FORGOTTEN
    ]


def test_a_restarted_dashboard_begins_with_the_last_verdicts(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> list[VerdictRecord]:
        latest = LatestVerdicts()
        latest.fill(state)
        return [each.verdict for each in latest.latest(VerdictFilter(), 1000)]

    assert shown() == []
    verdicts = crawled(4 * KEPT)
    count(state, verdicts[:50])
    count(state, verdicts[50:], first=53)
    monkeypatch.setattr(latest_verdicts, "TAIL", 5)
    last = shown()
    assert 5 <= len(last) < 50, "whole blocks"
    assert last == verdicts[::-1][: len(last)]
    others = [structs.replace(verdicts[-1], id=f"other{n}", decided_at=rfc3339(-n)) for n in range(2)]
    for n, other in enumerate(others):
        count(state, [other], partition=PARTITION - 1 + 2 * n)
    assert shown() == [*last, *others], "of each partition"


def test_pages_of_one_host_near_one_anchor_of_another_are_counted() -> None:
    victim, other = (PageRef(f"http://victim.example/{n}", f"9f576ade.1.{n}") for n in range(2))
    near = NearestPage(victim.url, victim.id, 0.7)
    said = [
        *((f"http://a.example/{n}", "duplicate", victim, UNSET) for n in range(3)),
        *(
            (f"http://a.example/{n}", "unique", None, near) for n in range(2, 5)
        ),  # one URL for the second time
        *((f"http://a.example/{n}", "duplicate", other, UNSET) for n in range(4)),
        *((f"http://b.example/{n}", "duplicate", victim, UNSET) for n in range(4)),
        *((f"http://victim.example/{n}", "duplicate", victim, UNSET) for n in range(9)),
        *((f"http://c.example/{n}", "recrawl", victim, UNSET) for n in range(9)),
    ]
    verdicts = [
        structs.replace(crawled(1)[0], url=url, verdict=verdict, duplicate_of=of, nearest=nearest)
        for url, verdict, of, nearest in said
    ]
    latest = LatestVerdicts()
    assert latest.near_one_anchor == 0
    latest.tell(batch_of(PARTITION, range(len(verdicts)), [msgspec.json.encode(each) for each in verdicts]))
    assert latest.near_one_anchor == 5
