"""What a prober loads while its assignment changes: nothing stays open or on disk that it does not hold."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stream.errors import StateError
from stream.fingerprint.scheme import Scheme
from stream.messages.decision import LedgerPart, encode_decisions, ledger_record
from stream.messages.segments import SegmentRecord
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober import loading as module
from stream.roles.prober.loading import CatchingUp, Loading
from stream.roles.prober.watch import ProberWatch
from stream.settings import load
from tests.genesis import genesis_of
from tests.waiting import HANG_SECONDS, until

GENESIS = genesis_of(Scheme(), VerdictOptions())


class Files:
    """Remembers what it was told to keep."""

    def __init__(self) -> None:
        self.kept: set[str] | None = None

    def keep_only(self, digests: Collection[str]) -> None:
        self.kept = set(digests)


class Held:
    """A segment that is open until it is closed."""

    def __init__(self) -> None:
        self.decided, self.is_open = 0, True
        self.applied = list[int]()

    def kill(self, _: object, decided: int) -> None:
        self.applied.append(decided)

    def close(self) -> None:
        self.is_open = False


class Opening(Loading):
    """Opens segments once it may."""

    def __init__(self) -> None:
        self.files, self.news = Files(), asyncio.Event()
        files: Any = self.files
        self.position = 0
        super().__init__(load(namespace="t"), GENESIS, files, ProberWatch(), lambda: self.position, self.news)
        self.may_open, self.is_opening = threading.Event(), threading.Event()
        self.opened = list[Held]()

    def _open(self, segment: SegmentRecord, turn: Callable[[], None]) -> Any:
        self.is_opening.set()
        assert self.may_open.wait(HANG_SECONDS)
        self.opened.append(Held())
        return self.opened[-1]


class Decisions:
    """A topic that has a record at each offset. Each poll returns one."""

    def __init__(self, journal: str = GENESIS.journal) -> None:
        self.position = 0
        record = ledger_record(journal, GENESIS.options.id, 1, b"", 0, [], LedgerPart(0, 0))
        self.value = encode_decisions(record)

    async def poll(self) -> list[Any]:
        await asyncio.sleep(0)
        self.position += 1
        return [SimpleNamespace(value=self.value, offset=self.position - 1)]


def segment(number: int) -> SegmentRecord:
    return SegmentRecord(
        journal=GENESIS.journal, scheme=GENESIS.scheme_id, first=16 * number, end=16 * number + 16,
        oldest=16 * number, digest=f"{number:064x}", size=1, dead="0" * 64, dead_size=0, decided=1,
        exported_at="2026-11-26T00:00:00Z",
    )  # fmt: skip


@pytest.fixture
async def opening(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opening]:
    @asynccontextmanager
    async def reader(*_: object) -> AsyncIterator[Any]:
        yield Decisions()

    monkeypatch.setattr(module, "TopicReader", reader)
    loading = Opening()
    running = asyncio.create_task(loading.run())
    yield loading
    loading.may_open.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_is_not_wanted_any_more_is_not_claimed_once_it_is_loaded(opening: Opening) -> None:
    opening.may_open.set()
    opening.want([segment(0)])
    await opening.news.wait()
    opening.want([])
    assert opening.claim() is None  # or the caller would have one that is being closed
    await until(lambda: not opening.opened[0].is_open)


async def test_what_is_opened_after_it_was_let_go_is_closed(opening: Opening) -> None:
    opening.want([segment(0)])
    await asyncio.to_thread(opening.is_opening.wait)
    opening.want([])
    await asyncio.sleep(0)
    opening.may_open.set()
    await until(lambda: bool(opening.opened) and not opening.opened[0].is_open)


async def test_nobody_answers_for_a_segment_before_it_has_caught_up(
    opening: Opening,
) -> None:
    opening.position = 50
    opening.may_open.set()
    opening.want([segment(0)])
    while (ready := opening.claim()) is None:
        assert opening.missing == 1
        await asyncio.sleep(0)
    assert opening.opened[0].applied == list(range(1, 51))
    opening.position = 53  # went on meanwhile
    await ready.catch_up(lambda: opening.position)
    assert opening.opened[0].applied == list(range(1, 54))
    opening.note_held(ready)
    assert opening.missing == 0


async def test_decisions_of_another_journal_are_not_applied() -> None:
    held, decisions = cast(Any, Held()), cast(Any, Decisions("ff" * 16))
    catching = CatchingUp(segment(0), held, decisions, GENESIS)
    with pytest.raises(StateError, match=r"^decisions offset 0: is of journal ffff"):
        await catching.catch_up(lambda: 1)
    assert held.applied == []


async def test_files_of_others_are_removed_before_anything_is_loaded(opening: Opening) -> None:
    opening.want([segment(0), segment(1)])
    await asyncio.to_thread(opening.is_opening.wait)
    assert opening.files.kept == {segment(0).digest, segment(1).digest}
