"""The elector against the oracle, which looks at all verdicts so far, at any batch cut, with and without a
lifetime: then it drops URLs that were not seen for that long at each turn."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream.elector import elector as elector_module
from stream.elector.elector import Elector
from stream.judge.batch import Decided
from stream.messages.best import BestRecord
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store.rocks import MEMBERS, SEEN, VERSIONS
from tests.elected import decided_of, open_elector, tell_all
from tests.genesis import JOURNAL, genesis_of
from tests.night import by_night
from tests.property import best_oracle
from tests.property.best_oracle import POLICIES, Judged, crawl, members, record_of, unseen, url_of
from tests.property.killed_elector import check_kept, elect_killed_again_and_again

PREFIX = JOURNAL[:8]
LIFETIME = 600
"""Seconds."""
ENDLESS, EXPIRING = genesis_of(), genesis_of(options=VerdictOptions(lifetime=LIFETIME))
GENESES = {"endless": ENDLESS, "expiring": EXPIRING}


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


def fields(record: BestRecord) -> dict[str, Any]:
    """Without `because` and the time, which the oracle's records do not have exactly."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    del found["because"], found["decided_at"]
    return found


@pytest.mark.parametrize(
    ("elect", "life", "seed", "most"),
    [
        *((elect, "endless", place, 0) for place, elect in enumerate(POLICIES)),
        ("first", "expiring", 1, 1 << 16),
        ("longest", "expiring", 3, 2),
        *by_night((elect, "endless", seed, 0) for elect in POLICIES for seed in range(5, 10)),
        *by_night(
            (elect, "expiring", seed, 2 if seed == 3 else 1 << 16) for elect in POLICIES for seed in (2, 3)
        ),
    ],
)
def test_what_is_told_is_what_the_oracle_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elect: str, life: str, seed: int, most: int
) -> None:
    monkeypatch.setattr(elector_module, "MOST_UNSEEN", most)
    genesis, is_endless = GENESES[life], life == "endless"
    judged, rng = crawl(seed, 300 if is_endless else 450), random.Random(seed)
    elector, oracle = open_elector(tmp_path, elect, genesis), Oracle(judged, most)
    before, because = dict[int, best_oracle.Told](), Counter[str]()
    left = decided_of(judged, seed, genesis, time_of)
    while left:
        size = rng.choice((1, 2, 9))
        batch, left = left[:size], left[size:]
        elector.follow(batch)
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
            elector = open_elector(tmp_path, elect, genesis)
    check_content(elector, oracle)
    elector.state.close()
    assert because["left"] > 0
    assert (because["expired"] > 5, oracle.left > 20) == (not is_endless,) * 2


def check_content(elector: Elector, oracle: Oracle) -> None:
    """Nothing is left of URLs that are gone, once it was told."""
    kept = [each.newest for of_cluster in members(oracle.seen).values() for each in of_cluster]
    state = elector.state
    assert state.meta.urls == len(kept)
    for family in (VERSIONS, MEMBERS):
        assert sum(1 for _ in state.store.scan(family)) == len(kept), family
    pairs = state.store.scan(SEEN)
    seen = [(int.from_bytes(key, "big"), int.from_bytes(value[:8], "little")) for key, value in pairs]
    expiring = kept if elector.genesis.options.lifetime else []
    assert seen == sorted((each.page, time_of(each.page >> 16)) for each in expiring)


def crowded(seed: int, n: int) -> list[Judged]:
    """A crawl in which half of all pages are in one cluster."""
    judged, rng = crawl(seed, n), random.Random(seed)
    first = next(each.page for each in judged if each.verdict == "unique")
    return [
        dataclasses.replace(each, verdict="recrawl", cluster=first)
        if each.verdict in ("duplicate", "recrawl") and rng.random() < 0.8 and each.cluster != each.page
        else each
        for each in judged
    ]


@pytest.mark.parametrize(
    ("elect", "pages"), [("longest", 2_500), *by_night((each, 12_000) for each in POLICIES)]
)
def test_a_large_cluster_keeps_the_page_that_the_oracle_keeps(tmp_path: Path, elect: str, pages: int) -> None:
    judged = crowded(2, pages)
    elector, told, decided = open_elector(tmp_path, elect), dict[str, BestRecord](), decided_of(judged, 2)
    for start in range(0, len(decided), 300):
        batch = decided[start : start + 300]
        elector.apply(batch)
        told |= {each.cluster: each for each in tell_all(elector)}
        so_far = [each for each in judged if each.page >> 16 < batch[-1].decisions.end]
        of_page, keys = ({each.page: each for each in so_far}, {each.url: url_of(each) for each in so_far})
        for cluster, page in best_oracle.kept(so_far, elect).items():
            name = best_oracle.show(cluster, PREFIX)
            best = told[name].best if name in told else of_page[cluster]
            assert (keys[best.url] if best else None) == url_of(page), name
    elector.state.close()
    assert max(len(each) for each in members(judged).values()) > pages / 12


@pytest.mark.parametrize(
    ("elect", "life"),
    [
        *(("first", each) for each in GENESES),
        *by_night((elect, life) for elect in POLICIES[1:] for life in GENESES),
    ],
)
def test_the_state_does_not_depend_on_batch_cuts(tmp_path: Path, elect: str, life: str) -> None:
    """Nor does what is told in the end, though a URL may leave and come back before."""
    judged, rng, found = crawl(11, 500), random.Random(5), list[tuple[str, list[BestRecord]]]()
    decided = decided_of(judged, 11, GENESES[life], time_of)
    for name, sizes in (("one", (1,)), ("all", (1000,)), ("some", (1, 3, 10))):
        elector, told, left = open_elector(tmp_path / name, elect, GENESES[life]), list[BestRecord](), decided
        for end in (200, 1000):
            part, left = left[:end], left[end:]
            while part:
                size = rng.choice(sizes)
                elector.follow(part[:size])
                part = part[size:]
            told += tell_all(elector)
        found.append((elector.state.store.digest(), told))
        elector.state.close()
    assert found[0] == found[1] == found[2]
    assert any(each.because == "expired" for each in found[0][1]) == (life == "expiring")


@pytest.mark.parametrize(
    ("elect", "life", "seed"),
    [
        ("longest", "endless", 1),
        ("first", "expiring", 2),
        *by_night((elect, life, seed) for elect in POLICIES for life in GENESES for seed in (3, 4)),
    ],
)
def test_after_any_kill_the_topic_has_the_kept_pages(
    tmp_path: Path, elect: str, life: str, seed: int
) -> None:
    genesis, judged = GENESES[life], crawl(seed + 50, 500)
    decided = decided_of(judged, seed, genesis, time_of)
    elector, topic = elect_killed_again_and_again(tmp_path, elect, decided, seed, genesis)
    oracle = Oracle(judged, elector_module.MOST_UNSEEN)
    oracle.follow(decided)
    check_content(elector, oracle)
    elector.state.close()
    check_kept(topic, judged, oracle.seen, elect)
    assert any(each.record.because == "expired" for each in topic) == (life == "expiring")
