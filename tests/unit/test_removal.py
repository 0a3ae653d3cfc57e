"""What is gone of pages and URLs is removed from RocksDB, step by step, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from stream.judge.judge import Judge
from stream.judge.state import removal
from stream.judge.state.page_log import PageLog
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.references import ANCHOR, DUPLICATE, all_gone, without_gone
from stream.judge.state.removal import Removal
from stream.messages.byte_strings import StringColumn
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store import reclaim
from stream.tables.store.rocks import ANCHORS, DUPLICATES, LOG, URLS, Store
from stream.tables.tables import REMOVED_AT_ONCE
from tests.judged_crawls import crawl, entries_of, judge_all, open_state
from tests.oracle import OraclePage
from tests.unit.test_page_log import raise_first

PAGES = 3000


def reference(kind: int, number: int) -> bytes:
    return bytes([kind]) + number.to_bytes(8, "little")


def a(number: int) -> bytes:
    return reference(ANCHOR, number)


def d(number: int) -> bytes:
    return reference(DUPLICATE, number)


def test_each_reference_is_there_by_itself() -> None:
    first = PageNumbers(5, 100)
    values = [a(4), a(5), d(99), d(100), a(4) + d(99), a(4) + d(100), d(99) + a(5), a(2**40) + d(2**40)]
    assert all_gone(values, first).tolist() == [True, False, True, False, True, False, False, False]
    assert [without_gone(value, first) for value in values] == [
        b"", a(5), b"", d(100), b"", d(100), a(5), a(2**40) + d(2**40),
    ]  # fmt: skip
    assert all_gone([], first).tolist() == []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state", 1 << 20) as opened:
        yield opened


class Inline(ThreadPoolExecutor):
    """Does at once what is submitted."""

    def submit(self, do: Callable[..., object], /, *args: object, **named: object) -> Future[Any]:
        done = Future[Any]()
        done.set_result(do(*args, **named))
        return done


@pytest.fixture
def without_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (removal, reclaim):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Inline)


def key_of(number: int) -> bytes:
    return (number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big") + bytes(8)


def add(store: Store, log: PageLog, count: int) -> None:
    first = log.count
    words = np.arange(5 * count, dtype=np.uint64).reshape(-1, 5)
    batch, added = store.batch(), log.prepare(words, StringColumn.utf8([""] * count))
    log.advance(added)
    log.write(batch, added)
    batch.put_many(URLS, ((key_of(number), a(number)) for number in range(first, first + count)))
    store.write(batch)


def urls(store: Store) -> set[bytes]:
    return {key for key, _ in store.scan(URLS)}


def test_urls_whose_pages_are_gone_are_swept(store: Store) -> None:
    log = PageLog(store, ANCHORS, 5)
    add(store, log, PAGES)
    sweeping = Removal(store, log, PageLog(store, DUPLICATES, 5))
    for first in (0, 700, 700, 2000, PAGES):
        raise_first(store, log, first)
        sweeping.advance(wait=True)
        assert urls(store) == {key_of(number) for number in range(first, PAGES)}
    sweeping.close()


@pytest.mark.usefixtures("without_thread")
def test_a_window_that_moves_keeps_few_urls_too_many(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "LEAST_SWEPT", 64)
    log, window = PageLog(store, ANCHORS, 5), 1000
    sweeping, most = Removal(store, log, PageLog(store, DUPLICATES, 5)), 0
    for turn in range(120):
        add(store, log, 100)
        raise_first(store, log, max(0, log.count - window))
        sweeping.advance(wait=False)
        if turn == 60:  # another process goes on
            sweeping.close()
            log = PageLog(store, ANCHORS, 5)
            sweeping = Removal(store, log, PageLog(store, DUPLICATES, 5))
        held = urls(store)
        assert {key_of(number) for number in range(log.first, log.count)} <= held
        most = max(most, len(held))
        groups = [int.from_bytes(key, "big") for key, _ in store.scan(ANCHORS)]
        assert groups[0] >= log.first - 8 - window // REMOVED_AT_ONCE
    assert most < 4.5 * window, "of 12 times as many"
    sweeping.close()


@pytest.fixture
def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many URLs were looked at in each step."""
    some, counts = store.some, list[int]()

    def counted(family: str, start: bytes, most: int) -> list[tuple[bytes, bytes]]:
        counts.append(most)
        return some(family, start, most)

    monkeypatch.setattr(store, "some", counted)
    return counts


def test_nothing_is_looked_at_where_nothing_is_gone(store: Store, asked: list[int]) -> None:
    log = PageLog(store, ANCHORS, 5)
    sweeping = Removal(store, log, PageLog(store, DUPLICATES, 5))
    add(store, log, PAGES)
    sweeping.advance(wait=False)
    sweeping.advance(wait=True)
    sweeping.close()
    assert not asked


@pytest.mark.usefixtures("without_thread")
def test_a_step_is_as_long_as_pages_were_added(store: Store, asked: list[int]) -> None:
    log = PageLog(store, ANCHORS, 5)
    sweeping = Removal(store, log, PageLog(store, DUPLICATES, 5))
    add(store, log, PAGES)
    raise_first(store, log, 9)
    sweeping.advance(wait=False)
    sweeping.advance(wait=False)
    assert asked == [PAGES]
    add(store, log, removal.LEAST_SWEPT - 1)
    sweeping.advance(wait=False)
    assert asked == [PAGES]
    add(store, log, 1)
    sweeping.advance(wait=False)
    assert asked == [PAGES, removal.LEAST_SWEPT]
    sweeping.close()


@pytest.mark.usefixtures("without_thread")
def test_urls_that_are_written_after_they_were_looked_at_stay(store: Store) -> None:
    """A page that expired comes again before its URL is removed."""
    log = PageLog(store, ANCHORS, 5)
    sweeping = Removal(store, log, PageLog(store, DUPLICATES, 5))
    add(store, log, PAGES)
    raise_first(store, log, PAGES)
    sweeping.advance(wait=False)
    batch, again = store.batch(), {key_of(7): a(PAGES), key_of(8): a(PAGES + 1)}
    batch.put_many(URLS, again.items())
    sweeping.note_written(again)
    store.write(batch)
    sweeping.advance(wait=True)
    assert urls(store) == set(again)
    sweeping.close()


@pytest.mark.parametrize("cut", [0.4, 1.0])
def test_the_digest_of_a_state_does_not_see_what_is_removed(tmp_path: Path, cut: float) -> None:
    entries = entries_of(cast("list[OraclePage]", crawl(3, 500, dense=True)), 3)
    state, genesis = open_state(tmp_path / "a", VerdictOptions(), memory=0, generation=40)
    judge_all(Judge(state, genesis), entries, 3)
    before, next_ = state.digest(), state.next
    first = PageNumbers(int(next_.anchors * cut), int(next_.duplicates * cut))
    writes = state.store.batch()
    state.raise_first(writes, first)
    state.store.write(writes)
    assert state.first == first
    digest, stored = state.digest(), len(urls(state.store))
    assert digest != before
    state.maintain(wait=True)
    state.maintain(wait=True)
    assert state.digest() == digest
    assert len(urls(state.store)) < stored
    assert bool(urls(state.store)) == (cut < 1)
    keys = [int.from_bytes(key, "big") for key, _ in state.store.scan(ANCHORS)]
    assert keys == list(range(first.anchors - first.anchors % 8, next_.anchors - 7, 8))
    assert not any(int.from_bytes(key, "big") < first.anchors - 256 for key, _ in state.store.scan(LOG))
    state.close()
