"""The judge, batch by batch with tables, against the oracle, page by page without."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from stream.errors import StateError
from stream.fingerprint.scheme import Scheme
from stream.judge.decision.decide import Effort
from stream.judge.ids import INDEX_BITS
from stream.judge.judge import Judge
from stream.judge.state import page_log
from stream.judge.state.live import live_anchors
from stream.messages.decision import NO_LONGER_LIVE
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import (
    NAMES,
    OPTIONS,
    check_deciding_ahead,
    crawl,
    entries_of,
    expected,
    judge_all,
    number_late,
    open_state,
    oracle_of,
    search_as_for_spam,
)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", ["sparse", "dense", "skewed"])
@pytest.mark.parametrize(
    ("memory", "generation"),
    [(64 << 20, 1 << 20), (64 << 20, 50), (0, 16)],
    ids=["hot", "frozen-midway", "rocksdb-only"],
)
def test_verdicts_equal_the_oracles(
    tmp_path: Path, options: VerdictOptions, shape: str, memory: int, generation: int
) -> None:
    seed = zlib.crc32(f"{options.id} {memory} {generation}".encode())
    pages = crawl(seed, 600, dense=shape != "sparse", skew=0.4 if shape == "skewed" else 0.0)
    entries = entries_of(pages, seed)
    oracle = oracle_of(options)
    state, genesis = open_state(tmp_path / "state", options, memory=memory, generation=generation)
    try:
        found = judge_all(Judge(state, genesis), entries, seed)
        want = expected(oracle, pages)
        stored = {page: state.by_page(page) for page in oracle.numbers}
    finally:
        state.close()
    for page, baseline in stored.items():
        assert baseline is not None
        number, cluster = oracle.numbers[page], oracle.numbers[baseline.cluster]
        assert (baseline.number, baseline.cluster_anchor) == (number, cluster)
    different = [(f, w) for f, w in zip(found, want, strict=True) if f != w]
    assert not different, different[:3]
    counts = {v: sum(w[1] == v for w in want) for v in NAMES.values()}
    assert all(counts.values()), f"the crawl exercises every verdict: {counts}"
    of_another = [each[8] for each in want if each[1] == "recrawl" and each[3] != each[4]]
    if shape == "dense" and not options.strict:
        assert max(of_another) >= 0, "of live anchors"
    assert any(each[9] != -1 for each in want) == (not options.strict and options.evidence != "1")
    if options.bucket_cap == 2 and shape == "skewed":
        assert any(load >= 2 for load in oracle.load.values())


@pytest.mark.parametrize("memory", [64 << 20, 0])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[3], OPTIONS[7]])
def test_pages_may_be_numbered_beyond_32_bits(tmp_path: Path, options: VerdictOptions, memory: int) -> None:
    """The first anchor and the first duplicate have 32 bits, later ones 33. The judge restarts halfway."""
    pages = crawl(13, 1000, dense=True, skew=0.3)
    entries = entries_of(pages, 13)
    half, found = len(entries) // 2, list[tuple[object, ...]]()
    for part in (entries[:half], entries[half:]):
        state, genesis = open_state(tmp_path / "state", options, memory=memory, generation=24, late=True)
        try:
            found += judge_all(Judge(state, genesis), part, 13)
            counts = state.tables.count, state._duplicates.count
        finally:
            state.close()
    oracle = number_late(oracle_of(options))
    want = expected(oracle, pages)
    assert [(f, w) for f, w in zip(found, want, strict=True) if f != w] == []
    assert {w[1] for w in want} == set(NAMES.values())
    assert min(counts) > 1 << 32
    assert len(live_anchors(tmp_path / "state").fingerprints) == len(oracle.live)


@pytest.mark.parametrize(
    ("width", "options"),
    [
        (128, VerdictOptions()),
        (128, VerdictOptions(distance=28, bucket_cap=2)),
        (128, VerdictOptions(distance=28, compared=2)),
        (32, VerdictOptions(distance=7)),
        (32, VerdictOptions(keys="fingerprint", flip_bits=5, flips=3, distance=7)),
        (32, VerdictOptions.paper()),
    ],
)
@pytest.mark.parametrize(("memory", "late"), [(64 << 20, False), (0, False), (0, True)])
def test_fingerprints_of_every_width_are_judged_as_the_oracle_does(
    tmp_path: Path, width: int, options: VerdictOptions, memory: int, late: bool
) -> None:
    scheme = Scheme(sketch_bins=192, width=width)  # type: ignore[arg-type]
    pages = crawl(width, 600, dense=True, skew=0.2, width=width)
    entries = entries_of(pages, width, scheme)
    oracle = oracle_of(options, width)
    state, genesis = open_state(
        tmp_path / "one", options, memory=memory, generation=64, scheme=scheme, late=late
    )
    again, _ = open_state(tmp_path / "two", options, memory=memory, generation=64, scheme=scheme, late=late)
    try:
        judge = Judge(state, genesis)
        found = judge_all(judge, entries, width)
        whole = Judge(again, genesis)
        whole.apply(entries, whole.decide(entries).record(), state.meta.decided)
        assert state.digest() == again.digest()
    finally:
        state.close()
        again.close()
    want = expected(number_late(oracle) if late else oracle, pages)
    assert [(f, w) for f, w in zip(found, want, strict=True) if f != w] == []
    assert {w[1] for w in want} == set(NAMES.values())


@pytest.mark.parametrize("late", [False, True])
def test_numbers_that_are_not_those_of_the_pages_are_refused(tmp_path: Path, late: bool) -> None:
    """Of pages of the same records every other number; of earlier ones those of no page."""
    entries = entries_of(crawl(21, 600, dense=True), 21)
    state, genesis = open_state(
        tmp_path / "state", VerdictOptions(), memory=1 << 20, generation=64, late=late
    )
    half, refused = len(entries) // 2, Counter[str]()
    try:
        judge = Judge(state, genesis)
        for part in (entries[:half], entries[half:]):
            record, first = judge.decide(part).record(), part[0].offset << INDEX_BITS
            pages_of = {"numbers": "other", "anchors": "clusters", "nearest_numbers": "nearest"}
            for name, named in pages_of.items():
                numbers = np.frombuffer(getattr(record, name), "<i8")
                pages = np.frombuffer(getattr(record, named), "<i8")
                for place in range(0, len(numbers), 7):
                    here = pages[place] >= first
                    for wrong in (numbers[place] + 1, numbers[place] - 1) if here else (-2, 1 << 40):
                        if wrong == NO_LONGER_LIVE and name == "anchors":
                            continue
                        changed = numbers.copy()
                        changed[place] = wrong
                        with pytest.raises(
                            StateError, match=f"names page {pages[place]} by the number {wrong}"
                        ):
                            judge.prepare(part, structs.replace(record, **{name: changed.tobytes()}))
                        refused[f"{name} {here}"] += 1
            judge.apply(part, record)
    finally:
        state.close()
    assert len(refused) == 6, refused


def test_applying_decisions_rebuilds_an_equal_state(tmp_path: Path) -> None:
    options = VerdictOptions(bucket_cap=3)
    entries = entries_of(crawl(5, 1200, dense=True, skew=0.3), 5)
    first, genesis = open_state(tmp_path / "first", options, memory=1 << 20, generation=50)
    second, _ = open_state(tmp_path / "second", options, memory=1 << 20, generation=50)
    third, _ = open_state(tmp_path / "third", options, memory=0, generation=50)
    try:
        judge, rebuild = Judge(first, genesis), Judge(second, genesis)
        for i in range(0, len(entries), 3):
            part = entries[i : i + 3]
            decisions = judge.decide(part).record()
            judge.apply(part, decisions, i + 3)
            rebuild.apply(part, decisions, i + 3)
        whole = Judge(third, genesis)
        whole.apply(entries, whole.decide(entries).record(), first.meta.decided)
        assert first.digest() == second.digest() == third.digest()
        assert first.tables.count == second.tables.count == third.tables.count > 200
    finally:
        for state in (first, second, third):
            state.close()


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1], OPTIONS[4], OPTIONS[7]])
@pytest.mark.parametrize("memory", [1 << 20, 0])
def test_deciding_ahead_of_the_store_changes_nothing(
    tmp_path: Path, options: VerdictOptions, memory: int
) -> None:
    entries = entries_of(crawl(7, 900, dense=True, skew=0.3), 7)
    check_deciding_ahead(tmp_path, options, entries, 7, memory=memory, generation=50)


def test_what_is_ahead_of_the_store_ends_with_the_judge(tmp_path: Path) -> None:
    """As after a refused transaction, nothing of the batch is in RocksDB, whatever was flushed meanwhile."""
    entries = entries_of(crawl(4, 600, dense=True), 4)
    half = len(entries) // 2
    states = [
        open_state(tmp_path / name, VerdictOptions(), memory=1 << 20, generation=64)
        for name in ("with", "without")
    ]
    for state, genesis in states:
        judge = Judge(state, genesis)
        judge.apply(entries[:half], judge.decide(entries[:half]).record(), 1)
    judge = Judge(*states[0])
    ahead = judge.decide(entries[half : half + 9])
    assert (ahead.verdicts.columns.verdict == Verdict.UNIQUE).any()
    judge.state.advance(judge.prepare(ahead.entries, ahead.record(), ahead.batch))
    judge.decide(entries[half + 9 :])
    judge.state.flush()
    for state, _ in states:
        state.close()
    again, plain = (
        open_state(tmp_path / name, VerdictOptions(), memory=1 << 20, generation=64)[0]
        for name in ("with", "without")
    )
    try:
        assert again.meta == plain.meta
        assert again.digest() == plain.digest()
    finally:
        again.close()
        plain.close()


def test_verdicts_do_not_depend_on_how_the_journal_is_cut_into_batches(tmp_path: Path) -> None:
    entries = entries_of(crawl(9, 600, dense=True), 9)
    found = []
    for cut in (1, 2, 3):
        state, genesis = open_state(tmp_path / str(cut), VerdictOptions(), memory=1 << 20, generation=64)
        try:
            found.append(judge_all(Judge(state, genesis), entries, cut))
        finally:
            state.close()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[3], OPTIONS[7]])
@pytest.mark.parametrize("bounds", [{"most": 0}, {"most": 40}, {"url_bytes": 0}, {"url_bytes": 4000}])
def test_nor_on_how_little_of_a_batch_is_judged_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: VerdictOptions, bounds: dict[str, int]
) -> None:
    search_as_for_spam(monkeypatch)
    monkeypatch.setattr(page_log, "GROUPS_AT_ONCE", 2)
    monkeypatch.setattr(page_log, "PART_BYTES", 10_000)
    monkeypatch.setattr(page_log, "LEAST_KEPT", 0)
    entries = entries_of(crawl(11, 500, dense=True, skew=0.3), 11)
    found: list[list[bytes]] = []
    digests, turns, batches = [], [0], [0, 0]
    for which, effort in enumerate((None, Effort(on_iteration=lambda: turns.append(0), **bounds))):
        state, genesis = open_state(tmp_path / str(which), options, memory=1 << 20, generation=50)
        try:
            judge, first, verdicts = Judge(state, genesis), 0, []
            while first < len(entries):
                decided = judge.decide(entries[first : first + 9], effort)
                verdicts += decided.json()
                first += len(decided.entries)
                batches[which] += 1
                judge.apply(decided.entries, decided.record(), len(entries))
            found.append(verdicts)
            digests.append(state.digest())
        finally:
            state.close()
    assert found[0] == found[1]
    assert len(turns) > batches[1] > batches[0]
    assert digests[0] == digests[1]


def test_a_reopened_state_goes_on_where_it_was_flushed(tmp_path: Path) -> None:
    entries = entries_of(crawl(3, 800, dense=True), 3)
    whole, genesis = open_state(tmp_path / "whole", VerdictOptions(), memory=1 << 20, generation=64)
    want = judge_all(Judge(whole, genesis), entries, 1)
    whole.close()
    half = len(entries) // 2
    state, _ = open_state(tmp_path / "cut", VerdictOptions(), memory=1 << 20, generation=64)
    found = judge_all(Judge(state, genesis), entries[:half], 2)
    state.close()
    state, _ = open_state(tmp_path / "cut", VerdictOptions(), memory=0, generation=64)
    assert state.meta.applied == entries[half - 1].offset + 1
    found += judge_all(Judge(state, genesis), entries[half:], 3)
    assert found == want
    state.close()
