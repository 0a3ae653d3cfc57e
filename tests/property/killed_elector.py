"""An elector that is killed again and again while it follows judged pages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stream.elector.elector import Due, Elector, TopicRecord
from stream.elector.layout import NOBODY
from stream.judge.batch import Decided
from stream.messages.journal import Genesis
from tests.elected import open_elector, read_back
from tests.genesis import JOURNAL
from tests.property import best_oracle
from tests.property.best_oracle import Judged, url_of


def elect_killed_again_and_again(
    path: Path, elect: str, decided: Sequence[Decided], seed: int, genesis: Genesis | None = None
) -> tuple[Elector, list[Due]]:
    """Return an elector that has told all, and the records on its topic.

    It is killed before and after records are written, before and after the state is, and some states are lost
    or older than the topic.
    """
    rng, topic, flushed, ends = random.Random(seed), list[Due](), list[Path](), Counter[str]()
    elector = open_elector(path / "0", elect, genesis)
    while elector.state.meta.decided < len(decided):
        at = elector.state.meta.decided
        elector.follow(decided[at : at + rng.choice((1, 1, 2))])
        if rng.random() < 0.1:
            flushed.append(path / f"flushed-{at}-{len(topic)}-{rng.random()}")
            elector.state.store.checkpoint(flushed[-1])
        if (rng.random() < 0.5 and not _elect(elector, topic, rng)) or rng.random() < 0.1:
            elector.state.close()
            state = elector.state.store.path
            ends["killed"] += 1
            if rng.random() < 0.2:
                state = path / f"{ends['killed']}"
                ends["lost"] += 1
            elif flushed and rng.random() < 0.7:
                state = flushed.pop()
                ends["older"] += 1
            elector = open_elector(state, elect, genesis)
            _take_over(elector, topic, rng)
    while elector.due(1):
        _elect(elector, topic, rng)
    assert ends["killed"] > 3
    assert ends["older"] or ends["lost"]
    return elector, topic


def _elect(elector: Elector, topic: list[Due], rng: random.Random) -> bool:
    """Tell what is due; whether it was not killed."""
    while due := elector.due(rng.choice((1, 5, 100))):
        if rng.random() < 0.15:
            return False
        topic += due
        if rng.random() < 0.3:
            return False
        elector.tell(due, {0: len(topic)})
    return True


def _take_over(elector: Elector, topic: Sequence[Due], rng: random.Random) -> None:
    """As a new process reads the topic, one partition after the other. At some time partitions were added, so
    the records of a cluster may be in two."""
    known, added = elector.state.meta.positions.get(0, 0), rng.randrange(len(topic) + 1)
    numbered = list(enumerate(topic))[known:]
    numbered.sort(key=lambda each: (each[1].cluster * 7 + (each[0] >= added)) % 3)
    while numbered:
        size = rng.choice((1, 10, 100))
        part = [TopicRecord(read_back(each), each.digest, each.was, "best") for _, each in numbered[:size]]
        assert all((each.record.best is None) == (each.digest == NOBODY) for each in part)
        assert all((each.record.was is None) == (each.was == NOBODY) for each in part)
        numbered = numbered[size:]
        elector.take_over(part, {} if numbered else {0: len(topic)})


def check_kept(topic: Sequence[Due], judged: Sequence[Judged], every: Sequence[Judged], elect: str) -> None:
    """The last record of each cluster names the page that the oracle keeps; one that has none keeps its first
    page. `every` are the judged pages, and what turns did to them."""
    last = {each.record.cluster: read_back(each) for each in topic}
    pages, keys = {each.page: each for each in judged}, {each.url: url_of(each) for each in judged}
    for cluster, page in best_oracle.kept(every, elect).items():
        name = best_oracle.show(cluster, JOURNAL[:8])
        best = last[name].best if name in last else pages[cluster]
        assert (keys[best.url] if best else None) == url_of(page), name
