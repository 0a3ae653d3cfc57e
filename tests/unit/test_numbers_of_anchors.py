"""What judge and dashboard say of a state whose first anchors are gone: it counts those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream.dashboard.counting.rows import ClusterRow
from stream.dashboard.lookup.lookup import Finder
from stream.judge.state.state import State
from stream.roles.judge.stats import JudgeStats
from stream.settings import Settings
from stream.tables.store.rocks import Store
from tests.first_numbers import LATE, begin_late
from tests.genesis import genesis_of


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """One without anchors, whose next one is number LATE."""
    directory, genesis = tmp_path / "judge", genesis_of()

    def opened() -> State:
        return State(directory, genesis, "here", memory=1 << 20, generation=100, cache=1 << 20)

    opened().close()
    with Store(directory, 1 << 20) as store:
        begin_late(store)
    state = opened()
    assert state.tables.count == LATE
    yield state
    state.close()


def test_the_judge_logs_the_anchors_that_are_stored(state: State) -> None:
    assert JudgeStats().fields(state)["anchors"] == 0


def test_the_look_up_has_the_anchors_that_are_stored(state: State, tmp_path: Path) -> None:
    finder = Finder(Settings(state_dir=tmp_path), genesis_of(), lambda _: [], lambda _: ClusterRow())
    assert finder.anchors is None
    follower: Any = SimpleNamespace(state=state)
    finder._follower = follower
    assert finder.anchors == 0
