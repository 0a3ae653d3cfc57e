"""Pages with a full bucket, and those that are compared with some of their candidates alone, are counted as
if pages were judged one by one."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from msgspec import structs

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.decision import decide
from stream.judge.judge import Judge
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.watch import JudgeWatch
from tests.judged_crawls import (
    crawl,
    crowd,
    entries_of,
    expected,
    open_state,
    oracle_of,
    redelivered,
    search_as_for_spam,
)


def crowding(judge: Judge, entries: list[Entry], seed: int) -> dict[object, tuple[bool, bool]]:
    """Judge batches. Return of each page whether it had a full bucket, and whether its candidates were
    cut."""
    rng, i, watch = random.Random(seed), 0, JudgeWatch()
    flags: dict[object, tuple[bool, bool]] = {}
    while i < len(entries):
        part = entries[i : i + rng.choice([1, 2, 7])]
        decided = judge.decide(part, decide.Effort(rng.choice([0, 1 << 24])))
        verdicts, part = decided.verdicts, list(decided.entries)
        pairs = zip(verdicts.full.tolist(), verdicts.cut.tolist(), strict=True)
        flags |= dict(zip(decided.batch.page.tolist(), pairs, strict=True))
        watch.note_batch(decided, gaps=0)
        judge.apply(part, decided.record(), i)
        judge.state.tables.maintain(wait=rng.random() < 0.3)
        i += len(part)
    totals = tuple(map(sum, zip(*flags.values(), strict=True)))
    metrics = (watch.metrics.full_buckets, watch.metrics.cut_lists)
    assert tuple(each._value.get() for each in metrics) == totals
    return flags


@pytest.mark.parametrize("compared", [1, 3, 12])
@pytest.mark.parametrize(
    ("width", "options"),
    [
        (64, VerdictOptions(bucket_cap=2)),
        (64, VerdictOptions(bucket_cap=6, baselines=1)),
        (64, VerdictOptions(keys="fingerprint", flip_bits=3, flips=2, bucket_cap=4)),
        (64, VerdictOptions(distance=4, short_distance=9, bucket_cap=4)),
        (128, VerdictOptions(bucket_cap=4)),
        (64, VerdictOptions.paper()),
    ],
)
@pytest.mark.parametrize(("cut", "memory"), [(1, 64 << 20), (2, 64 << 20), (2, 0)])
def test_full_buckets_and_cut_lists_are_counted_wherever_batches_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compared: int,
    width: int,
    options: VerdictOptions,
    cut: int,
    memory: int,
) -> None:
    options = structs.replace(options, compared=compared)
    short = options.short_distance > 0
    scheme = Scheme(sketch_bins=192, width=width, short_tokens=20 * short)  # type: ignore[arg-type]
    made = crowd(compared, 300, width=width) + crawl(5, 100, dense=True, width=width)
    pages = [
        dataclasses.replace(page, status=3) if short and number % 3 == 0 else page
        for number, page in enumerate(made)
    ]
    entries = redelivered(entries_of(pages, compared, scheme), pages, compared)
    oracle = oracle_of(options)
    expected(oracle, pages)
    want = {page.id: oracle.crowding.get(page.id, (False, False)) for page in pages}
    if cut == 2:  # as spam is searched for
        search_as_for_spam(monkeypatch)
    state, genesis = open_state(tmp_path / "state", options, memory=memory, generation=64, scheme=scheme)
    try:
        assert crowding(Judge(state, genesis), entries, cut) == want
    finally:
        state.close()
    for which, every in enumerate(zip(*want.values(), strict=True)):
        assert any(every) == (not options.strict), which
