"""Rule 23: pages that no verdict named for a lifetime expire, at turns between journal records."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from stream.errors import DamagedStateError, StateError
from stream.judge.judge import Judge
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store.rocks import DEFAULT, Store
from tests.judged_crawls import (
    entries_of,
    expected_in_turns,
    judge_all,
    judging,
    mirrors,
    open_state,
    oracle_of,
    timed,
    turn_if_due,
)

LIFETIME = 600
"""Seconds; a slot is one second."""
SIZES = (1, 1, 2, 3, 8)
"""Pages of a journal record."""


def test_rule_23_decisions_that_miss_a_turn_are_refused(tmp_path: Path) -> None:
    options = VerdictOptions(lifetime=LIFETIME)
    entries = [
        dataclasses.replace(entry, time=10**12 + 2_000 * place)
        for place, entry in enumerate(entries_of(mirrors(1, 12), 1, sizes=(1,)))
    ]
    with judging(tmp_path / "state", options, memory=0) as judge:
        with pytest.raises(ValueError, match="a turn is due before journal offset"):
            judge.decide(entries)
        turn = judge.decide_turn(entries[0])
        assert turn is not None
        for change, why in (
            ({"time": -5}, "has log time -5 and cap None"),
            ({"cap": turn.time - 1}, f"has log time {turn.time} and cap {turn.time - 1}"),
            ({"start": 9}, "has journal offset 9, but the state has 0"),
            ({"journal": "cd" * 16}, "has journal cdcd"),
        ):
            with pytest.raises(StateError, match=f"the turn at decisions offset 7 {why}"):
                judge.apply_apart(structs.replace(turn, **change), 7)
        judge.apply_apart(turn, 0)
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
                plain.apply_apart(turn, 7)
            plain.apply(entries[:1], plain.decide(entries[:1]).record())
            whole = plain.decide(entries[1:])
        finally:
            plain.state.close()
        assert len(whole.entries) == len(entries) - 1, "without a lifetime, batches end nowhere"
        forged = structs.replace(whole.record(), options=judge.genesis.options.id)
        with pytest.raises(StateError, match="a turn is due before them"):
            judge.apply(entries[1:], forged)
        turn_if_due(judge, entries[1], None, 9)
        with pytest.raises(StateError, match=f"a turn is due before journal offset {entries[2].offset}"):
            judge.apply(entries[1:], forged)


def test_rule_23_a_state_that_lost_a_record_about_turns_is_damaged(tmp_path: Path) -> None:
    options, pages = VerdictOptions(lifetime=LIFETIME), mirrors(5, 300)
    oracle = oracle_of(options)
    entries = timed(entries_of(pages, 5, sizes=SIZES), 5)
    expected_in_turns(oracle, pages, entries)
    with judging(tmp_path / "state", options, memory=0) as judge:
        judge_all(judge, entries, 5)
        expired = {page.id for page in pages} - oracle.numbers.keys()
        assert expired
        assert not any(map(judge.state.by_page, sorted(expired)[:20]))
    for prefix in (b"turn/mark/", b"turn/forward/", b"turn/hit/a/", b"turn/hit/d/"):
        damaged = tmp_path / prefix.decode().replace("/", "-")
        shutil.copytree(tmp_path / "state", damaged)
        with Store(damaged, 1 << 20) as store:
            key = next(key for key, _ in store.scan(DEFAULT, prefix) if key.startswith(prefix))
            writes = store.batch()
            writes.delete(DEFAULT, key)
            store.write(writes)
            store.flush()
        with pytest.raises(DamagedStateError, match="was written"):
            open_state(damaged, options, memory=0, generation=64)
