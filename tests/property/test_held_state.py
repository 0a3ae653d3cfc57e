"""A state whose tables were dropped is the same in all else, wherever it is copied, and whole once they are
taken back."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import msgspec
import pytest

from stream.errors import StateError
from stream.judge.judge import Judge
from stream.judge.state.taking_back import take_back
from stream.messages.verdict_options import VerdictOptions
from tests.genesis import genesis_of
from tests.judged_crawls import (
    SCHEME,
    crawl,
    entries_of,
    open_state,
    templates,
    timed,
    turn_if_due,
)


@pytest.mark.parametrize(
    "options",
    [VerdictOptions(bucket_cap=2), VerdictOptions(lifetime=600, bucket_cap=2), VerdictOptions.paper()],
    ids=["triples", "lifetime", "strict"],
)
def test_what_is_applied_does_not_depend_on_tables(tmp_path: Path, options: VerdictOptions) -> None:
    rng = random.Random(options.id)
    pages = (
        templates(7, 500) if options.lifetime is None and not options.strict else crawl(9, 500, dense=True)
    )
    entries = timed(entries_of(pages, 3, sizes=(1, 3, 12)), 3)
    whole, genesis = open_state(tmp_path / "whole", options, memory=1 << 18, generation=32)
    held, _ = open_state(tmp_path / "held", options, memory=1 << 18, generation=32)
    judge, at, directory, copies = Judge(whole, genesis), 0, tmp_path / "held", 0
    taken = 0
    for step in count():
        if at == len(entries):
            break
        judge_held = Judge(held, genesis)
        before = whole.meta.decided
        if (turned := turn_if_due(judge, entries[at], None, before)) is not None:
            assert turned.turn is not None
            judge_held.apply_turn(turned, turned.turn, before)
        batch = judge.decide(entries[at : at + rng.choice([1, 5, 12])])
        record, decided = batch.record(), whole.meta.decided + 1
        for each in (judge, judge_held):
            each.apply(batch.entries, record, decided)
        at += len(batch.entries)
        tables = held.tables
        held.hold_from(rng.randint(tables.held, max(tables.held, tables.count - 40)))
        if step % 6 == 2:
            held.flush()
            copies += 1
            held.store.checkpoint(tmp_path / f"{copies}")
            before = held.tables.held
            held.close()
            directory = tmp_path / f"{copies}"
            held, _ = open_state(directory, options, memory=1 << 18, generation=32)
            assert held.tables.held == before
        assert held.digest() == whole.digest()
        if step % 9 == 8:
            first, before = held.tables.first, held.tables.held
            held.close()
            to = rng.randint(0, before)
            assert list(take_back(directory, genesis, to)) == list(range(max(first, to), before))
            taken += before - max(first, to)
            held, _ = open_state(directory, options, memory=1 << 18, generation=32)
            assert held.tables.held == max(first, to)
    assert copies
    assert taken
    held.close()
    take_back(directory, genesis, 0)
    held, _ = open_state(directory, options, memory=0, generation=32)
    later = timed(entries_of(crawl(11, 200, dense=True), 3, sizes=(12,)), 3)
    assert Judge(held, genesis).decide(later).json() == Judge(whole, genesis).decide(later).json()
    held.close()
    whole.close()


def test_nothing_is_taken_back_in_a_directory_that_is_not_there(tmp_path: Path) -> None:
    genesis = genesis_of(SCHEME, VerdictOptions())
    assert not take_back(tmp_path / "judge", genesis, 0)
    assert not (tmp_path / "judge").exists()


def test_nor_in_one_of_another_journal(tmp_path: Path) -> None:
    state, genesis = open_state(tmp_path / "judge", VerdictOptions(), memory=0, generation=32)
    judge, entries = Judge(state, genesis), entries_of(crawl(9, 50, dense=True), 3, sizes=(12,))
    judge.apply(entries, judge.decide(entries).record(), 1)
    state.hold_from(1)
    state.flush()
    state.close()
    with pytest.raises(StateError, match=f"belongs to journal {genesis.journal}, not 000"):
        take_back(tmp_path / "judge", msgspec.structs.replace(genesis, journal="0" * 32), 0)
