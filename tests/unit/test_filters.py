"""Filters of runs: whatever entered is present, and they take as much as memory allows."""

from __future__ import annotations

import numpy as np
import pytest

from stream.tables.arrays import U64
from stream.tables.design import Block, Design
from stream.tables.runs.filters import (
    BLOCK_BITS,
    BLOCK_BYTES,
    MOST_BITS,
    MOST_FOLDS,
    PIECE_BLOCKS,
    blocks_of,
    empty_filter,
    false_positives,
    folded,
    folds_within,
    groups_to_read,
    mark,
)
from stream.tables.runs.run import TABLE_PLACE, Run

DESIGN = Design(5, 2, 192, [Block(block // 3, 19 * (block % 3), 19) for block in range(5)])
RUN = Run(0, 0, 20_000)
ENTRIES = RUN.anchors * DESIGN.tables
LOW_BITS = RUN.low_bits(DESIGN.prefix_bits).astype(np.uint64)


def random_keys(seed: int, n: int = RUN.anchors) -> U64:
    """Bucket keys (n, tables)."""
    return DESIGN.keys(np.random.default_rng(seed).integers(0, 1 << 57, (n, 3), dtype=np.uint64))


def filter_of(keys: U64, folds: int) -> U64:
    present = empty_filter(blocks_of(keys.size, 1 << 30))
    for table in range(DESIGN.tables):
        mark(keys[:, table] >> np.uint64(6), table, present)
    for _ in range(folds):
        present = folded(present)
    return present


@pytest.mark.parametrize("folds", [0, 1, 3, 6])
def test_whatever_entered_is_present_and_strangers_as_often_as_computed(folds: int) -> None:
    keys = random_keys(1)
    present = filter_of(keys, folds)
    assert len(groups_to_read(keys, present, LOW_BITS).groups) == ENTRIES
    found = len(groups_to_read(random_keys(3), present, LOW_BITS).groups)
    assert found / ENTRIES == pytest.approx(false_positives(ENTRIES, len(present)), rel=0.2)


def test_a_probe_leads_to_the_group_of_its_bucket() -> None:
    keys = random_keys(1, 300)
    groups, probes = groups_to_read(keys, filter_of(keys, 0), LOW_BITS)
    assert probes.tolist() == list(range(keys.size))
    tables = np.tile(np.arange(DESIGN.tables, dtype=np.uint64), 300)
    assert (
        groups.tolist() == (tables << np.uint64(TABLE_PLACE) | keys.ravel() >> 6 >> LOW_BITS[tables]).tolist()
    )


@pytest.mark.parametrize("entries", [0, 1, 50, 1000, 10**6, 64 * 10**6])
def test_a_filter_is_as_large_as_its_run_has_entries_and_memory_allows(entries: int) -> None:
    blocks = blocks_of(entries, 1 << 40)
    assert 1 <= blocks <= entries * MOST_BITS / BLOCK_BITS + 1
    assert blocks * BLOCK_BITS >= 0.85 * entries * MOST_BITS - BLOCK_BITS
    assert blocks_of(entries, 1 << 16) * BLOCK_BYTES <= 1 << 16


@pytest.mark.parametrize("memory", [10_000, 100_000, 1_000_000, 3_000_000, 10_000_000])
def test_filters_together_keep_to_their_memory(memory: int) -> None:
    entries = [640_000, 640_000, 80_000, 10_000, 10_000, 10_000]
    sizes = tuple((each, blocks_of(each, memory)) for each in entries)
    folds = folds_within(sizes, memory)
    left = [blocks >> fold for (_, blocks), fold in zip(sizes, folds, strict=True)]
    assert sum(left) * BLOCK_BYTES <= memory
    assert max(folds) <= MOST_FOLDS
    bits = [each * BLOCK_BITS / of for each, of in zip(left, entries, strict=True)]
    assert bits[0] <= 1.5 * bits[-1]  # a large run gets fewer, as a row probes each run as often
    if memory == 10_000_000:
        assert folds == [0] * 6


def test_no_filter_is_halved_until_nothing_is_left_of_a_piece() -> None:
    sizes = tuple((blocks * BLOCK_BITS // MOST_BITS, blocks) for blocks in (1 << 20, 1 << 20, 1 << 15))
    assert max(folds_within(sizes, 1 << 16)) == MOST_FOLDS
    assert PIECE_BLOCKS % (1 << MOST_FOLDS) == 0
