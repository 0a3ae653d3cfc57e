"""What a judge in the default mode takes for a number of anchors: memory, disk, and rows a second.

Constants are measured by `python -m tests.bench.growth` on two cores; three of ten pages are near-duplicates.
The number of groups read follows from the sizes of the runs: the filters of all runs share a memory, and a
run of n anchors gets the bits with which its false positives are proportional to n (Dayan, Athanassoulis,
Idreos, "Monkey: Optimal Navigable Key-Value Store", SIGMOD 2017).
"""

from __future__ import annotations

from math import ceil, exp, log
from typing import Final

import msgspec

from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from stream.tables.cold.presence import BITS_SET
from stream.tables.cold.runs import LEVELS, MERGED
from stream.tables.cold.tier import MOST_BITS
from stream.tables.design import Design
from stream.tables.memory_shares import MemoryShares
from stream.tables.search.pair_collector import MOST_ANCHORS
from stream.tables.tiers import FEW_BITS
from stream.tables.warm.tier import anchors_in

GENERATION: Final = 1_000_000
"""Anchors of a generation, by default."""
LATE: Final = 50_000
"""Anchors that come in while a generation is frozen."""
CACHE: Final = 256 << 20
"""RocksDB's cache, by default."""
PROCESS_BYTES: Final = 790 << 20
"""Memory of a judge with a generation in the hot tier, without RocksDB's cache and packed anchors."""
EMPTY_BYTES, NEW_BYTES = 445 << 20, 150
"""The same without anchors, and for each anchor of the first generation."""
PACKED_BYTES: Final = 85
"""Of a packed anchor."""
RECORD_BYTES, TABLE_BYTES = 485, 215
"""Disk of an anchor and its share of duplicates, and of its tables, merges included."""
ROW_SECONDS: Final = 5.4e-6
"""To decide and to apply a row while all anchors are in the hot tier."""
PACKED_SECONDS: Final = 0.35e-6
"""More for a row with each doubling of the packed anchors."""
MERGE_SECONDS: Final = 1.4e-6
"""More for a row, on average, once runs are merged beside it."""
GROUP_SECONDS, RUN_SECONDS = 4e-6, 0.08e-6
"""To read a group from the page cache; to ask the filters of a run."""
START_SECONDS, FILTER_SECONDS = 0.5e-6, 0.3e-6
"""To pack an anchor at a start, and to put it into a filter."""
NEW, CARRIED = 0.7, 0.2
"""Of the pages that are judged in a lifetime, those that become anchors, and anchors that are carried."""
UNREMOVED: Final = 1 / 64
"""Expired anchors on disk, to those that are live."""
_COARSE: Final = 1.5
"""False positives measured to those of the best division, since filters that exist can only be halved."""
_BLOOM: Final = log(2) ** 2


class JudgePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What judges take that remember a number of pages. All figures are of one of them."""

    judges: int
    """Judges, of a namespace each, among which the pages have to be divided."""
    anchors: int
    tables_memory: int
    memory: float
    """RAM in bytes, page cache apart."""
    packed: int
    """Anchors in RAM; older ones are in RocksDB."""
    disk: float
    """Bytes of the state directory."""
    groups: float
    """Groups that are read for a page which is like none."""
    rows_per_second: float
    """Pages judged on two cores, as long as the page cache holds the tables."""
    page_cache: float
    """Bytes of tables in RocksDB."""
    start_seconds: float


def pages_in_window(judged: int) -> int:
    """Compute how many anchors a judge with a lifetime has, of which so many pages are judged in one: those
    that are new, those that were carried, and what is not removed yet."""
    return round(judged * (NEW + CARRIED) * (1 + UNREMOVED))


def plan_judge(pages: int, tables_memory: int) -> JudgePlan:
    """Compute what judges take that remember a number of unique pages."""
    judges = ceil(pages / MOST_ANCHORS)
    anchors = ceil(pages / judges)
    design = Rule(VerdictOptions(), Scheme()).design()
    frozen = (anchors - LATE) // GENERATION * GENERATION
    shares, cold = _shares_and_cold(design, frozen, tables_memory)
    packed = frozen - cold
    runs = _runs(frozen, cold)
    groups = _groups(runs, design.tables, shares.presence)
    filters = min(cold * design.tables * MOST_BITS / 8, shares.presence)
    row = ROW_SECONDS + PACKED_SECONDS * log(1 + packed / GENERATION, 2)
    if frozen >= MERGED * GENERATION:
        row += MERGE_SECONDS
    memory = PROCESS_BYTES + PACKED_BYTES * packed + filters if frozen else EMPTY_BYTES + NEW_BYTES * anchors
    return JudgePlan(
        judges=judges,
        anchors=anchors,
        tables_memory=tables_memory,
        memory=memory + CACHE,
        packed=packed,
        disk=float(RECORD_BYTES * anchors + TABLE_BYTES * frozen),
        groups=groups,
        rows_per_second=1 / (row + groups * GROUP_SECONDS + len(runs) * RUN_SECONDS),
        page_cache=16.5 * design.tables * frozen,
        start_seconds=START_SECONDS * packed + FILTER_SECONDS * cold,
    )


def _shares_and_cold(design: Design, frozen: int, memory: int) -> tuple[MemoryShares, int]:
    """Return how tables that grew to so many anchors divide their memory, and the anchors beyond the warm
    tier, which is emptied whenever filters get more memory."""

    def packed_in(packed: int) -> int:
        return anchors_in(design, packed, GENERATION)

    choices = MemoryShares.choices(memory)
    shares, emptied = choices[0], 0
    while shares != choices[-1]:
        most = 8 * shares.presence // (FEW_BITS * design.tables)
        most += packed_in(shares.packed) if not emptied else 0
        if frozen <= most:
            break
        emptied = -(-most // GENERATION) * GENERATION
        shares = MemoryShares.for_filters(memory, emptied, MOST_BITS * design.tables, packed_in)
    return shares, min(frozen, max(emptied, frozen - packed_in(shares.packed)))


def _runs(frozen: int, cold: int) -> list[int]:
    """Anchors of each run that are not in RAM."""
    runs, start = [], 0
    for level in reversed(range(LEVELS + 1)):
        size = GENERATION * MERGED**level
        while start + size <= frozen and start < cold:
            runs.append(min(size, cold - start))
            start += size
    return runs


def _groups(runs: list[int], tables: int, memory: int) -> float:
    """Groups read for a page that is like none, with filters of `memory` bytes."""
    cold = sum(runs)
    if not cold:
        return 0.0
    bits = 8 * memory / (cold * tables)
    entropy = -sum(run / cold * log(run / cold) for run in runs)
    best = exp(BITS_SET * log(1 - exp(-BITS_SET / MOST_BITS)))  # of a filter with as much as it may have
    false = max(len(runs) * best, _COARSE * exp(entropy - bits * _BLOOM))
    return tables * min(float(len(runs)), false)
