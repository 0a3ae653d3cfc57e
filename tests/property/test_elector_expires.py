"""An elector drops URLs that were not seen for a lifetime of log time, as the oracle does at each turn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from stream.elector import elector as elector_module
from stream.elector.elector import Due, Elector
from stream.elector.judged_pages import Decided
from stream.errors import DamagedStateError, StateError
from stream.fingerprint.seed import host_hasher
from stream.messages.best import BestRecord
from stream.messages.decision import NamedDigests
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store.rocks import MEMBERS, SEEN, VERSIONS
from tests.elected import decided_of, follow, open_elector, tell_all, url_digest_of
from tests.genesis import JOURNAL, genesis_of
from tests.property import best_oracle
from tests.property.best_oracle import POLICIES, Judged, crawl, members, record_of, unseen, url_of
from tests.property.killed_elector import check_kept, elect_killed_again_and_again
from tests.property.test_elector_forgets import content, erase, forgetting, tell
from tests.property.test_elector_oracle import fields

LIFETIME = 600
"""Seconds."""
GENESIS = genesis_of(options=VerdictOptions(lifetime=LIFETIME))
PREFIX = JOURNAL[:8]


def time_of(offset: int) -> int:
    """Append time of a record: a lifetime is some 25 records, with an outage now and then."""
    return 1_700_000_000_000 + 24_000 * offset + 400_000 * (offset // 31)


class Oracle:
    """All verdicts so far, with what turns did to URLs."""

    def __init__(self, judged: Sequence[Judged], most: int) -> None:
        self._judged, self._most = judged, most
        self.seen = list[Judged]()
        self.left = 0

    def follow(self, decided: Sequence[Decided]) -> None:
        for each in decided:
            start, end = each.decisions.start, each.decisions.end
            self.seen += [page for page in self._judged if start <= page.page >> 16 < end]
            if each.decisions.turn is not None:
                until = each.decisions.time - 1000 * LIFETIME
                gone = unseen(self.seen, until, self._most, lambda page: time_of(page.page >> 16))
                self.seen += gone
                self.left += len(gone)


def reason(told: best_oracle.Told, before: dict[int, best_oracle.Told], judged: Sequence[Judged]) -> str:
    """Why something is told, by its definition."""
    last, of_cluster = before.get(told.cluster), members(judged)[told.cluster]
    if url_of(told.best) == url_of(told.was):
        return "grew"
    stay = {url_of(each.newest): each.since for each in of_cluster}
    if told.was is not None and url_of(told.was) not in stay:
        of_url = [each for each in judged if url_of(each) == url_of(told.was) and each.verdict != "rejected"]
        expired = of_url[-1].verdict == "expired" and of_url[-2].cluster == told.cluster
        return "expired" if expired else "left"
    return "joined" if stay[url_of(told.best)] > (last.as_of if last else told.cluster) else "better"


@pytest.mark.parametrize("elect", POLICIES)
@pytest.mark.parametrize(("seed", "most"), [(1, 1 << 16), (2, 1 << 16), (3, 2)])
def test_what_is_told_is_what_the_oracle_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elect: str, seed: int, most: int
) -> None:
    monkeypatch.setattr(elector_module, "MOST_UNSEEN", most)
    judged, rng = crawl(seed, 700), random.Random(seed)
    elector, oracle = open_elector(tmp_path, elect, GENESIS), Oracle(judged, most)
    before, because = dict[int, best_oracle.Told](), Counter[str]()
    left = decided_of(judged, seed, GENESIS, time_of)
    while left:
        size = rng.choice((1, 2, 9))
        batch, left = left[:size], left[size:]
        follow(elector, batch)
        oracle.follow(batch)
        if left and rng.random() < 0.5:
            continue  # no time yet
        want = sorted(best_oracle.tell(before, oracle.seen, elect), key=lambda each: each.cluster)
        found = tell_all(elector, rng.choice((1, 3, 1000)))
        assert list(map(fields, found)) == [fields(record_of(each, PREFIX)) for each in want]
        assert [each.because for each in found] == [reason(each, before, oracle.seen) for each in want]
        before.update({each.cluster: each for each in want})
        because.update(each.because for each in found)
        if rng.random() < 0.2:
            elector.state.close()
            elector = open_elector(tmp_path, elect, GENESIS)
    check_content(elector, oracle)
    elector.state.close()
    assert min(because["expired"], because["left"]) > 5
    assert oracle.left > 50


def check_content(elector: Elector, oracle: Oracle) -> None:
    """Nothing is left of URLs that are gone, once it was told."""
    kept = [each.newest for of_cluster in members(oracle.seen).values() for each in of_cluster]
    state = elector.state
    assert state.meta.urls == len(kept)
    for family in (VERSIONS, MEMBERS, SEEN):
        assert sum(1 for _ in state.store.scan(family)) == len(kept), family
    pairs = state.store.scan(SEEN)
    seen = [(int.from_bytes(key, "big"), int.from_bytes(value[:8], "little")) for key, value in pairs]
    assert seen == sorted((each.page, time_of(each.page >> 16)) for each in kept)


@pytest.mark.parametrize("elect", POLICIES)
def test_the_state_does_not_depend_on_batch_cuts(tmp_path: Path, elect: str) -> None:
    """Nor does what is told in the end, though a URL may leave and come back before."""
    judged, rng, found = crawl(11, 500), random.Random(5), list[tuple[str, list[BestRecord]]]()
    decided = decided_of(judged, 11, GENESIS, time_of)
    for name, sizes in (("one", (1,)), ("all", (1000,)), ("some", (1, 3, 10))):
        elector, told, left = open_elector(tmp_path / name, elect, GENESIS), list[BestRecord](), decided
        for end in (200, 1000):
            part, left = left[:end], left[end:]
            while part:
                size = rng.choice(sizes)
                follow(elector, part[:size])
                part = part[size:]
            told += tell_all(elector)
        found.append((elector.state.store.digest(), told))
        elector.state.close()
    assert found[0] == found[1] == found[2]
    assert any(each.because == "expired" for each in found[0][1])


@pytest.mark.parametrize(("elect", "seed"), [("longest", 1), ("first", 2), ("newest", 3)])
def test_after_any_kill_the_topic_has_the_kept_pages(tmp_path: Path, elect: str, seed: int) -> None:
    judged = crawl(seed + 50, 700)
    decided = decided_of(judged, seed, GENESIS, time_of)
    elector, topic = elect_killed_again_and_again(tmp_path, elect, decided, seed, GENESIS)
    oracle = Oracle(judged, elector_module.MOST_UNSEEN)
    oracle.follow(decided)
    check_content(elector, oracle)
    elector.state.close()
    check_kept(topic, judged, oracle.seen, elect)
    assert any(each.record.because == "expired" for each in topic)


def test_a_url_that_expired_and_is_forgotten_before_it_is_told_is_in_no_record(tmp_path: Path) -> None:
    url = "https://gone.example/"
    judged = [
        Judged(1 << 16, url, "gone", "unique", 1 << 16),
        Judged(99 << 16, "https://late.example/", "late", "unique", 99 << 16),
    ]
    elector, digest = open_elector(tmp_path, "first", GENESIS), url_digest_of("gone")
    decided = decided_of(judged, 1, GENESIS, time_of)
    follow(elector, decided)
    assert elector.state.expired_from([digest]) == [1 << 16]
    (due,) = elector.due(10)
    assert due.record.was is not None
    assert (due.record.because, due.record.was.url, due.record.best) == ("expired", url, None)
    elector.forget(forgetting(decided[-1], [digest]))
    (due,) = elector.due(10)
    assert (due.record.because, due.record.was, due.record.best) == ("forgotten", None, None)
    elector.tell([due], {})
    assert elector.state.versions([digest]) == [None]
    assert elector.state.store.get(VERSIONS, [digest]) == [None]
    elector.state.close()


@pytest.mark.parametrize("by", ["urls", "hosts", "domains"])
def test_what_was_told_of_urls_that_had_expired_is_told_again_without_them(tmp_path: Path, by: str) -> None:
    """Though the judge has no page of them any more: requests alone name them. One has a cluster that ended,
    one was told and not yet replaced, and a third one stays."""
    url, late = "https://gone.example/", "https://late.example/"
    judged = [
        Judged(1 << 16, url + "1", "one", "unique", 1 << 16),
        Judged(60 << 16, url + "2", "two", "unique", 60 << 16),
        Judged(120 << 16, late, "late", "unique", 120 << 16),
    ]
    elector = open_elector(tmp_path, "first", GENESIS)
    decided, topic = decided_of(judged, 7, GENESIS, time_of), list[Due]()  # each about one record
    for each in decided:
        follow(elector, [each])
        if each.decisions.has_rows and each.decisions.end <= 61:
            topic += tell(elector)
    assert [each.record.because for each in topic] == ["expired"]
    host, domain = (host_hasher(GENESIS.seed)(each) for each in ("gone.example", "example"))
    digests = {"urls": [url_digest_of("one"), url_digest_of("two")], "hosts": [host], "domains": [domain]}
    elector.forget(forgetting(decided[-1], [], NamedDigests.of(**{by: digests[by]})))
    topic += tell(elector)
    told = erase(elector, topic, set(digests["urls"][by != "urls" :]))
    last = {each.record.cluster: each.record for each in [*topic, *told]}
    assert len(last) == 2
    assert {(each.because, each.was, each.best) for each in last.values()} == {("forgotten", None, None)}
    assert elector.state.store.get(VERSIONS, digests["urls"]) == [None, None]
    late_version = elector.state.versions([url_digest_of("late")])[0]
    assert late_version is not None
    elector.state.close()
    left = content(tmp_path)
    assert (url.encode() in left, late.encode() in left) == (False, True)
    assert not any(each in left for each in (*digests["urls"], host, domain))


def test_without_a_lifetime_requests_alone_erase_nothing(tmp_path: Path) -> None:
    judged = [Judged(1 << 16, "https://a.example/", "one", "unique", 1 << 16)]
    elector = open_elector(tmp_path, "first")
    decided = decided_of(judged, 1)
    follow(elector, decided)
    named = NamedDigests.of(urls=[url_digest_of("one")])
    elector.forget(forgetting(decided[-1], [], named))
    assert elector.state.meta.forgotten == 0
    assert elector.state.versions([url_digest_of("one")]) != [None]
    elector.state.close()


def test_a_turn_is_refused_without_a_lifetime_and_by_a_state_that_lost_a_version(tmp_path: Path) -> None:
    decided = decided_of(crawl(1, 400), 1, GENESIS, time_of)
    turn = next(at for at, each in enumerate(decided) if each.decisions.turn is not None)
    endless = open_elector(tmp_path / "endless", "first")
    with pytest.raises(StateError):
        endless.turn(decided[turn])
    endless.state.close()
    elector = open_elector(tmp_path / "state", "first", GENESIS)
    follow(elector, decided[:turn])
    ((_, digest),) = elector.state.unseen(time_of(999), 1)
    writes = elector.state.store.batch()
    writes.delete(VERSIONS, digest)
    elector.state.write(writes, elector.state.meta)
    with pytest.raises(DamagedStateError, match=f"URL {digest.hex()} was seen with page"):
        follow(elector, [each for each in decided[turn:] if each.decisions.turn is not None])
    elector.state.close()
