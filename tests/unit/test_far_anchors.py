"""The anchors nearest to a fingerprint are found without buckets: a brute force over those that are alive."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stream.dashboard.answers import NearAnchor
from stream.dashboard.lookup.lookup import _verdict_now
from stream.tables.design import Design
from stream.tables.search.probing import SearchOptions
from stream.tables.store.rocks import Store
from stream.tables.tables import Tables

ANCHORS, DEAD, MOST = 700, np.arange(0, 700, 3), 25


def test_the_nearest_are_those_of_a_brute_force(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    prints = rng.integers(0, 1 << 64, ANCHORS, dtype=np.uint64)
    words = rng.integers(
        0, 1 << 64, ANCHORS, dtype=np.uint64
    )  # keys of minima, which say nothing of distance
    with Store(tmp_path / "s", 8 << 20) as store:
        options = SearchOptions(distance=12, cap=64)
        tables = Tables(store, Design(5, 2), options, memory=1 << 26, generation=1 << 20)
        assert len(tables.nearest(prints[0], MOST, ANCHORS)) == 0
        for start in range(0, ANCHORS, 100):
            batch = store.batch()
            tables.insert(batch, prints[start : start + 100], {}, words[start : start + 100])
            store.write(batch)
        batch = store.batch()
        tables.kill(batch, DEAD)
        store.write(batch)
        for newest in (ANCHORS, 300, 1):
            for asked in rng.integers(0, 1 << 64, 5, dtype=np.uint64):
                alive = [i for i in range(ANCHORS - newest, ANCHORS) if i % 3]
                alive.sort(key=lambda i, asked=asked: (int(prints[i] ^ asked).bit_count(), i))  # type: ignore[misc]
                assert tables.nearest(asked, MOST, newest).tolist() == alive[:MOST]
        tables.close()


def test_only_what_the_judge_compares_decides_a_verdict() -> None:
    far = NearAnchor("http://a.example/", "a.1.1", 3, 0.99, alike=True, why="alike")
    assert _verdict_now([far], None, None) == (
        "unique",
        "unique: http://a.example/ is alike, and shares no bucket of the tables with this page",
    )
    near = NearAnchor("http://b.example/", "a.1.2", 3, 0.99, alike=True, why="alike")
    assert _verdict_now([far, near], near, None) == ("duplicate", "duplicate of http://b.example/; alike")
    assert _verdict_now([], None, None) == ("unique", "unique: no anchor is nearly alike")
