"""Rule 16: an anchor enters triples in place of full pairs, and of full buckets the emptiest alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec import structs

from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.messages.decision import decode_decisions, encode_decisions
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    OPTIONS,
    crawl,
    crowd,
    entries_of,
    open_state,
    oracle_of,
    packed_minima,
    redelivered,
    search_few_rows,
    templates,
)
from tests.oracle import Oracle, OraclePage


def masks_of_skipped(judge: Judge, entries: list[Entry], seed: int) -> list[int | None]:
    """Judge batches. Return which tables the anchor of each page did not enter, None if it became none."""
    rng, masks, i = random.Random(seed), [], 0
    while i < len(entries):
        part = entries[i : i + rng.choice([1, 2, 7])]
        decided = judge.decide(part)
        verdicts = decided.verdicts
        masks += [
            verdicts.skipped.get(row, 0) if verdict == Verdict.UNIQUE else None
            for row, verdict in enumerate(verdicts.columns.verdict.tolist())
        ]
        judge.apply(part, decode_decisions(encode_decisions(decided.record()), i), i)
        judge.state.tables.maintain(wait=rng.random() < 0.3)
        i += len(part)
    return masks


def masks_of_oracle(oracle: Oracle, pages: list[OraclePage]) -> list[int | None]:
    masks: list[int | None] = []
    for page in pages:
        if oracle.judge(page).verdict == "unique":
            entered = {table for table, _ in oracle.anchors[-1].entered}
            of_triples = {table for some in oracle.triples.values() for table in some}
            unusual = entered ^ set(range(len(oracle.tables))) ^ of_triples
            masks.append(sum(1 << table for table in unusual))
        else:
            masks.append(None)
    return masks


def template(n: int) -> list[OraclePage]:
    """Pages that share all buckets, at `n` URLs, none of which is like another."""
    rng, word = random.Random(n), packed_minima([7, 77, 777, 1777, 3777])
    order = bytes(range(32))
    return [
        OraclePage(
            None,
            f"http://host/{number}",
            rng.getrandbits(16),
            order,
            (rng.getrandbits(192) | 900 << 192 | word << 256).to_bytes(56, "little"),
        )
        for number in range(n)
    ]


@pytest.mark.parametrize("memory", [64 << 20, 0])
@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("choose", [2, 3])
def test_rule_16_full_buckets_open_triples_or_take_the_emptiest_up_to_a_multiple_of_the_cap(
    tmp_path: Path, memory: int, cut: int, choose: int
) -> None:
    cap, pages = 2, template(200)
    entries = redelivered(entries_of(pages, cut), pages, cut)
    options = VerdictOptions(bucket_cap=cap, choose=choose)
    state, genesis = open_state(tmp_path / "state", options, memory=memory, generation=64)
    try:
        masks = masks_of_skipped(Judge(state, genesis), entries, cut)
    finally:
        state.close()
    # All buckets fill in journal order, and with pairs of minima then all of their triples; then the pages
    # that follow enter one each, in turn, until all have eight times as many, or of triples twice as many.
    every, tables, triples = (1 << 10) - 1, 10, 30
    if choose == 3:
        one_each = [every ^ 1 << turn % tables for turn in range((8 * cap - cap) * tables)]
        want = [0] * cap + one_each
    else:
        one_each = [every | 1 << tables + turn % triples for turn in range((2 * cap - cap) * triples)]
        want = [0] * cap + [(1 << tables + triples) - 1] * cap + one_each
    assert masks == want + [every] * (len(pages) - len(want))


@pytest.mark.parametrize("options", [OPTIONS[1], OPTIONS[4], OPTIONS[10]])
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_rule_16_skipped_buckets_depend_on_neither_batches_nor_redelivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: VerdictOptions, memory: int
) -> None:
    crawls = crawl(16, 300, dense=True, skew=0.5), crowd(16, 300), templates(16, 300)
    pages = [each for pages in zip(*crawls, strict=True) for each in pages]
    entries = redelivered(entries_of(pages, 16), pages, 16)
    want = masks_of_oracle(oracle_of(options), pages)
    for cut in (1, 2):
        if cut == 2:
            search_few_rows(monkeypatch)
        state, genesis = open_state(tmp_path / str(cut), options, memory=memory, generation=64)
        try:
            assert masks_of_skipped(Judge(state, genesis), entries, cut) == want
        finally:
            state.close()
    assert {bool(mask) for mask in want if mask is not None} == {False, True}


def test_rule_16_strict_mode_has_no_cap(tmp_path: Path) -> None:
    rng = random.Random(16)
    options = structs.replace(VerdictOptions.paper(), bucket_cap=2)
    # All share the bucket of the first two blocks.
    pages = [
        OraclePage(None, f"http://host/{number}", rng.getrandbits(38), bytes(range(32)), bytes(56))
        for number in range(100)
    ]
    state, genesis = open_state(tmp_path / "state", options, memory=64 << 20, generation=64)
    try:
        masks = masks_of_skipped(Judge(state, genesis), entries_of(pages, 16), 16)
    finally:
        state.close()
    assert set(masks) == {0}
