"""From pages to kept pages: an elector follows what a judge decides, whose verdicts the oracle reads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stream.elector.elector import MOST_UNSEEN, Elector
from stream.elector.state import State
from stream.judge.batch import Decided
from stream.judge.judge import Judge
from stream.messages.decision import decode_decisions, encode_decisions
from stream.messages.verdict_options import VerdictOptions
from tests.elected import KAFKA, tell_all
from tests.judged_crawls import NAMES, crawl, entries_of, open_state, redelivered, timed, turn_if_due
from tests.night import by_night
from tests.property.best_oracle import POLICIES, Judged, kept, show, unseen, url_of


@pytest.mark.parametrize(
    ("elect", "baselines", "lifetime"),
    [
        ("first", 1, None),
        ("longest", 3, None),
        ("newest", 2, 600),
        *by_night((elect, 2, 600) for elect in POLICIES),
    ],
)
def test_kept_pages_of_a_judged_crawl_are_those_of_its_verdicts(
    tmp_path: Path, elect: str, baselines: int, lifetime: int | None
) -> None:
    """Recrawls, changes, superseded anchors, orphans that are judged again, rejects, re-deliveries, and pages
    and URLs that expire."""
    rng = random.Random(baselines)
    pages = crawl(baselines, 500, dense=True)
    entries = timed(redelivered(entries_of(pages, 1), pages, 1), 1)
    options = VerdictOptions(baselines=baselines, lifetime=lifetime)
    state, genesis = open_state(tmp_path / "judge", options, memory=1 << 20, generation=64)
    judge, judged, at = Judge(state, genesis), list[Judged](), 0
    times, expired = dict[int, int](), 0
    elector = Elector(State.open(tmp_path / "elector", genesis, KAFKA, elect, cache=8 << 20), genesis)
    last: dict[str, object] = {}
    by_id = {page.id: page for page in pages}
    try:
        while at < len(entries):
            part = entries[at : at + rng.choice((1, 3, 8))]
            turn = turn_if_due(judge, part[0], None, at)
            if turn is not None:
                assert lifetime is not None
                elector.turn(Decided([], turn, at))
                until = turn.time - 1000 * lifetime
                gone = unseen(judged, until, MOST_UNSEEN, lambda page: times[page.page])
                judged, expired = judged + gone, expired + len(gone)
                assert elector.state.meta.time == state.time
            decided = judge.decide(part)
            part = list(decided.entries)
            at += len(part)
            record = decode_decisions(encode_decisions(decided.record()), at)
            judge.apply(part, record, at)
            elector.apply([Decided(part, record, at)])
            assert elector.state.meta.time == state.time
            if len(decided.batch):
                assert elector.state.meta.page_time == decided.batch.time[-1]
            times.update(zip(decided.batch.page.tolist(), decided.batch.time.tolist(), strict=True))
            columns = decided.verdicts.columns
            for page, verdict, cluster in zip(
                decided.batch.page.tolist(),
                columns.verdict.tolist(),
                columns.cluster.tolist(),
                strict=True,
            ):
                name, url = NAMES[verdict], by_id[page].url
                of = cluster if name not in ("insufficient", "rejected") else None
                judged.append(Judged(page, url or "", url, name, of))
            if rng.random() < 0.4:
                continue
            last |= {each.cluster: each.best.url if each.best else None for each in tell_all(elector)}
            check(elect, judged, last, genesis.journal[:8])
        assert (sum(state.first) > 0) == (expired > 0) == (lifetime is not None)
    finally:
        state.close()
        elector.state.close()
    last_clusters = {each.cluster for each in judged if each.cluster == each.page}
    assert len(last) < len(last_clusters)
    assert None in last.values()


def check(elect: str, judged: list[Judged], last: dict[str, object], prefix: str) -> None:
    urls = {each.page: each.url for each in judged}
    for cluster, page in kept(judged, elect).items():
        name = show(cluster, prefix)
        wanted = url_of(page)
        assert last.get(name, urls[cluster]) == (page.url if page else None), (name, wanted)
