"""Presence filters of runs: whatever entered is present, and they take as much as tables have entries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.tables.cold.presence import (
    BLOCK_BITS,
    BLOCK_BYTES,
    Presence,
    blocks_of,
    false_positives,
)
from stream.tables.cold.runs import Run
from stream.tables.cold.tier import MOST_BITS, ColdTier
from stream.tables.design import Block, Design
from stream.tables.search.probing import Probing, SearchOptions
from stream.tables.store.anchors import StoredAnchors
from stream.tables.store.rocks import Store

U64 = NDArray[np.uint64]
DESIGN = Design(5, 2, 192, [Block(block // 3, 19 * (block % 3), 19) for block in range(5)])
RUN = Run(0, 0, 0, 20_000)


def random_keys(seed: int, n: int = RUN.anchors) -> U64:
    return np.random.default_rng(seed).integers(0, 1 << 57, (n, 3), dtype=np.uint64)


def presence_of(keys: U64, masks: U64 | None, bits: float) -> Presence:
    entries = np.full(DESIGN.tables, len(keys))
    if masks is not None:
        entries -= [int((masks >> np.uint64(table) & np.uint64(1)).sum()) for table in range(DESIGN.tables)]
    presence = Presence(DESIGN, RUN, entries, blocks_of(entries, bits))
    for table in range(DESIGN.tables):
        presence.begin(table)
    presence.mark(keys, masks)
    return presence


def groups(presence: Presence, keys: U64, table: int) -> tuple[U64, U64]:
    """The groups to read of a table, and which probe needs each."""
    n = len(keys)
    probing = Probing(DESIGN, keys, np.zeros(n, np.uint64), SearchOptions(14, 64))
    read = presence.groups_to_read(probing.queries, DESIGN.tables)
    some = slice(*read.edges[table : table + 2])
    return read.groups[some], read.wanted[some]


def present_rows(presence: Presence, keys: U64, table: int) -> list[int]:
    return (groups(presence, keys, table)[1] >> np.uint64(32)).tolist()


@pytest.mark.parametrize("bits", [2, 3.3, 10, 16])
@pytest.mark.parametrize("folds", [0, 1, 3])
def test_whatever_entered_a_table_is_present(bits: float, folds: int) -> None:
    keys = random_keys(1)
    masks = np.random.default_rng(2).integers(0, 1 << DESIGN.tables, len(keys), dtype=np.uint64)
    masks[::2] = 0
    presence = presence_of(keys, masks, bits)
    for _ in range(folds):
        presence.due_blocks[:] = np.where(
            presence.due_blocks % 2, presence.due_blocks, presence.due_blocks // 2
        )
        presence.fold()
    for table in range(DESIGN.tables):
        entered = np.flatnonzero(masks >> np.uint64(table) & np.uint64(1) == 0).tolist()
        assert set(entered) <= set(present_rows(presence, keys, table))


@pytest.mark.parametrize("bits", [3.0, 6.0, 10.0, 16.0])
def test_strangers_are_present_as_often_as_computed(bits: float) -> None:
    presence, strangers = presence_of(random_keys(1), None, bits), random_keys(3)
    rate = np.mean([len(present_rows(presence, strangers, table)) for table in range(DESIGN.tables)])
    computed = false_positives(presence.entries, presence.due_blocks).mean()
    assert rate / len(strangers) == pytest.approx(computed, rel=0.2)


def test_a_probe_leads_to_the_group_and_the_place_of_its_bucket() -> None:
    keys = random_keys(1, 300)
    presence = presence_of(keys, None, 16)
    low_bits = RUN.low_bits(DESIGN)
    for table in range(DESIGN.tables):
        (read, wanted), prefixes = groups(presence, keys, table), DESIGN.prefixes(keys, table)
        low = np.uint64(low_bits[table])
        assert (wanted >> np.uint64(32)).tolist() == list(range(300))
        assert (read == prefixes >> low | np.uint64(RUN.key)).all()
        assert (wanted & np.uint64(0xFFFFFFFF) == prefixes & (np.uint64(1) << low) - np.uint64(1)).all()


def test_filters_are_as_large_as_tables_have_entries() -> None:
    entries = np.array([0, 1, 50, 1000, 10**6, 64 * 10**6])
    for bits in (2.0, 7.7, 16.0):
        blocks = blocks_of(entries, bits)
        assert blocks[0] == 0
        assert (blocks[1:] >= 1).all()
        assert (blocks * BLOCK_BITS <= entries * bits * 1.15 + BLOCK_BITS).all()


def test_a_table_that_no_anchor_entered_has_no_filter_and_no_groups() -> None:
    keys = random_keys(1)
    presence = presence_of(keys, np.full(len(keys), 0b101, np.uint64), 10)
    assert presence.due_blocks[[0, 2]].tolist() == [0, 0]
    assert present_rows(presence, keys, 0) == []
    assert present_rows(presence, keys, 1) == list(range(len(keys)))


@contextmanager
def cold_tier(path: Path, count: int, memory: int) -> Iterator[tuple[ColdTier, U64]]:
    """A cold tier without runs, and the rows of the anchors in its store."""
    with Store(path, DESIGN.tables, 1 << 20) as store, ThreadPoolExecutor(1) as background:
        anchors = StoredAnchors(store, DESIGN.words)
        batch = store.batch()
        rows = np.column_stack([random_keys(4, count), np.zeros(count, np.uint64)])
        anchors.log.append(batch, rows)
        store.write(batch)
        yield ColdTier(store, DESIGN, anchors, background, distance=14, memory=memory), rows


def test_filters_of_all_runs_keep_to_their_memory(tmp_path: Path) -> None:
    generation, memory = 20_000, 300_000
    with cold_tier(tmp_path, 16 * generation, memory) as (cold, rows):
        for number in range(16):
            cold.add(Run(0, number, number * generation, generation))
            cold.extend((number + 1) * generation, generation, wait=True)
            sizes = {run: p.due_blocks.sum() * BLOCK_BYTES for run, p in cold._runs.items() if p}
            assert sum(sizes.values()) <= memory
        merged = Run(1, 0, 0, 8 * generation)
        assert cold.replace(merged, wait=True)
        presence = cold._runs[merged]
        assert presence is not None
        assert present_rows(presence, rows[: 8 * generation, :3], 9) == list(range(8 * generation))


def test_filters_that_take_over_are_not_halved_for_those_that_they_replace(tmp_path: Path) -> None:
    generation, memory, begun = 20_000, 1_500_000, threading.Event()
    with cold_tier(tmp_path, 9 * generation, memory) as (cold, rows):
        for number in range(9):
            cold.add(Run(0, number, number * generation, generation))
        cold.extend(8 * generation, generation, wait=True)
        merged = Run(1, 0, 0, 8 * generation)
        cold._background.submit(begun.wait)
        assert not cold.replace(merged, wait=False)
        cold.extend(9 * generation, generation, wait=False)  # while the merged run's filters are being made
        begun.set()
        cold.extend(9 * generation, generation, wait=True)
        assert cold.replace(merged, wait=True)
        presence = cold._runs[merged]
        assert presence is not None
        bits = presence.due_blocks * BLOCK_BITS / presence.entries
        assert bits.min() > 0.45 * memory * 8 / (9 * generation * DESIGN.tables)
        assert bits.mean() > 0.7 * memory * 8 / (9 * generation * DESIGN.tables)
        assert present_rows(presence, rows[: 8 * generation, :3], 9) == list(range(8 * generation))


def test_filters_grow_when_memory_does(tmp_path: Path) -> None:
    generation, little, much = 20_000, 200_000, 2_000_000
    with cold_tier(tmp_path, 4 * generation, little) as (cold, rows):
        for number in range(4):
            cold.add(Run(0, number, number * generation, generation))
        cold.extend(3 * generation, generation, wait=True)
        cold.enlarge(wait=True)
        before = {run: p.due_blocks.copy() for run, p in cold._runs.items() if p}
        cold.enlarge(wait=True)
        assert all((p.due_blocks == before[run]).all() for run, p in cold._runs.items() if p)
        cold.memory = much
        cold.enlarge(wait=False)  # begins with one of them, while another generation is marked
        cold.extend(4 * generation, generation, wait=True)
        cold.enlarge(wait=True)
        assert len(cold._runs) == 4
        for number in range(4):
            presence = cold._runs[Run(0, number, number * generation, generation)]
            assert presence is not None
            assert (presence.due_blocks == blocks_of(presence.entries, MOST_BITS)).all()
            own = rows[number * generation : (number + 1) * generation, :3]
            for table in range(DESIGN.tables):
                assert present_rows(presence, own, table) == list(range(generation))
