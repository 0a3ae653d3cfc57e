"""Rule 16: an anchor enters triples in place of full pairs, and of full buckets the emptiest alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.messages.decision import decode_decisions, encode_decisions
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    entries_of,
    expected,
    judge_all,
    judging,
    oracle_of,
    packed_minima,
    templates,
)
from tests.oracle import OraclePage


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
def test_rule_16_full_buckets_open_triples_up_to_a_multiple_of_the_cap(tmp_path: Path, memory: int) -> None:
    cap, pages = 2, template(200)
    entries = entries_of(pages, 2)
    with judging(tmp_path / "state", VerdictOptions(bucket_cap=cap), memory=memory) as judge:
        masks = masks_of_skipped(judge, entries, 2)
    # All buckets fill in journal order, then all of their triples; then the pages that follow enter one of
    # these each, in turn, until all have twice as many.
    every, tables, triples = (1 << 10) - 1, 10, 30
    one_each = [every | 1 << tables + turn % triples for turn in range((2 * cap - cap) * triples)]
    want = [0] * cap + [(1 << tables + triples) - 1] * cap + one_each
    assert masks == want + [every] * (len(pages) - len(want))


@pytest.mark.parametrize("compared", [3, pytest.param(64, marks=pytest.mark.night)])
def test_rule_16_many_anchors_in_a_triple_are_found_as_by_the_oracle(compared: int, tmp_path: Path) -> None:
    """The ends of long chains are searched in another way than their beginnings, and batches after lists were
    cut in another way than those before."""
    options, pages = VerdictOptions(bucket_cap=80, compared=compared), templates(compared, 2000)
    entries = entries_of(pages, 3)
    oracle = oracle_of(options)
    want = expected(oracle, pages)
    with judging(tmp_path / "state", options, memory=64 << 20, generation=1 << 20) as judge:
        found = judge_all(judge, entries, 3)
    different = [(f, w) for f, w in zip(found, want, strict=True) if f != w]
    assert not different, different[:3]
    assert sum(load >= 80 for (table, _), load in oracle.load.items() if table not in oracle.triples) > 10
