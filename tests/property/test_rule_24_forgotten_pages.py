"""Forgotten pages: whatever is cut, they are as if expired, and nothing of them stays in a directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from stream.errors import StateError
from stream.fingerprint.seed import host_hasher
from stream.judge import forgetting
from stream.judge.forgetting import Search
from stream.judge.judge import Judge
from stream.judge.state.meta import Forgetting
from stream.kafka.reader import RECORDS_AT_ONCE
from stream.kafka.topic_plan import DECISIONS_BYTES
from stream.messages.decision import (
    Forgotten,
    NamedDigests,
    encode_decisions,
    forgetting_record,
)
from stream.messages.requests import What
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.forgetting import REQUESTS_AT_ONCE
from stream.tables.store.rocks import URLS, Store
from tests.forgetting import erase, forget, request
from tests.judged_crawls import (
    entries_of,
    judging,
    mirrors,
    open_state,
)
from tests.oracle import OraclePage
from tests.url_digests import digest_of_url


def content(path: Path, *, without: str = "none") -> bytes:
    """All bytes of a state directory: those of its files, and all keys and values, which files have
    compressed."""
    files = [each for each in path.rglob("*") if each.is_file() and not each.name.startswith(without)]
    found = [each.read_bytes() for each in files]
    with Store(path, 1 << 20, read_only=True) as store:
        found += [part for family in store.families for pair in store.scan(family) for part in pair]
    return b"\n".join(found)


@contextmanager
def judged(path: Path, pages: list[OraclePage]) -> Iterator[Judge]:
    """A judge that has judged these pages, in one batch."""
    entries = entries_of(pages, 8)
    with judging(path / "state") as judge:
        judge.apply(entries, judge.decide(entries).record(), 1)
        yield judge


@pytest.mark.parametrize("what", ["url", "host", "domain"])
def test_rule_24_nothing_of_it_stays_in_a_state_directory(tmp_path: Path, what: What) -> None:
    """Files as they are, keys and values: neither URLs, of older versions too, nor digests of URLs."""
    options = VerdictOptions()
    pages = [
        dataclasses.replace(page, url=page.url and f"http://h{i % 3}.example.org{page.url[11:]}-")
        for i, page in enumerate(mirrors(5, 700))
    ]
    entries = entries_of(pages, 5)
    with judging(tmp_path / "state", options) as judge:
        for at in range(0, len(entries), 3):  # incomplete groups are written again and again
            part = entries[at : at + 3]
            judge.apply(part, judge.decide(part).record(), at + 3)
            judge.state.flush()
        urls = {page.url for page in pages if page.url}
        names = {"url": sorted(urls)[:20], "host": ["h1.example.org"], "domain": ["example.org"]}[what]
        gone = {
            url for url in urls if what == "domain" or url in names or (what == "host" and "//h1." in url)
        }
        bytes_of = {url: (url.encode(), digest_of_url(url)) for url in urls}
        before = content(judge.state.store.path)
        assert all(each in before for url in urls for each in bytes_of[url])
        requests = [(i, request(judge, what, name)) for i, name in enumerate(names)]
        requests.append((99, request(judge, what, "http://nobody.example.net/")))
        records = forget(judge, Search(judge.state, judge.genesis, requests, 100), 10_000)
        assert [dict(each.forgotten.pages).keys() for each in records if each.forgotten] == [
            set(range(len(names)))
        ]
        erase(judge.state)
        # Until the next start, RocksDB's manifest may name bounds of files that are gone, which are digests.
        after = content(judge.state.store.path, without="MANIFEST-")
        for url in urls:
            assert [each in after for each in bytes_of[url]] == [url not in gone] * 2, url
    state, _ = open_state(tmp_path / "state", options, memory=1 << 20, generation=64)
    state.close()
    after = content(tmp_path / "state")
    assert not any(each in after for url in gone for each in bytes_of[url])


@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_more_pages_than_a_record_takes_are_forgotten_by_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The pages of a URL go at once, or the newest first."""
    monkeypatch.setattr(forgetting, "MOST_FORGOTTEN", limit)
    with judged(tmp_path, mirrors(8, 300)) as judge:
        asked, total = [(4, request(judge, "host", "host"))], sum(judge.state.next)
        search = Search(judge.state, judge.genesis, asked, 6)
        records = forget(judge, search, 1)
        parts = [each.forgotten for each in records if each.forgotten]
        assert sum(len(numbers) for each in parts for numbers in each.numbers) == total
        assert [each.requests for each in parts] == [0] * (len(parts) - 1) + [6]
        assert [each.pages for each in parts] == [[]] * (len(parts) - 1) + [[(4, total)]]
        digest = host_hasher(judge.genesis.seed)("host")
        assert [each.named for each in parts] == [NamedDigests()] * (len(parts) - 1) + [
            NamedDigests.of(hosts=[digest])
        ]
        assert not any(each.ids for each in parts), "who names a host knows its pages by their URLs"
        assert (len(parts) == 1) == (limit == 1000)
        assert not np.any(judge.state.tables.is_alive(np.arange(judge.state.next.anchors)))
        assert not any(True for _ in judge.state.store.scan(URLS))


def test_pages_that_are_named_by_url_and_host_keep_their_ids(tmp_path: Path) -> None:
    """Who follows knows by them the recrawls that have the key of another URL."""
    with judged(tmp_path, mirrors(8, 300)) as judge:
        asked = [(0, request(judge, "url", "http://host/1")), (1, request(judge, "host", "host"))]
        alone, both = (
            Search(judge.state, judge.genesis, some, 2).record().forgotten for some in (asked[:1], asked)
        )
        assert alone is not None
        assert both is not None
        assert len(both.anchors) > len(alone.anchors)
        assert alone.ids
        assert both.ids == alone.ids


def test_forgotten_anchors_are_not_named_as_those_of_their_duplicates(tmp_path: Path) -> None:
    made = mirrors(8, 300)
    with judged(tmp_path, made) as judge:
        stored = [judge.state.by_page(page.id) for page in made]
        copies = [each for each in stored if each is not None and each.anchor is None]
        assert any(map(judge.state.anchor_of, copies))
        forget(judge, Search(judge.state, judge.genesis, [(0, request(judge, "host", "host"))], 1), 1)
        left = [each.url for each in map(judge.state.anchor_of, copies) if each is not None]
        assert not any(left), "but those of pages without a URL"


@pytest.mark.parametrize("limit", [1, 8])
def test_pages_that_expire_before_a_record_takes_them_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(forgetting, "MOST_FORGOTTEN", limit)
    with judged(tmp_path, mirrors(8, 60)) as judge:
        search = Search(judge.state, judge.genesis, [(0, request(judge, "host", "host"))], 1)
        search.run()
        for log in judge.state.page_logs:
            log.first = log.count - 3
        record, found = search.record(), set[int]()
        while record.forgotten is not None:
            found |= {
                2 * int(each) + kind for kind, some in enumerate(record.forgotten.numbers) for each in some
            }
            if search.note_forgotten(record.forgotten):
                break
            record = search.record()
        left = {
            2 * number + kind
            for kind, log in enumerate(judge.state.page_logs)
            for number in range(log.first, log.count)
        }
        assert found == left


def test_the_largest_record_fits_the_topic() -> None:
    """With numbers of requests and pages up to four billion."""
    pages, requests, large = forgetting.MOST_FORGOTTEN, REQUESTS_AT_ONCE + RECORDS_AT_ONCE, (1 << 32) - 1
    forgotten = Forgotten(
        requests=large,
        anchors=bytes(8 * pages),
        duplicates=b"",
        urls=bytes(16 * pages),
        ids=bytes(8 * pages),
        pages=[(large, large)] * requests,
        named=NamedDigests(urls=bytes(16 * requests)),
    )
    record = forgetting_record("ab" * 16, "cd" * 8, 1 << 40, bytes(16), 1 << 41, forgotten)
    assert len(encode_decisions(record)) < DECISIONS_BYTES


def test_requests_that_name_no_page_are_decided(tmp_path: Path) -> None:
    with judging(tmp_path / "state") as judge:
        asked = [(3, request(judge, "url", "http://x/"))]
        (record,) = forget(judge, Search(judge.state, judge.genesis, asked, 4), 7)
        named = NamedDigests.of(urls=[digest_of_url("http://x/")])
        assert record.forgotten == Forgotten(
            requests=4, anchors=b"", duplicates=b"", urls=b"", ids=b"", pages=[], named=named
        )
        assert judge.state.meta.forgetting == Forgetting(requests=4)
        assert judge.state.meta.decided == 8


def test_records_that_do_not_fit_the_state_are_refused(tmp_path: Path) -> None:
    entries = entries_of(mirrors(9, 200), 9)
    with judging(tmp_path / "state") as judge:
        judge.apply(entries, judge.decide(entries).record(), 1)
        right = Search(judge.state, judge.genesis, [(0, request(judge, "host", "host"))], 1).record()
        forgotten, end = right.forgotten, judge.state.next.anchors
        assert forgotten is not None
        for changed, why in (
            ({"anchors": np.array([0, end], "<i8").tobytes()}, f"forgets anchor 0 to {end}, but the state"),
            ({"duplicates": b""}, "forgets pages of other URLs"),
            ({"urls": forgotten.urls[:-16]}, "forgets pages of other URLs"),
            ({"ids": np.array([1 << 40], "<i8").tobytes()}, "forgets pages of other ids"),
        ):
            wrong = structs.replace(forgotten, **changed)
            with pytest.raises(StateError, match=f"the forgetting at decisions offset 5 {why}"):
                judge.apply_apart(structs.replace(right, forgotten=wrong), 5)
        later = structs.replace(right, start=right.start + 1, end=right.start + 1)
        with pytest.raises(StateError, match="has journal offset"):
            judge.apply_apart(later, 5)
        judge.apply_apart(right, 5)
