"""Builds runs of anchors again whose tables were dropped, from the anchor log.

It does so before the tables are opened, from the last run to the first: whatever a crash leaves follows the
runs that are there, and is dropped at the next start, as the tables begin where they did.
"""

from __future__ import annotations

from collections.abc import Iterator

from stream.tables.cold import freeze
from stream.tables.cold.runs import Run
from stream.tables.compaction import run_key, stored_runs
from stream.tables.design import Design
from stream.tables.store.anchors import HELD, HeldAnchors, IndexedAnchors, StoredAnchors, held_from
from stream.tables.store.rocks import DEFAULT, Store
from stream.tables.triples.entries import Entries, first_entry_from
from stream.tables.triples.keys import DESIGN as TRIPLES


def take_back(store: Store, design: Design, generation: int, to: int, *, triples: bool) -> None:
    """Let there be tables of the anchors from `to` on, or from the first one that is not gone, if they begin
    later. No tables may be open. Raises what freezing raises."""
    held = held_from(store)
    anchors = HeldAnchors(StoredAnchors(store, design.words, to), to)
    if anchors.log.first >= held:
        return
    freeze.clean(store.path)
    _build(store, design, generation, anchors, held)
    if triples:
        _build(store, TRIPLES, generation, Entries(anchors), first_entry_from(anchors.stored, held))
    batch = store.batch()
    batch.put(DEFAULT, HELD, anchors.log.first.to_bytes(8, "little"))
    store.write(batch)


def _build(store: Store, design: Design, generation: int, anchors: IndexedAnchors, before: int) -> None:
    """Build the runs of `anchors` that begin before the number `before`, from which on there are tables."""
    for run in _due(
        stored_runs(store, design, before, anchors.log.count), generation, anchors.log.first, before
    ):
        start = max(run.first, anchors.log.first)
        rows = (rows for _, rows in anchors.log.slices(start, run.end))
        freeze.Freezing(store, design, run, rows, anchors.skipped.entries(start, run.end)).finish()
        batch = store.batch()
        batch.put(DEFAULT, run_key(design, run), run.record)
        store.write(batch)


def _due(runs: list[Run], generation: int, first: int, before: int) -> Iterator[Run]:
    """The runs to build, the last one first. Those that are stored stay as they are divided, but may have no
    entries any more, or only those of their last anchors."""
    ends = {run.end: run for run in runs if run.first < before}
    whole = [run for run in runs if run.first >= before]
    if whole:
        end, number = whole[0].first, whole[0].first_generation
    elif runs:
        end, number = runs[-1].end, runs[-1].next_generation
    else:
        return
    while end > first:
        run = ends.get(end, Run(0, number - 1, end - generation, generation))
        yield run
        end, number = run.first, run.first_generation
