"""Rule 16: an anchor enters reserves in place of full pairs, and at last the bucket of all minima."""

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
    rng, word = random.Random(n), packed_minima([111 * each for each in range(30)])
    return [
        OraclePage(
            None,
            f"http://host/{number}",
            rng.getrandbits(16),
            (rng.getrandbits(192) | 900 << 192 | word << 256).to_bytes(96, "little"),
        )
        for number in range(n)
    ]


@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_rule_16_full_pairs_open_reserves_and_at_last_the_bucket_of_all_minima(
    tmp_path: Path, memory: int
) -> None:
    cap, pages = 2, template(20)
    entries = entries_of(pages, 2)
    with judging(tmp_path / "state", VerdictOptions(bucket_cap=cap), memory=memory) as judge:
        masks = masks_of_skipped(judge, entries, 2)
    # Nine pairs fill, then nine in reserve, nine more, the last three, and at last the bucket of all minima.
    steps = [0, 0x1FF | 0x1FF << 9, 0x1FF | 0x1FF << 18, 0x1FF | 0x7 << 27, 0x1FF | 1 << 30]
    assert masks == [each for each in steps for _ in range(cap)] + [0x1FF] * 10


@pytest.mark.parametrize("compared", [3, pytest.param(64, marks=pytest.mark.night)])
def test_rule_16_many_anchors_in_a_bucket_are_found_as_by_the_oracle(compared: int, tmp_path: Path) -> None:
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
    assert sum(load >= 80 for load in oracle.load.values()) > 10
