"""A generation built by a process of its own is the one that a thread builds, and the process never stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from stream.errors import StateError
from stream.tables.cold import freeze
from stream.tables.cold.freeze import FOLDER, Freezing
from stream.tables.cold.runs import Run
from stream.tables.design import Block, Design
from stream.tables.store.anchors import Skips
from stream.tables.store.rocks import Store, table_family
from tests import kills
from tests.waiting import until

DESIGN = Design(5, 2)
OF_WORDS = Design(5, 2, 192, [Block(block % 3, 19 * (block // 3), 19) for block in range(5)])
"""Of a key of three words."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state", DESIGN.tables, 1 << 20) as store:
        yield store


def start(store: Store, anchors: int, *, masks: bool = False, design: Design = DESIGN) -> Freezing:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 1 << 64, (anchors, design.words), dtype=np.uint64)
    rows[::3] &= np.uint64((1 << 30) - 1)  # crowded buckets
    numbers = np.arange(3 * anchors, 4 * anchors) if masks else np.zeros(0, np.int64)
    skips = Skips(numbers, rng.integers(0, 1 << 10, len(numbers), dtype=np.uint64) | np.uint64(1 << 4))
    words = np.column_stack([rows, rows[::-1, 0]])
    return Freezing(store, design, Run(0, 3, 3 * anchors, anchors), iter(np.array_split(words, 3)), skips)


@pytest.mark.parametrize("design", [DESIGN, OF_WORDS])
@pytest.mark.parametrize("masks", [False, True])
def test_child_builds_what_the_thread_builds(
    masks: bool, design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for least in (0, 1 << 20):
        monkeypatch.setattr(freeze, "CHILD_ANCHORS", least)
        with Store(tmp_path / str(least), DESIGN.tables, 1 << 20) as store:
            freezing = start(store, 2000, masks=masks, design=design)
            freezing.finish()
            assert freezing.is_built
            assert not list((store.path / FOLDER).iterdir())
            assert bool(next(store.scan(table_family(4)), None)) != masks  # nobody enters table 4
            digests.append(store.digest())
    assert digests[0] == digests[1]


def child_of(freezing: Freezing) -> psutil.Process:
    while freezing._child is None:
        assert not freezing.is_built
    return psutil.Process(freezing._child.pid)


def test_discard_ends_the_child(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freeze, "CHILD_ANCHORS", 0)
    freezing = start(store, 200_000)
    child = child_of(freezing)
    assert not freezing.is_built
    freezing.discard()
    assert not child.is_running()


def test_child_that_fails_is_reported_with_what_it_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freeze, "CHILD_ANCHORS", 0)
    monkeypatch.setattr(freeze.freeze_child, "hand_over", lambda folder, *rest: None)
    freezing = start(store, 10)
    with pytest.raises(StateError, match=r"anchors 30 to 39: .* exited with 1: (?s:.*)run\.npz"):
        freezing.finish()


def build(path: Path) -> None:
    """Build a run by a child process, and tell its number."""
    rows = np.random.default_rng(1).integers(0, 1 << 64, (2_000_000, 2), dtype=np.uint64)
    no_skips = Skips(np.zeros(0, np.int64), np.zeros(0, np.uint64))
    store, run = Store(path, DESIGN.tables, 1 << 20), Run(0, 0, 0, len(rows))
    freezing = Freezing(store, DESIGN, run, [rows], no_skips)
    while freezing._child is None:
        pass
    os.write(1, str(freezing._child.pid).encode())
    freezing.finish()


async def test_child_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    child = int(kills.killed("freeze.build:3", build, tmp_path / "state"))  # it was still building
    await until(
        lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    )
