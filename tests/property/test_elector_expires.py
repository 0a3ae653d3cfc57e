"""Electors forget URLs that expired before, and refuse turns that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.elector.elector import Due
from stream.errors import DamagedStateError, StateError
from stream.fingerprint.seed import host_hasher
from stream.messages.decision import NamedDigests
from stream.tables.store.rocks import VERSIONS
from tests.elected import decided_of, open_elector, url_digest_of
from tests.property.best_oracle import Judged, crawl
from tests.property.test_elector_forgets import content, erase, forgetting, tell
from tests.property.test_elector_oracle import EXPIRING, time_of


def test_a_url_that_expired_and_is_forgotten_before_it_is_told_is_in_no_record(tmp_path: Path) -> None:
    url = "https://gone.example/"
    judged = [
        Judged(1 << 16, url, "gone", "unique", 1 << 16),
        Judged(99 << 16, "https://late.example/", "late", "unique", 99 << 16),
    ]
    elector, digest = open_elector(tmp_path, "first", EXPIRING), url_digest_of("gone")
    decided = decided_of(judged, 1, EXPIRING, time_of)
    elector.follow(decided)
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


def test_a_url_that_comes_again_before_it_is_told_that_it_expired_begins_anew(tmp_path: Path) -> None:
    url = "https://gone.example/"
    judged = [Judged(page << 16, url, "gone", "unique", page << 16) for page in (1, 99)]
    elector, decided = open_elector(tmp_path, "first", EXPIRING), decided_of(judged, 1, EXPIRING, time_of)
    elector.follow(decided[:-1])
    assert elector.state.expired_from([url_digest_of("gone")]) == [1 << 16]
    elector.follow(decided[-1:])
    (version,) = elector.state.versions([url_digest_of("gone")])
    assert version is not None
    assert (version.cluster, version.since) == (99 << 16, 99 << 16)
    assert elector.state.meta.urls == 1
    elector.state.close()


@pytest.mark.parametrize("by", ["urls", "hosts", "domains"])
def test_what_was_told_of_urls_that_had_expired_is_told_again_without_them(tmp_path: Path, by: str) -> None:
    """Though the judge has no page of them any more: requests alone name them. One has a cluster that ended,
    one was told and not yet replaced, and a third one stays."""
    url, late = "https://www.gone.example/", "https://late.example/"
    judged = [
        Judged(1 << 16, url + "1", "one", "unique", 1 << 16),
        Judged(60 << 16, url + "2", "two", "unique", 60 << 16),
        Judged(120 << 16, late, "late", "unique", 120 << 16),
    ]
    elector = open_elector(tmp_path, "first", EXPIRING)
    decided, topic = decided_of(judged, 7, EXPIRING, time_of), list[Due]()  # each about one record
    for each in decided:
        elector.follow([each])
        if each.decisions.has_rows and each.decisions.end <= 61:
            topic += tell(elector)
    assert [each.record.because for each in topic] == ["expired"]
    host, domain = map(host_hasher(EXPIRING.seed), ("www.gone.example", "gone.example"))
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
    elector.follow(decided)
    named = NamedDigests.of(urls=[url_digest_of("one")])
    elector.forget(forgetting(decided[-1], [], named))
    assert elector.state.meta.forgotten == 0
    assert elector.state.versions([url_digest_of("one")]) != [None]
    elector.state.close()


def test_a_turn_is_refused_without_a_lifetime_and_by_a_state_that_lost_a_version(tmp_path: Path) -> None:
    decided = decided_of(crawl(1, 400), 1, EXPIRING, time_of)
    turn = next(at for at, each in enumerate(decided) if each.decisions.turn is not None)
    endless = open_elector(tmp_path / "endless", "first")
    with pytest.raises(StateError):
        endless.turn(decided[turn])
    endless.state.close()
    elector = open_elector(tmp_path / "state", "first", EXPIRING)
    elector.follow(decided[:turn])
    ((_, digest),) = elector.state.unseen(time_of(999), 1)
    writes = elector.state.store.batch()
    writes.delete(VERSIONS, digest)
    elector.state.write(writes, elector.state.meta)
    with pytest.raises(DamagedStateError, match=f"URL {digest.hex()} was seen with page"):
        elector.follow([each for each in decided[turn:] if each.decisions.turn is not None])
    elector.state.close()
