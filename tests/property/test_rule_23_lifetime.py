"""Rule 23: pages that no verdict named for a lifetime expire, at turns between journal records."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from stream.errors import DamagedStateError, StateError
from stream.judge.judge import Judge
from stream.judge.log_time import AHEAD_MS
from stream.judge.state import window
from stream.judge.state.state import State
from stream.messages.decision import decode_decisions, encode_decisions
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store.rocks import DEFAULT, Store, tables_of
from tests.judged_crawls import (
    check_deciding_ahead,
    crawl,
    entries_of,
    expected_in_turns,
    flips,
    judge_all,
    mirrors,
    number_late,
    open_state,
    oracle_of,
    redelivered,
    search_few_rows,
    timed,
    turn_if_due,
)
from tests.oracle import Oracle, OraclePage
from tests.url_digests import digest_of_url

LIFETIME = 600
"""Seconds; a slot is one second."""
SIZES = (1, 1, 2, 3, 8)
"""Pages of a journal record."""
OPTIONS = [
    pytest.param(VerdictOptions(lifetime=LIFETIME), id="default"),
    pytest.param(VerdictOptions(lifetime=LIFETIME, bucket_cap=2), id="small-cap"),
    pytest.param(VerdictOptions(lifetime=LIFETIME, compared=2, baselines=3), id="three-baselines"),
    pytest.param(
        VerdictOptions(
            lifetime=LIFETIME, keys="fingerprint", flip_bits=4, flips=2, bucket_cap=3, baselines=1
        ),
        id="probed",
    ),
    pytest.param(structs.replace(VerdictOptions.paper(), lifetime=LIFETIME), id="strict"),
]
SHAPES: dict[str, Callable[[int], list[OraclePage]]] = {
    "sparse": lambda seed: crawl(seed, 500, dense=False),
    "dense": lambda seed: crawl(seed, 500, dense=True, skew=0.3),
    "mirrors": lambda seed: mirrors(seed, 500),
    "flips": lambda seed: flips(seed, 500, 3),
}


def bound_turns(
    monkeypatch: pytest.MonkeyPatch, oracle: Oracle, most: int, rows: int, url_bytes: int
) -> None:
    """Let fewer pages expire in a turn, with fewer URLs, and turns come after fewer rows."""
    monkeypatch.setattr(window, "MOST_EXPIRING", most)
    monkeypatch.setattr(window, "ROWS_BETWEEN", rows)
    monkeypatch.setattr(window, "CARRIED_URL_BYTES", url_bytes)
    oracle.most_expiring, oracle.rows_between, oracle.most_url_bytes = most, rows, url_bytes


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        *(pytest.param(*each.values, None, id=str(each.id)) for each in OPTIONS),
        pytest.param(VerdictOptions(lifetime=LIFETIME), (5, 8, 1 << 20), id="in-bites"),
        pytest.param(VerdictOptions(lifetime=LIFETIME, baselines=3), (40, 8, 1100), id="in-bites-of-urls"),
    ],
)
def test_rule_23_verdicts_equal_the_oracles(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: VerdictOptions,
    shape: str,
    bounds: tuple[int, int, int] | None,
) -> None:
    seed = len(shape) + options.baselines
    pages = SHAPES[shape](seed)
    entries = timed(redelivered(entries_of(pages, seed, sizes=SIZES), pages, seed), seed)
    oracle = oracle_of(options)
    if bounds:
        bound_turns(monkeypatch, oracle, *bounds)
    want = expected_in_turns(oracle, pages, entries)
    found = []
    for cut, memory in ((1, 64 << 20), (2, 0)):
        if cut == 2:
            search_few_rows(monkeypatch)
        verdicts, half = list[tuple[object, ...]](), len(entries) // 2
        for part in (entries[:half], entries[half:]):  # the judge restarts
            state, genesis = open_state(tmp_path / str(cut), options, memory=memory, generation=64)
            try:
                verdicts += judge_all(Judge(state, genesis), part, cut)
                if part[-1] is entries[-1]:
                    check_state(state, oracle)
            finally:
                state.close()
        found.append(verdicts)
    different = [(f, w) for f, w in zip(found[0], want, strict=True) if f != w]
    assert not different, different[:3]
    assert found[1] == want
    check_deciding_ahead(tmp_path, options, entries, seed, memory=0, generation=64)
    assert oracle.oldest.total() > 80, "pages expire"
    assert oracle.carried.total() > 10, "and some are carried"


def check_expiry(expiry: window.Expiry, oracle: Oracle) -> None:
    """What is told of expiry is what the oracle has after the last turn."""
    kinds = ("unique", "duplicate")
    passed = [
        time for time, counts in oracle.marks if all(counts[kind] <= oracle.oldest[kind] for kind in kinds)
    ]
    due = [each for each in oracle.marks if each[0] <= oracle.turned - oracle.lifetime]
    late = sum(max(0, due[-1][1][kind] - oracle.oldest[kind]) for kind in kinds) if due else 0
    assert expiry == (passed[-1], late, due[-1][0] - passed[-1] if late else 0)
    assert (late > 0) == oracle.is_behind


def check_state(state: State, oracle: Oracle) -> None:
    """What has not expired is what the oracle keeps, by the same numbers."""
    assert state.window is not None
    assert state.first == (oracle.oldest["unique"], oracle.oldest["duplicate"])
    assert state.next == (oracle.counts["unique"], oracle.counts["duplicate"])
    check_expiry(state.window.expiry, oracle)
    for page in random.Random(1).sample([*oracle.numbers], 20):
        found = state.by_page(page)
        assert found is not None
        assert found.number == oracle.numbers[page]
    for url, known in oracle.baselines.items():
        kept = state.baselines(digest_of_url(url))
        assert [(each.page, each.cluster, each.number) for each in kept] == [
            (page.id, cluster, oracle.numbers[page.id]) for page, cluster in known
        ]
        assert [each.url for each in kept] == [page.url for page, _ in known]
        for each in kept:
            live = bool(state.tables.is_alive(np.array([each.cluster_anchor]))[0])
            assert live == (each.cluster in oracle.live)
            if live:
                assert each.cluster_anchor == oracle.numbers[each.cluster]


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[4]])
def test_rule_23_beyond_numbers_of_32_bits(tmp_path: Path, options: VerdictOptions) -> None:
    pages = mirrors(3, 500)
    entries = timed(entries_of(pages, 3, sizes=SIZES), 3)
    oracle = number_late(oracle_of(options))
    want = expected_in_turns(oracle, pages, entries)
    state, genesis = open_state(tmp_path / "late", options, memory=0, generation=64, late=True)
    try:
        assert judge_all(Judge(state, genesis), entries, 3) == want
        check_state(state, oracle)
    finally:
        state.close()
    assert oracle.carried["unique"] > 3


def test_rule_23_a_clock_that_is_years_ahead_expires_nothing(tmp_path: Path) -> None:
    """Append times count at most as ten minutes after the clock of the judge, which decisions record. A judge
    that only applies them needs no clock."""
    options = VerdictOptions(lifetime=LIFETIME)
    pages, rng = mirrors(4, 500), random.Random(4)
    entries = timed(entries_of(pages, 4, sizes=SIZES), 4)
    now = {entry.offset: entry.time for entry in entries}
    years = 5 * 365 * 86_400_000
    entries = [
        dataclasses.replace(each, time=each.time + years) if rng.random() < 0.05 else each for each in entries
    ]
    caps = dict[int, int | None]()
    leader, follower = (
        Judge(*open_state(tmp_path / name, options, memory=0, generation=64)) for name in ("one", "two")
    )
    found, bound, place = list[bytes](), 0, 0
    try:
        while place < len(entries):
            part = entries[place : place + rng.choice([1, 2, 7])]
            cap = now[part[0].offset] + AHEAD_MS
            turn = turn_if_due(leader, part[0], cap, place)
            if turn is not None:
                assert turn.turn is not None
                follower.apply_turn(turn, turn.turn, place)
            decided = leader.decide(part, cap=cap)
            record = decode_decisions(encode_decisions(decided.record()), place)
            assert record.time <= now[decided.entries[0].offset] + AHEAD_MS or record.cap is None
            caps |= dict.fromkeys((each.offset for each in decided.entries), record.cap)
            bound += record.cap is not None
            found += decided.json()
            assert follower.json(decided.entries, record) == decided.json()
            for judge in (leader, follower):
                judge.apply(decided.entries, record, place)
            place += len(decided.entries)
        assert leader.state.digest() == follower.state.digest()
        assert bound > 3
        oracle = oracle_of(options)
        expected_in_turns(oracle, pages, entries, lambda entry: caps[entry.offset])
        check_state(leader.state, oracle)
        assert leader.state.time < 10**12 + years
    finally:
        for judge in (leader, follower):
            judge.state.close()


def test_rule_23_decisions_that_miss_a_turn_are_refused(tmp_path: Path) -> None:
    options = VerdictOptions(lifetime=LIFETIME)
    entries = [
        dataclasses.replace(entry, time=10**12 + 2_000 * place)
        for place, entry in enumerate(entries_of(mirrors(1, 12), 1, sizes=(1,)))
    ]
    state, genesis = open_state(tmp_path / "state", options, memory=0, generation=64)
    judge = Judge(state, genesis)
    try:
        with pytest.raises(ValueError, match="a turn is due before journal offset"):
            judge.decide(entries)
        turn = judge.decide_turn(entries[0])
        assert turn is not None
        assert turn.turn is not None
        for change, why in (
            ({"time": -5}, "has log time -5 and cap None"),
            ({"cap": turn.time - 1}, f"has log time {turn.time} and cap {turn.time - 1}"),
            ({"start": 9}, "has journal offset 9, but the state has 0"),
            ({"journal": "cd" * 16}, "has journal cdcd"),
        ):
            with pytest.raises(StateError, match=f"the turn at decisions offset 7 {why}"):
                judge.apply_turn(structs.replace(turn, **change), turn.turn, 7)
        judge.apply_turn(turn, turn.turn, 0)
        first = judge.decide(entries)
        assert len(first.entries) == 1, "the next record is in another slot"
        record = first.record()
        for changed, why in (
            (structs.replace(record, time=record.time + 1), f"log time {record.time + 1}; the records have"),
            (structs.replace(record, cap=record.time + 1), "which binds nothing"),
        ):
            with pytest.raises(StateError, match=why):
                judge.apply(first.entries, changed)
        judge.apply(first.entries, record)
        plain = Judge(*open_state(tmp_path / "plain", VerdictOptions(), memory=0, generation=64))
        try:
            with pytest.raises(StateError, match="turns, but no lifetime was given"):
                plain.apply_turn(turn, turn.turn, 7)
            plain.apply(entries[:1], plain.decide(entries[:1]).record())
            whole = plain.decide(entries[1:])
        finally:
            plain.state.close()
        assert len(whole.entries) == len(entries) - 1, "without a lifetime, batches end nowhere"
        forged = structs.replace(whole.record(), options=genesis.options.id)
        with pytest.raises(StateError, match="a turn is due before them"):
            judge.apply(entries[1:], forged)
        turn_if_due(judge, entries[1], None, 9)
        with pytest.raises(StateError, match=f"a turn is due before journal offset {entries[2].offset}"):
            judge.apply(entries[1:], forged)
    finally:
        state.close()


def test_rule_23_a_state_that_lost_a_record_about_turns_is_damaged(tmp_path: Path) -> None:
    options, pages = VerdictOptions(lifetime=LIFETIME), mirrors(5, 300)
    state, genesis = open_state(tmp_path / "state", options, memory=0, generation=64)
    oracle = oracle_of(options)
    entries = timed(entries_of(pages, 5, sizes=SIZES), 5)
    expected_in_turns(oracle, pages, entries)
    try:
        judge_all(Judge(state, genesis), entries, 5)
        expired = {page.id for page in pages} - oracle.numbers.keys()
        assert expired
        assert not any(map(state.by_page, sorted(expired)[:20]))
    finally:
        state.close()
    for prefix in (b"turn/mark/", b"turn/forward/", b"turn/hit/a/", b"turn/hit/d/"):
        damaged = tmp_path / prefix.decode().replace("/", "-")
        shutil.copytree(tmp_path / "state", damaged)
        with Store(damaged, tables_of(damaged), 1 << 20) as store:
            key = next(key for key, _ in store.scan(DEFAULT, prefix) if key.startswith(prefix))
            writes = store.batch()
            writes.delete(DEFAULT, key)
            store.write(writes)
            store.flush()
        with pytest.raises(DamagedStateError, match="was written"):
            open_state(damaged, options, memory=0, generation=64)
