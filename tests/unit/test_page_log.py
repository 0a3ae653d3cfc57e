"""Remembered pages by number: what comes back is what went in, however batches cut it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from stream.errors import DamagedStateError, StateError
from stream.judge.state import page_log
from stream.judge.state.page_log import GROUP, PageLog
from stream.judge.state.pages_ahead import PagesAhead
from stream.messages.byte_strings import StringColumn
from stream.tables.store.rocks import ANCHORS, DUPLICATES, Store

WORDS = 5
COUNT = 61
URLS = [f"https://example.org/{'中é' * (i % 7)}{'x' * (i * 131 % 500)}" for i in range(COUNT)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state", 1 << 20) as opened:
        yield opened


def rows() -> np.ndarray:
    words = np.random.default_rng(4).integers(0, 1 << 64, (COUNT, WORDS), dtype=np.uint64)
    words[:, 0] = np.arange(COUNT) * 3  # ids of pages ascend
    return words


def add(store: Store, log: PageLog, words: np.ndarray, urls: Sequence[str]) -> None:
    batch, added = store.batch(), log.prepare(words, StringColumn.utf8(urls))
    log.advance(added)
    log.write(batch, added)
    store.write(batch)


def fill(store: Store, sizes: Sequence[int], family: str = ANCHORS) -> PageLog:
    log, words, first = PageLog(store, family, WORDS), rows(), 0
    for size in sizes:
        add(store, log, words[first : first + size], URLS[first : first + size])
        first += size
    return log


def assert_holds_all(log: PageLog) -> None:
    assert log.count == COUNT
    pages = log.pages(np.arange(COUNT))
    assert np.array_equal(pages.words, rows())
    assert [pages.url(place) for place in range(COUNT)] == URLS
    assert np.array_equal(np.concatenate(list(log.scan())), rows())


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_large_urls_are_read_when_they_are_asked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(page_log, "GROUPS_AT_ONCE", at_once)
    monkeypatch.setattr(page_log, "PART_BYTES", 5_000)
    monkeypatch.setattr(page_log, "LEAST_KEPT", 0)
    log, numbers = fill(store, [40, 21]), np.arange(3, COUNT)
    pages = log.pages(numbers)
    assert np.array_equal(pages.words, rows()[3:])
    assert pages.url_bytes.tolist() == [len(url.encode()) for url in URLS[3:]]
    sizes: list[int] = []
    read = PageLog.pages

    def counted(self: PageLog, some: np.ndarray, **how: bool) -> page_log.LoggedPages:
        sizes.append(len(some))
        return read(self, some, **how)

    monkeypatch.setattr(PageLog, "pages", counted)
    wanted = np.array([9, 1, 9, 50])
    assert pages.urls(wanted).texts() == [URLS[3 + place] for place in wanted]
    assert [pages.url(place) for place in (0, 57)] == [URLS[3], URLS[60]]
    assert sizes == [3, 1, 1], "only those"


@pytest.mark.parametrize("sizes", [[COUNT], [1] * COUNT, [0, 7, 1, 0, 9, 40, 4], [8, 8, 45]])
def test_pages_come_back_by_number(store: Store, sizes: list[int]) -> None:
    log = fill(store, sizes)
    assert_holds_all(log)
    some = np.array([0, 7, 8, 30, COUNT - 1])
    pages = log.pages(some)
    assert np.array_equal(pages.words, rows()[some])
    assert [pages.url(place) for place in range(len(some))] == [URLS[number] for number in some]
    assert log.pages(some[:0]).words.shape == (0, WORDS)


@pytest.mark.parametrize("count", [COUNT, COUNT - COUNT % GROUP, 3])
def test_the_same_pages_make_the_same_state_however_they_come(tmp_path: Path, count: int) -> None:
    digests = set()
    for name, sizes in (("whole", [count]), ("single", [1] * count), ("cut", [2, 0, count - 2])):
        with Store(tmp_path / name, 1 << 20) as store:
            fill(store, sizes)
            digests.add(store.digest())
    assert len(digests) == 1


def test_a_log_is_found_again_and_goes_on(tmp_path: Path) -> None:
    for first, end in ((0, 13), (13, 16), (16, COUNT)):
        with Store(tmp_path, 1 << 20) as store:
            log = PageLog(store, ANCHORS, WORDS)
            assert log.count == first
            add(store, log, rows()[first:end], URLS[first:end])
    with Store(tmp_path, 1 << 20, read_only=True) as store:
        assert_holds_all(PageLog(store, ANCHORS, WORDS))


def test_what_is_taken_over_is_read_before_it_is_written(store: Store) -> None:
    log = fill(store, [20])
    added = log.prepare(rows()[20:], StringColumn.utf8(URLS[20:]))
    assert log.count == 20  # nothing has changed
    log.advance(added)
    assert np.array_equal(log.pages(np.arange(COUNT)).words, rows())
    batch = store.batch()
    log.write(batch, added)
    store.write(batch)
    assert_holds_all(log)


def test_a_group_is_written_once(store: Store) -> None:
    """Files of groups never overlap: a compaction has nothing to merge."""
    log = fill(store, [13])
    added = log.prepare(rows()[13:40], StringColumn.utf8(URLS[13:40]))
    assert added.first == sum(1 for _ in store.scan(ANCHORS)) == 1


def test_families_count_for_themselves(store: Store) -> None:
    anchors, duplicates = fill(store, [11]), fill(store, [5], DUPLICATES)
    assert (anchors.count, duplicates.count) == (11, 5)
    assert PageLog(store, DUPLICATES, WORDS).count == 5


def test_a_page_is_found_by_its_id(store: Store) -> None:
    log = fill(store, [COUNT])
    for ascending in (True, False):

        def number_of(page: int, ascending: bool = ascending) -> int | None:
            return log.number_of(page, ascending=ascending)

        assert [number_of(3 * number) for number in range(COUNT)] == list(range(COUNT))
        assert [number_of(page) for page in (1, 3, 3 * COUNT)] == [None, 1, None]
        assert PageLog(store, DUPLICATES, WORDS).number_of(0, ascending=ascending) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: b"",
        lambda value: value[:20],
        lambda value: value[:-1],
        lambda value: value[:8] + b"\xff\xff\xff\x7f" + value[12:],
        lambda value: value[:8] + bytes(4) + value[12:],
    ],
)
def test_a_damaged_group_is_named(store: Store, spoil: Callable[[bytes], bytes]) -> None:
    fill(store, [20])
    key = (8).to_bytes(8, "big")
    (value,) = store.get(ANCHORS, [key])
    batch = store.batch()
    batch.put(ANCHORS, key, spoil(value or b""))
    store.write(batch)
    log = PageLog(store, ANCHORS, WORDS)
    with pytest.raises(StateError, match=r"damaged: anchors from 8 on"):
        log.pages(np.arange(20))
    assert log.pages(np.arange(8)).url(3) == URLS[3]


def test_a_number_without_a_record_is_named(store: Store) -> None:
    log = fill(store, [20])
    with pytest.raises(StateError, match=r"anchors have no record of 20"):
        log.pages(np.array([3, 20]))
    batch = store.batch()
    batch.delete(ANCHORS, (8).to_bytes(8, "big"))
    store.write(batch)
    with pytest.raises(StateError, match=r"anchors have no record of 8"):
        PageLog(store, ANCHORS, WORDS).pages(np.array([3, 9, 19]))


def raise_first(store: Store, log: PageLog, first: int) -> None:
    batch = store.batch()
    log.raise_first(batch, first)
    store.write(batch)


@pytest.mark.parametrize("first", [0, 3, 8, 20, 56, 60, COUNT])
def test_pages_before_the_first_are_gone(store: Store, first: int) -> None:
    log = fill(store, [40, COUNT - 40])
    raise_first(store, log, first)
    for each in (log, PageLog(store, ANCHORS, WORDS)):
        assert (each.first, each.count) == (first, COUNT)
        left = each.pages(np.arange(first, COUNT))
        assert np.array_equal(left.words, rows()[first:])
        assert np.array_equal(np.concatenate([rows()[:0], *each.scan()]), rows()[first:])
        if first:
            with pytest.raises(StateError, match=f"anchors have no record of {first - 1}"):
                each.pages(np.array([first - 1, COUNT - 1]))
            with pytest.raises(ValueError, match=f"must begin from {first} on, and not after {COUNT}"):
                each.raise_first(store.batch(), first - 1)
        with pytest.raises(ValueError, match="not after"):
            each.raise_first(store.batch(), COUNT + 1)


def test_what_is_added_may_be_raised_before_it_is_written(store: Store) -> None:
    log = fill(store, [20])
    batch, added = store.batch(), log.prepare(rows()[20:], StringColumn.utf8(URLS[20:]))
    log.advance(added)
    log.raise_first(batch, 59)
    log.write(batch, added)
    store.write(batch)
    assert np.array_equal(PageLog(store, ANCHORS, WORDS).pages(np.array([59, 60])).words, rows()[59:])


def test_groups_that_are_gone_are_removed_many_at_once(store: Store) -> None:
    log = fill(store, [COUNT])
    raise_first(store, log, 10)
    assert log.take_removable(4) is None  # they are less than a fourth of what is left
    raise_first(store, log, 25)
    bounds = log.take_removable(4)
    assert bounds is not None
    store.remove(ANCHORS, *bounds)
    assert [int.from_bytes(key, "big") for key, _ in store.scan(ANCHORS)] == [24, 32, 40, 48]
    assert log.take_removable(4) is None
    assert np.array_equal(log.pages(np.arange(25, COUNT)).words, rows()[25:])
    again = PageLog(store, ANCHORS, WORDS)
    bounds = again.take_removable(4)
    assert bounds is not None  # another process may have removed them
    store.remove(ANCHORS, *bounds)
    add(store, again, rows(), URLS)
    assert np.array_equal(again.pages(np.arange(COUNT, 2 * COUNT)).words, rows())


@pytest.mark.parametrize("numbers", [[3, 4, 9, 33, 50], [3, 9], [4], [0, 5, 60], [], [0, 3, 4, 33, 59, 60]])
def test_pages_that_were_read_ahead_are_those_of_the_log(store: Store, numbers: list[int]) -> None:
    """Of those that are asked for, all, some or none were read ahead, and others as well."""
    log, ahead = fill(store, [COUNT]), PagesAhead()
    wanted = np.array(numbers, np.int64)
    ahead.begin(log, np.array([3, 4, 9, 33, 50]))
    for _ in range(2):  # what was read ahead is forgotten then
        pages, plain = ahead.pages(log, wanted), log.pages(wanted)
        assert np.array_equal(pages.words, plain.words)
        assert np.array_equal(pages.url_bytes, plain.url_bytes)
        places = np.arange(len(wanted))
        assert pages.urls(places).strings() == plain.urls(places).strings()
    ahead.begin(log, np.array([COUNT]))
    with pytest.raises(DamagedStateError, match=f"no record of {COUNT}"):
        ahead.pages(log, wanted)
    ahead.close()
