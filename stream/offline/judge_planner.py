"""What a judge in the default mode takes for a number of anchors: memory, disk, and rows a second.

Constants are measured by `python -m tests.bench.growth` on two cores; three of ten pages are near-duplicates.
The number of groups read follows from the runs and from what their filters take, as a judge divides it.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from stream.tables.hot.tier import bytes_of
from stream.tables.runs.filters import BLOCK_BYTES, blocks_of, false_positives, folds_within
from stream.tables.runs.run import MERGED
from stream.tables.search.pair_collector import MOST_ANCHORS
from stream.tables.tables import HOT_GENERATIONS, memory_of_filters

GENERATION: Final = 1_000_000
"""Anchors of a generation, by default."""
CACHE: Final = 256 << 20
"""RocksDB's cache, by default."""
PROCESS_BYTES: Final = 420 << 20
"""Memory of a judge without RocksDB's cache, generations in RAM and filters."""
RECORD_BYTES, TABLE_BYTES = 485, 180
"""Disk of an anchor and its share of duplicates, and of its tables, merges included."""
ROW_SECONDS: Final = 6.8e-6
"""To decide and to apply a row while all anchors are in RAM."""
MERGE_SECONDS: Final = 1.8e-6
"""More for a row, on average, once runs are built and merged beside it."""
GROUP_SECONDS, RUN_SECONDS = 4.5e-6, 0.15e-6
"""To read a group from the page cache; to ask the filter of a run."""
COPIED: Final = 0.16
"""Of the rows, those that are copies of an anchor in any run, and read a group a table."""
START_SECONDS, FILTER_SECONDS = 0.6e-6, 0.03e-6
"""To insert an anchor into RAM at a start, and to read its share of a filter."""
NEW, CARRIED = 0.7, 0.2
"""Of the pages that are judged in a lifetime, those that become anchors, and anchors that are carried."""
MOST_GROUPS: Final = 2.0
"""Groups read for a page that is like no other, beyond which it waits for all but the fastest disks."""
UNREMOVED: Final = 1 / 64
"""Expired anchors on disk, to those that are live."""


class JudgePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What judges take that remember a number of pages. All figures are of one of them."""

    judges: int
    """Judges, of a namespace each, among which the pages have to be divided."""
    anchors: int
    tables_memory: int
    memory: float
    """RAM in bytes, page cache apart."""
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
    frozen = anchors // GENERATION * GENERATION
    memory = memory_of_filters(design, tables_memory, GENERATION)
    runs = [run * design.tables for run in _runs(frozen)]
    sizes = tuple((entries, blocks_of(entries, memory)) for entries in runs)
    left = [blocks >> fold for (_, blocks), fold in zip(sizes, folds_within(sizes, memory), strict=True)]
    false = sum(false_positives(entries, blocks) for entries, blocks in zip(runs, left, strict=True))
    groups = design.tables * false
    row = ROW_SECONDS + len(runs) * RUN_SECONDS
    if runs:
        row += MERGE_SECONDS + (groups + COPIED * design.tables) * GROUP_SECONDS
    hot = min(HOT_GENERATIONS, anchors / GENERATION) * bytes_of(design, GENERATION)
    return JudgePlan(
        judges=judges,
        anchors=anchors,
        tables_memory=tables_memory,
        memory=PROCESS_BYTES + hot + BLOCK_BYTES * sum(left) + CACHE,
        disk=float(RECORD_BYTES * anchors + TABLE_BYTES * frozen),
        groups=groups,
        rows_per_second=1 / row,
        page_cache=16.5 * design.tables * frozen,
        start_seconds=START_SECONDS * (anchors - frozen) + FILTER_SECONDS * frozen,
    )


def memory_for_few_reads(pages: int, tables_memory: int) -> int:
    """Compute the memory for the tables of a judge with which MOST_GROUPS suffice, a multiple of
    `tables_memory` by a power of two."""
    while plan_judge(pages, tables_memory).groups > MOST_GROUPS:
        tables_memory *= 2
    return tables_memory


def _runs(frozen: int) -> list[int]:
    """Anchors of each run, the largest first."""
    runs, size = list[int](), GENERATION
    while size * MERGED <= frozen:
        size *= MERGED
    while size >= GENERATION:
        runs += [size] * (frozen // size)
        frozen, size = frozen % size, size // MERGED
    return runs
