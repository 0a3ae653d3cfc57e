"""The judge against the oracle where templates fill pairs of minima, and triples below them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from stream.judge.batch import Entry
from stream.judge.decision.decide import Effort
from stream.judge.judge import Judge
from stream.messages.decision import decode_decisions, encode_decisions
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    check_deciding_ahead,
    crawl,
    crowd,
    entries_of,
    expected,
    judge_all,
    open_state,
    oracle_of,
    redelivered,
    search_as_for_spam,
    templates,
)
from tests.oracle import Oracle

PAIRS = 10
CRAWLS = {
    "templates": lambda seed: templates(seed, 700),
    "crowd": lambda seed: crowd(seed, 700),
    "crawl-and-templates": lambda seed: [
        page
        for pair in zip(crawl(seed, 400, dense=True, skew=0.5), templates(seed, 400), strict=True)
        for page in pair
    ],
}


def fill(oracle: Oracle) -> Counter[str]:
    """How many triples are not empty, full, and overfull; of pairs, how many are full."""
    cap, counts = oracle.cap, Counter[str]()
    for (table, _), load in oracle.load.items():
        kind = "pair" if table < PAIRS else "triple"
        counts += Counter(
            {f"{kind} in use": load > 0, f"{kind} full": load >= cap, f"{kind} over": load > cap}
        )
    return counts


@pytest.mark.parametrize("name", CRAWLS)
@pytest.mark.parametrize(
    "options",
    [
        VerdictOptions(bucket_cap=1),
        VerdictOptions(bucket_cap=2),
        VerdictOptions(bucket_cap=5),
        VerdictOptions(bucket_cap=2, compared=3),
        VerdictOptions(bucket_cap=2, baselines=1, distance=6),
    ],
    ids=["1", "2", "5", "2-compared-3", "2-baselines-1"],
)
@pytest.mark.parametrize(("memory", "generation"), [(64 << 20, 1 << 20), (0, 16)], ids=["hot", "rocksdb"])
def test_verdicts_equal_the_oracles_where_templates_fill_triples(
    name: str, options: VerdictOptions, memory: int, generation: int, tmp_path: Path
) -> None:
    seed = len(name) + options.bucket_cap
    pages = CRAWLS[name](seed)
    entries = redelivered(entries_of(pages, seed), pages, seed)
    oracle = oracle_of(options)
    want = expected(oracle, pages)
    state, genesis = open_state(tmp_path / "state", options, memory=memory, generation=generation)
    try:
        found = judge_all(Judge(state, genesis), entries, seed)
        assert state.tables.stats.triple_entries > 100
    finally:
        state.close()
    different = [(f, w) for f, w in zip(found, want, strict=True) if f != w]
    assert not different, different[:3]
    counts = fill(oracle)
    assert counts["triple in use"] > 50, counts
    assert counts["triple full"] > (0 if name == "crowd" else 10), counts
    assert counts["triple over"] > 0 or name == "crowd", counts
    assert counts["pair over"] == 0, counts
    assert sum(each[-1] is not None for each in want) > 20, "anchors are superseded"


@pytest.mark.parametrize("compared", [3, 64])
def test_verdicts_equal_the_oracles_where_many_share_a_triple(compared: int, tmp_path: Path) -> None:
    """The ends of long chains are searched in another way than their beginnings, and batches after lists were
    cut in another way than those before."""
    options, pages = VerdictOptions(bucket_cap=80, compared=compared), templates(compared, 2000)
    entries = entries_of(pages, 3)
    oracle = oracle_of(options)
    want = expected(oracle, pages)
    state, genesis = open_state(tmp_path / "state", options, memory=64 << 20, generation=1 << 20)
    try:
        found = judge_all(Judge(state, genesis), entries, 3)
    finally:
        state.close()
    different = [(f, w) for f, w in zip(found, want, strict=True) if f != w]
    assert not different, different[:3]
    assert fill(oracle)["triple full"] > 10


def apply_all(judge: Judge, entries: list[Entry], decisions: list[tuple[int, int, bytes]]) -> None:
    for first, end, record in decisions:
        judge.apply(entries[first:end], decode_decisions(record, first), end)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_a_standby_that_applies_decisions_has_the_state_of_the_judge(
    memory: int, late: bool, tmp_path: Path
) -> None:
    """In whatever batches, with reopened states, and judged anew from the middle on."""
    options, pages = VerdictOptions(bucket_cap=2), templates(5, 700)
    entries = redelivered(entries_of(pages, 5), pages, 5)
    states = [
        open_state(tmp_path / f"{i}", options, memory=memory, generation=40, late=late)[0] for i in range(3)
    ]
    genesis = open_state(tmp_path / "genesis", options, memory=memory, generation=40)[1]
    rng, decisions, first = random.Random(5), [], 0
    judge = Judge(states[0], genesis)
    while first < len(entries):
        part = entries[first : first + rng.choice([1, 2, 7, 20])]
        record = judge.decide(part).record()
        judge.apply(part, record, first + len(part))
        decisions.append((first, first + len(part), encode_decisions(record)))
        first += len(part)
    half = len(decisions) // 2
    try:
        apply_all(Judge(states[1], genesis), entries, decisions[:half])
        states[1].close()
        states[1], _ = open_state(tmp_path / "1", options, memory=1 << 20, generation=40)
        follower = Judge(states[1], genesis)
        rest = entries[decisions[half][0] :]
        decided = follower.decide(rest)
        follower.apply(rest, decided.record(), len(entries))
        whole = Judge(states[2], genesis)
        whole.apply(entries, whole.decide(entries).record(), len(entries))
        assert len({state.digest() for state in states}) == 1
        assert len({state.tables.stats.triple_entries for state in states}) == 1
        assert states[0].tables.stats.triple_entries > 300
    finally:
        for state in states:
            state.close()


@pytest.mark.parametrize("memory", [1 << 20, 0])
def test_deciding_ahead_of_the_store_opens_the_same_triples(memory: int, tmp_path: Path) -> None:
    options, pages = VerdictOptions(bucket_cap=2), templates(7, 700)
    entries = entries_of(pages, 7)
    stats = check_deciding_ahead(tmp_path, options, entries, 7, memory=memory, generation=50)
    assert stats.triple_entries > 300


@pytest.mark.parametrize("most", [0, 40])
def test_nor_does_it_matter_how_little_of_a_batch_is_judged_at_once(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_as_for_spam(monkeypatch)
    options, pages = VerdictOptions(bucket_cap=2), templates(11, 700)
    entries = entries_of(pages, 11)
    want = expected(oracle_of(options), pages)
    state, genesis = open_state(tmp_path / "state", options, memory=1 << 20, generation=50)
    verdicts, first = [], 0
    names = {int(each): each.name.lower() for each in Verdict}
    try:
        judge = Judge(state, genesis)
        while first < len(entries):
            decided = judge.decide(entries[first : first + 9], Effort(most=most))
            columns = decided.verdicts.columns
            verdicts += list(
                zip(map(names.get, columns.verdict.tolist()), columns.cluster.tolist(), strict=True)
            )
            first += len(decided.entries)
            judge.apply(decided.entries, decided.record(), len(entries))
    finally:
        state.close()
    assert verdicts == [(verdict, cluster) for _, verdict, _, cluster, *_ in want]
