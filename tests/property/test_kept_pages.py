"""An index that follows verdicts and the topic `best` alone has the pages that are kept, at every pause."""

from __future__ import annotations

import json
import random
import runpy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from stream.messages.best import BestRecord, decode_best, encode_best
from tests.documented import ROOT
from tests.property.best_oracle import (
    POLICIES,
    Judged,
    Told,
    crawl,
    kept,
    record_of,
    show,
    tell,
    url_of,
    verdict_of,
)

PAGES, PARTITIONS = 300, 3
Index: Any = runpy.run_path(str(ROOT / "docs" / "examples" / "keep_index.py"))["Index"]


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
        return {show(cluster, "9f576ade"): url_of(page) for cluster, page in now}


def read(index: Any, verdicts: list[Judged], records: list[BestRecord], rng: random.Random) -> None:
    """Read both topics, each in its order."""
    of = [[json.dumps(verdict_of(each)).encode() for each in verdicts], [*map(encode_best, records)]]
    while any(of):
        which = rng.choice([number for number in (0, 1) if of[number]])
        value = json.loads(of[which].pop(0))
        (index.read_best if which else index.read_verdict)(value)


def found(index: Any, judged: list[Judged]) -> dict[str, object]:
    urls = {each.url: url_of(each) for each in judged}
    return {cluster: url and urls[url] for cluster, (url, _) in index.clusters.items()}


def pauses(topics: Topics, seed: int) -> Iterator[list[Judged]]:
    """Publish a crawl, and yield what is published at each pause."""
    pages = crawl(seed, PAGES)
    while pages:
        size = topics.rng.choice((1, 5, 20, 60))
        now, pages = pages[:size], pages[size:]
        topics.pause(now)
        yield now


@pytest.mark.parametrize("elect", POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_an_index_that_follows_both_topics_has_the_pages_that_are_kept(elect: str, seed: int) -> None:
    topics, index, at = Topics(elect, random.Random(seed)), Index({}), 0
    for verdicts in pauses(topics, seed):
        read(index, verdicts, topics.records[at:], topics.rng)
        at = len(topics.records)
        assert found(index, topics.judged) == topics.wanted()
    assert None in found(index, topics.judged).values(), "some cluster lost its last page"
    assert any(each.because == "grew" for each in topics.records)
    assert len({each.cluster for each in topics.records}) < len(index.clusters)


@pytest.mark.parametrize("elect", POLICIES)
def test_a_reader_that_starts_late_reads_twice_or_was_away_has_them_too(elect: str) -> None:
    topics = Topics(elect, random.Random(elect))
    away, seen = Index({}), 0
    for _ in pauses(topics, 7):
        if topics.rng.random() < 0.2:  # it was away, and missed records that were compacted meanwhile
            read(away, topics.judged[seen:], topics.compacted(), topics.rng)
            seen = len(topics.judged)
            assert found(away, topics.judged) == topics.wanted()
        late = Index({})
        read(late, topics.judged, topics.compacted(), topics.rng)
        assert found(late, topics.judged) == topics.wanted()
        verdicts, records = (topics.rng.randrange(len(each) + 1) for each in (topics.judged, topics.records))
        read(late, topics.judged[verdicts:], topics.records[records:], topics.rng)
        assert found(late, topics.judged) == topics.wanted()


def test_a_record_is_read_as_it_was_written() -> None:
    topics = Topics("quality", random.Random(1))
    for _ in pauses(topics, 1):
        pass
    for each in topics.records:
        assert decode_best(encode_best(each), "best partition 0 offset 0") == each
        assert each.place == tuple(map(int, msgspec.to_builtins(each)["as_of"].split(".")[1:]))
