"""The dashboard's state: what is counted, and up to where, is one, wherever a process ends."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest

from stream.checkpoints.kinds import meta_of
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.rows import Counts
from stream.dashboard.counting.state import BLOCKS, HOST_WINDOWS, WINDOWS, State
from stream.dashboard.counting.verdict_columns import VerdictColumns, batch_of
from stream.dashboard.counting.view import View
from stream.dashboard.counting.windows import HOSTS, TOTALS
from stream.errors import DamagedStateError
from stream.figures import Meta, figures_below, kind_of_dashboard
from stream.messages.verdict import VerdictRecord
from stream.roles.forgetter.status import _left_of_figures
from stream.tables.store.rocks import Writes
from tests.genesis import JOURNAL, genesis_of
from tests.kafka.dashboard_helpers import KINDS, VerdictMaker, by_kind

FRESH = Meta(cluster="cluster", journal=JOURNAL, topic="topic")
PARTITIONS = 3
NOW = 1_900_000_000


def columns(partition: int, offsets: list[int], verdicts: list[VerdictRecord]) -> VerdictColumns:
    return batch_of(partition, offsets, [msgspec.json.encode(each) for each in verdicts])


def view_of(state: State) -> View:
    view = View(state.host_counts)
    state.show_in(view, lambda: None)
    return view


def fold(state: State, view: View, *batches: VerdictColumns, known: int = 0, now: float = 0.0) -> None:
    pending = Pending()
    for each in batches:
        pending.add(each, known)
    for show in state.fold(pending, view, now):
        show()


def killed(state: State, path: Path) -> State:
    """What the next process finds, if this one is killed now: what was flushed."""
    shutil.copytree(state.store.path, path)
    state.close()
    return State.open(path, FRESH)


@pytest.mark.parametrize("seed", range(6))
def test_every_verdict_counts_once_wherever_a_process_is_killed(seed: int, tmp_path: Path) -> None:
    rng, made = random.Random(seed), VerdictMaker(seed).some(240)
    its = [[each for each in made if each.source.partition == p] for p in range(PARTITIONS)]
    offsets = [sorted(rng.sample(range(1000), len(each))) for each in its]
    state, kills = State.open(tmp_path / "0", FRESH), 0
    view = view_of(state)
    with ExitStack() as stack:
        while any(state.meta.positions.get(p, 0) <= offsets[p][-1] for p in range(PARTITIONS)):
            batches = []
            for p in range(PARTITIONS):
                first = sum(offset < state.meta.positions.get(p, 0) for offset in offsets[p])
                end = min(len(offsets[p]), first + rng.randrange(30))
                for begin, last in ((first, (first + end) // 2), ((first + end) // 2, end)):
                    if begin < last:
                        batches.append(columns(p, offsets[p][begin:last], its[p][begin:last]))
            if not batches:
                continue
            fold(state, view, *batches)
            if rng.random() < 0.4:
                state.store.flush()
            if not kills or (rng.random() < 0.3 and kills < 8):
                kills += 1
                state = killed(state, tmp_path / str(kills))
                view = view_of(state)
        stack.enter_context(closing(state))
        check_figures(state, view, made)
        check_figures(state, view_of(state), made)


def check_figures(state: State, view: View, made: list[VerdictRecord]) -> None:
    kinds = {kind: n for kind, n in by_kind(made).items() if n}
    for size in TOTALS:
        assert sum_of(each for (_, its), each in view.totals.items() if its == size).verdicts == kinds
    for host in {(each.url or "").split("/")[2] for each in made}:
        verdicts = [each for each in made if (each.url or "").split("/")[2] == host]
        distances = Counter(each.distance for each in verdicts if each.verdict == "duplicate")
        for size in HOSTS:
            counts = sum_of(its[host] for (_, s), its in view.hosts.items() if s == size and host in its)
            assert counts.verdicts == {kind: n for kind, n in by_kind(verdicts).items() if n}
            assert counts.distances.get("duplicate", {}) == distances
    members = Counter(each.cluster for each in made if each.verdict == "duplicate")
    assert {each.id: each.members for each in view.clusters.values()} == members
    for cluster, count in members.items():
        row = state.cluster(cluster or "")
        assert (row.members, row.anchor) == (count, view.clusters[cluster or ""].anchor)
    for each in made:
        found = state.history(each.url or "")
        assert [verdict.id for verdict in found] == [each.id]


def sum_of(counts: Iterable[Counts]) -> Counts:
    found = Counts()
    for each in counts:
        found.add(each)
    return found


@pytest.mark.parametrize(
    ("kept", "family", "size"),
    [*((TOTALS, WINDOWS, size) for size in TOTALS), *((HOSTS, HOST_WINDOWS, size) for size in HOSTS)],
)
def test_windows_go_when_their_time_is_over(
    kept: dict[int, int], family: str, size: int, tmp_path: Path
) -> None:
    """And are not counted after that."""
    decided = "2030-03-17T17:46:39.000Z"
    verdict = msgspec.structs.replace(VerdictMaker().one("unique"), decided_at=decided)
    end = (NOW - 1) // size * size + size + kept[size]
    with closing(State.open(tmp_path / "figures", FRESH)) as state:

        def is_there() -> bool:
            return any(int.from_bytes(key[:4], "big") == size for key, _ in state.store.scan(family))

        fold(state, view_of(state), columns(0, [0], [verdict]), now=NOW)
        found = []
        for now in (end - 1, end):
            state.expire(now)
            found.append(is_there())
        assert found == [True, False]
        for offset, now in ((1, end), (2, end - 1)):
            fold(state, view_of(state), columns(0, [offset], [verdict]), now=now)
            found.append(is_there())
        assert found[2:] == [False, True]
        assert state.meta.positions == {0: 3}


def test_a_state_that_ends_before_anything_is_counted_is_sound(tmp_path: Path) -> None:
    with closing(State.open(tmp_path, FRESH)) as state:
        ForgottenPages(genesis_of(), state)._note([], 3)
    with closing(State.open(tmp_path, FRESH)) as state:
        assert state.meta == msgspec.structs.replace(FRESH, decided=3)


def test_a_block_that_is_gone_is_damage(tmp_path: Path) -> None:
    (verdict,) = VerdictMaker().some(1)
    with closing(State.open(tmp_path, FRESH)) as state:
        fold(state, view_of(state), columns(1, [7], [verdict]))
        assert state.history(verdict.url or "") == [verdict]
        writes = state.store.batch()
        writes.delete_many(BLOCKS, [key for key, _ in state.store.scan(BLOCKS)])
        state.store.write(writes)
        with pytest.raises(DamagedStateError, match="no block 7 of partition 1"):
            state.history(verdict.url or "")


def test_what_was_erased_is_so_until_something_is_counted_without_knowing_it(tmp_path: Path) -> None:
    """As verdicts are that were read before a decision."""
    made = VerdictMaker()
    with closing(State.open(tmp_path / "dashboard" / "figures", FRESH)) as state:
        view = view_of(state)
        state.write(state.store.batch(), requested=5, forgotten=9)
        for offset, (known, erased) in enumerate([(9, 0), (9, 5), (8, 0), (9, 0), (9, 5)]):
            fold(state, view, columns(0, [offset], [made.one(KINDS[0])]), known=known)
            assert state.meta.erased == erased
            if offset in (0, 3):
                state.note_erased(9)
    assert figures_below(tmp_path) == [tmp_path / "dashboard" / "figures"]
    (path,) = figures_below(tmp_path)
    meta = meta_of(path, "dashboard")
    assert meta is not None
    assert (meta.erased, meta.positions) == (5, {0: 5})
    genesis = genesis_of()
    assert genesis.journal == JOURNAL
    of_another = msgspec.structs.replace(genesis, journal="other")
    for its, requests, why in (
        (genesis, 5, "None"),
        (genesis, 6, "not erased"),
        (of_another, 5, "another journal"),
    ):
        assert why in str(_left_of_figures(path, its, requests))
    assert [kind_of_dashboard(each) for each in ("", "b")] == ["dashboard", "dashboard-b"]


def test_what_two_threads_note_is_kept_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold, and a decision that forgets something."""
    with closing(State.open(tmp_path, FRESH)) as state:
        write = state.store.write
        other = threading.Thread(target=lambda: state.write(state.store.batch(), decided=7))

        def write_slowly(writes: Writes) -> None:
            if other.ident is None:
                other.start()
                other.join(0.2)
            write(writes)

        monkeypatch.setattr(state.store, "write", write_slowly)
        state.write(state.store.batch(), since=5)
        other.join()
        assert (state.meta.since, state.meta.decided) == (5, 7)
