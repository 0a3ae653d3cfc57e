"""A run built by a process of its own is the one that a thread builds, and the process never stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from stream.errors import StateError
from stream.tables.design import Block, Design
from stream.tables.runs import build_child, building
from stream.tables.runs.build import GenerationContent
from stream.tables.runs.building import FOLDER, Building
from stream.tables.runs.run import Run
from stream.tables.store.rocks import RUNS, Store
from tests import kills
from tests.waiting import until

DESIGN = Design(5, 2)
OF_WORDS = Design(5, 2, 192, [Block(block % 3, 19 * (block // 3), 19) for block in range(5)])
"""Of a key of three words."""
MEMORY = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state", 1 << 20) as store:
        yield store


def content(anchors: int, *, masks: bool = False, design: Design = DESIGN) -> GenerationContent:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 1 << 64, (anchors, design.words + 1), dtype=np.uint64)
    rows[::3] &= np.uint64((1 << 30) - 1)  # crowded buckets
    kept_out = rng.integers(0, 1 << 10, anchors, dtype=np.uint64) | np.uint64(1 << 4)
    none = np.zeros(0, np.uint64)
    return GenerationContent(
        Run(0, 3, anchors),
        design,
        design.prefix_bits,
        rows,
        kept_out if masks else np.zeros_like(kept_out),
        (none, none),
    )


@pytest.mark.parametrize("design", [DESIGN, OF_WORDS])
@pytest.mark.parametrize("masks", [False, True])
def test_child_builds_what_the_thread_builds(
    masks: bool, design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for least in (0, 1 << 20):
        monkeypatch.setattr(building, "CHILD_ANCHORS", least)
        with Store(tmp_path / str(least), 1 << 20) as store:
            made = content(2000, masks=masks, design=design)
            built = Building(store, made, MEMORY)
            assert built.finish().entries == made.most_entries
            assert built.is_built
            assert not list((store.path / FOLDER).iterdir())
            tables = {key[5] for key, _ in store.scan(RUNS)}
            assert (4 in tables) != masks  # nobody enters table 4
            digests.append(store.digest())
    assert digests[0] == digests[1]


def child_of(build: Building) -> psutil.Process:
    while build._child is None:
        assert not build.is_built
    return psutil.Process(build._child.pid)


@pytest.mark.parametrize("urgent", [False, True])
async def test_only_what_is_urgent_is_built_at_the_priority_of_the_judge(
    store: Store, urgent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "CHILD_ANCHORS", 0)
    build = Building(store, content(500_000), MEMORY, urgent=urgent)
    child = child_of(build)
    await until(lambda: bool(list((store.path / FOLDER).glob("*/00.sst"))))
    assert child.nice() == min(19, psutil.Process().nice() + (0 if urgent else 15))
    assert not build.is_built
    build.discard()
    assert not child.is_running()


def test_child_that_fails_is_reported_with_what_it_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "CHILD_ANCHORS", 0)
    monkeypatch.setattr(build_child, "INPUT", "elsewhere")
    build = Building(store, content(10), MEMORY)
    with pytest.raises(StateError, match=r"anchors 30 to 39: .* exited with 1: (?s:.*)content"):
        build.finish()


def build(path: Path) -> None:
    """Build a run by a child process, and tell its number as soon as it is there."""
    popen = subprocess.Popen

    def telling(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = popen(*arguments, **options)
        os.write(1, str(child.pid).encode())
        return child

    building.subprocess.Popen = telling  # type: ignore[assignment, misc]
    Building(Store(path, 1 << 20), content(2_000_000), MEMORY).finish()


async def test_child_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    child = int(kills.killed("freeze.build:3", build, tmp_path / "state"))  # it was still building
    await until(
        lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    )
