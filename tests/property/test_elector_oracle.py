"""The elector against the oracle, which looks at all verdicts so far, at any batch cut."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream.elector.judged_pages import Decided
from stream.messages.best import BestRecord
from tests.elected import decided_of, open_elector, tell_all
from tests.genesis import JOURNAL
from tests.property import best_oracle
from tests.property.best_oracle import POLICIES, Judged, crawl, members, record_of, tell, url_of
from tests.property.killed_elector import check_kept, elect_killed_again_and_again

PREFIX = JOURNAL[:8]
SEEDS = range(6)


@pytest.mark.parametrize("elect", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_told_is_what_the_oracle_tells(tmp_path: Path, elect: str, seed: int) -> None:
    judged, rng = crawl(seed, 400), random.Random(seed)
    elector, before, because = open_elector(tmp_path, elect), dict[int, best_oracle.Told](), Counter[str]()
    left = decided_of(judged, seed)
    while left:
        size = rng.choice((1, 2, 9))
        batch, left = left[:size], left[size:]
        elector.apply(batch)
        if left and rng.random() < 0.5:
            continue  # no time yet
        so_far = seen(batch, judged)
        want = sorted(tell(before, so_far, elect), key=lambda each: each.cluster)
        found = tell_all(elector, rng.choice((1, 3, 1000)))
        assert list(map(fields, found)) == [fields(record_of(each, PREFIX)) for each in want]
        assert [each.because for each in found] == [reason(each, before, so_far) for each in want]
        before.update({each.cluster: each for each in want})
        because.update(each.because for each in found)
        if rng.random() < 0.2:
            elector.state.close()
            elector = open_elector(tmp_path, elect)
    elector.state.close()
    assert "left" in because
    assert len(because) > 1


def seen(batch: Sequence[Decided], judged: Sequence[Judged]) -> list[Judged]:
    """The pages that are judged up to the end of a batch."""
    return [each for each in judged if each.page >> 16 < batch[-1].decisions.end]


def fields(record: BestRecord) -> dict[str, Any]:
    """Without `because` and the time, which the oracle's records do not have exactly."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    del found["because"], found["decided_at"]
    return found


def reason(told: best_oracle.Told, before: dict[int, best_oracle.Told], judged: Sequence[Judged]) -> str:
    """Why something is told, by its definition."""
    last, of_cluster = before.get(told.cluster), members(judged)[told.cluster]
    if url_of(told.best) == url_of(told.was):
        return "grew"
    stay = {url_of(each.newest): each.since for each in of_cluster}
    if told.was is not None and url_of(told.was) not in stay:
        return "left"
    return "joined" if stay[url_of(told.best)] > (last.as_of if last else told.cluster) else "better"


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


@pytest.mark.parametrize("elect", POLICIES)
def test_a_large_cluster_keeps_the_page_that_the_oracle_keeps(tmp_path: Path, elect: str) -> None:
    judged = crowded(2, 12_000)
    elector, told, decided = open_elector(tmp_path, elect), dict[str, BestRecord](), decided_of(judged, 2)
    for start in range(0, len(decided), 300):
        batch = decided[start : start + 300]
        elector.apply(batch)
        told |= {each.cluster: each for each in tell_all(elector)}
        so_far = seen(batch, judged)
        pages, keys = ({each.page: each for each in so_far}, {each.url: url_of(each) for each in so_far})
        for cluster, page in best_oracle.kept(so_far, elect).items():
            name = best_oracle.show(cluster, PREFIX)
            best = told[name].best if name in told else pages[cluster]
            assert (keys[best.url] if best else None) == url_of(page), name
    elector.state.close()
    assert max(len(each) for each in members(judged).values()) > 1000


@pytest.mark.parametrize("elect", POLICIES)
def test_the_state_does_not_depend_on_batch_cuts(tmp_path: Path, elect: str) -> None:
    judged, rng, digests = crawl(11, 500), random.Random(5), set[str]()
    decided = decided_of(judged, 11)
    half = len(decided) // 2
    for name, sizes in (("one", (1,)), ("all", (1000,)), ("some", (1, 3, 10))):
        elector = open_elector(tmp_path / name, elect)
        for part in (decided[:half], decided[half:]):
            while part:
                size = rng.choice(sizes)
                elector.apply(part[:size])
                part = part[size:]
            tell_all(elector)
        digests.add(elector.state.store.digest())
        elector.state.close()
    assert len(digests) == 1


@pytest.mark.parametrize("elect", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_after_any_kill_the_topic_has_the_kept_pages(tmp_path: Path, elect: str, seed: int) -> None:
    judged = crawl(seed + 50, 600)
    elector, topic = elect_killed_again_and_again(tmp_path, elect, decided_of(judged, seed), seed)
    elector.state.close()
    check_kept(topic, judged, judged, elect)
