"""The parts of the index of triples: keys, entries, the set of opened pairs, and pages with masks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream.errors import StateError
from stream.fingerprint.row import Status
from stream.fingerprint.scheme import Scheme
from stream.judge.decision.batch_anchors import CrowdedBuckets
from stream.judge.explain.pair import PairPage, judge_pair
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.tables.arrays import U64
from stream.tables.search.prefixes_compiled import keys_of
from stream.tables.store.anchors import StoredAnchors
from stream.tables.store.rocks import Store
from stream.tables.triples import entries as triple_entries
from stream.tables.triples.entries import Entries, rows_of_entries
from stream.tables.triples.keys import (
    BUCKETS,
    DESIGN,
    PAIRS,
    TRIPLES,
    TRIPLES_OF_MINIMA,
    keys_of_triples,
    prefix_of_triple,
)
from stream.tables.triples.opened import no_pairs, opened_among, with_pairs
from tests.judged_crawls import SCHEME, entries_of, open_state, packed_minima, templates
from tests.plain_fingerprint import mix64


def words_of(minima: list[int]) -> U64:
    packed = packed_minima(minima)
    return np.array([[packed >> 64 * word & 2**64 - 1 for word in range(3)]], np.uint64)


def test_each_triple_is_below_one_pair_and_of_minima_0_to_7() -> None:
    assert len(set(TRIPLES_OF_MINIMA)) == TRIPLES == 30
    assert {each for triple in TRIPLES_OF_MINIMA for each in triple} == set(range(8))
    assert len({tuple(sorted(triple)) for triple in TRIPLES_OF_MINIMA}) == TRIPLES
    pairs = {triple[:2] for triple in TRIPLES_OF_MINIMA}
    assert len(pairs) == PAIRS


def test_keys_tell_triples_from_each_other_and_depend_on_their_minima_alone() -> None:
    equal = words_of([7] * 10)
    assert len(set(keys_of_triples(equal)[0].tolist())) == TRIPLES
    prefixes = [int(prefix_of_triple(equal, 0, triple)) for triple in range(TRIPLES)]
    assert len(set(prefixes)) == TRIPLES, "all triples share one table"
    minima = list(range(100, 110))
    before = keys_of_triples(words_of(minima))[0]
    for changed in range(10):
        other = [each + (which == changed) for which, each in enumerate(minima)]
        differ = keys_of_triples(words_of(other))[0] != before
        assert differ.tolist() == [changed in triple for triple in TRIPLES_OF_MINIMA]
    assert prefixes == [mix64(triple << 57 | 7 << 38 | 7 << 19 | 7) >> 6 for triple in range(TRIPLES)]


def test_rows_of_entries_are_the_minima_the_prefix_and_the_fingerprint() -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 1 << 64, (5, 4), dtype=np.uint64)
    masks = rng.integers(0, 1 << TRIPLES, 5, dtype=np.uint64)
    masks[2] = 0
    want = [
        [*rows[row, :3].tolist(), int(prefix_of_triple(rows, row, triple)), int(rows[row, 3])]
        for row in range(5)
        for triple in range(TRIPLES)
        if int(masks[row]) >> triple & 1
    ]
    made = rows_of_entries(rows, masks)
    assert made.tolist() == want
    assert (DESIGN.prefixes(made, 0) == made[:, 3]).all()


def test_slices_of_the_log_of_entries_are_the_rows_that_were_inserted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triple_entries, "READ_AT_ONCE", 7)
    rng = np.random.default_rng(2)
    with Store(tmp_path, PAIRS + 1, 1 << 20) as store:
        anchors, inserted, holders = StoredAnchors(store, 3), [], []
        entries = Entries(anchors)
        for first in range(0, 400, 100):
            rows = rng.integers(0, 1 << 64, (100, 4), dtype=np.uint64)
            some = np.sort(rng.choice(100, 30, replace=False))
            masks = rng.integers(0, 1 << BUCKETS, 30, dtype=np.uint64)
            masks[::5] &= np.uint64((1 << PAIRS) - 1)
            batch = store.batch()
            anchors.skipped.add(batch, first, dict(zip(some.tolist(), masks.tolist(), strict=True)))
            anchors.log.append(batch, rows)
            store.write(batch)
            triples = masks >> np.uint64(PAIRS)
            entries.holders.add(some + first, masks)
            inserted.append(rows_of_entries(rows[some], triples))
            holders += np.repeat(some + first, np.bitwise_count(triples)).tolist()
        whole = np.concatenate(inserted)
        for each in (entries, Entries(StoredAnchors(store, 3))):
            assert each.log.count == len(whole)
            numbers = each.holders.of_entries[: len(whole)] + each.holders.first_anchor
            assert numbers.tolist() == holders
            last = len(whole)
            for start, end in ((0, last), (0, 1), (5, 6), (13, 200), (last - 1, last), (9, 9)):
                slices = list(each.log.slices(start, end))
                assert [first for first, _ in slices] == list(range(start, end, 7))
                parts = np.concatenate([rows for _, rows in slices] or [whole[:0]])
                assert (parts == whole[start:end]).all()
            numbers, index = each.holders.entries_of(np.arange(0, 400, 3))
            assert numbers.tolist() == [entry for entry, of in enumerate(holders) if of % 3 == 0]
            assert (3 * index).tolist() == [of for of in holders if of % 3 == 0]
            assert len(each.holders.entries_of(np.zeros(0, np.int64))[0]) == 0
            assert len(each.holders.entries_of(np.array([10_000]))[0]) == 0


def test_the_set_of_pairs_grows_and_forgets_none() -> None:
    rng = np.random.default_rng(3)
    design = Rule(VerdictOptions(), Scheme()).design()
    words = rng.integers(0, 1 << 64, (3000, 3), dtype=np.uint64)
    keys = keys_of(words, design.pieces)
    opened, inside = no_pairs(), np.zeros(keys.shape, np.bool_)
    for start in range(0, 3000, 500):
        some = slice(start, start + 500)
        chosen = rng.random(keys[some].shape) < 0.6
        inside[some] = chosen
        opened = with_pairs(with_pairs(opened, keys[some][chosen]), keys[some][chosen])
        assert opened.size == len(np.unique(keys[inside]))
        assert opened_among(opened, keys).tolist() == np.flatnonzero(inside).tolist()
        assert 2 * opened.size <= len(opened.places) + 2
    colliding = (np.arange(3000, dtype=np.uint64) << np.uint64(63)) | np.arange(3000, dtype=np.uint64)
    opened = with_pairs(no_pairs(), colliding)
    assert len(opened_among(opened, colliding.reshape(-1, PAIRS))) == 3000
    assert not len(opened_among(no_pairs(), keys))


def test_a_superseded_anchor_is_in_the_pairs_it_was_not_kept_out_of_and_in_the_triples_it_entered() -> None:
    keys = np.array([[10, 20, 1030, 1040], [10, 21, 1030, 1041]], np.uint64)  # two pairs and two triples
    crowded = CrowdedBuckets(np.array([10, 20, 1030, 1041], np.uint64), np.array([5, 6, 7, 8]))
    masks = np.array([0b0101, 0b1000], np.uint64)
    buckets, ends = crowded.of(keys, masks, 2)
    assert buckets.tolist() == [6, 7, 5, 8]
    assert ends.tolist() == [0, 2, 4]


@pytest.mark.parametrize("cap", [1, 128])
def test_a_page_meets_another_in_the_buckets_of_its_mask_alone(cap: int) -> None:
    rule = Rule(VerdictOptions(bucket_cap=cap), SCHEME)
    rng = np.random.default_rng(cap)
    content = rng.bytes(24) + (900).to_bytes(8, "little")
    for _ in range(150):
        one = rng.integers(0, 100, 10)
        two = np.where(rng.random(10) < 0.7, one, one + 1000)
        mask = int(rng.integers(0, 1 << BUCKETS)) if rng.random() < 0.8 else (1 << PAIRS) - 1
        pairs = {bucket for bucket in range(PAIRS) if not mask >> bucket & 1}
        pairs &= {
            triple // 3
            for triple, minima in enumerate(TRIPLES_OF_MINIMA)
            if all(one[each] == two[each] for each in minima[:2])
        }
        triples = {
            triple
            for triple, minima in enumerate(TRIPLES_OF_MINIMA)
            if mask >> PAIRS + triple & 1 and all(one[each] == two[each] for each in minima)
        }
        first, second = (
            PairPage(Status.READY, 3, content + packed_minima(minima.tolist()).to_bytes(24, "little"))
            for minima in (one, two)
        )
        verdict = judge_pair(first._replace(skipped=mask), second, rule, same_url=False)
        assert verdict == (Verdict.DUPLICATE if pairs or triples else Verdict.UNIQUE)
        assert judge_pair(first._replace(skipped=mask), second, rule, same_url=True) == Verdict.RECRAWL


def test_masks_beyond_the_buckets_of_a_page_are_refused(tmp_path: Path) -> None:
    pages = templates(1, 100)
    entries = entries_of(pages, 1)
    options = VerdictOptions(bucket_cap=2)
    state, genesis = open_state(tmp_path / "state", options, memory=1 << 20, generation=64)
    try:
        judge = Judge(state, genesis)
        decisions = judge.decide(entries).record()
        assert decisions.skipped
        row, _ = decisions.skipped[0]
        below_a_pair_that_is_entered = 1 << 10, 1 << 12 | 2
        for mask in (1 << BUCKETS, 1 << BUCKETS | 1, 0, *below_a_pair_that_is_entered):
            wrong = msgspec.structs.replace(decisions, skipped=[(row, mask), *decisions.skipped[1:]])
            with pytest.raises(StateError, match=f"row {row} skipped buckets {mask:#x}"):
                judge.apply(entries, wrong)
        judge.apply(entries, decisions)
    finally:
        state.close()
