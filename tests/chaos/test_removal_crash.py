"""Killed while what is gone is removed, and replayed: the pages and URLs that are left are all there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stream.judge.state import removal
from stream.judge.state.page_log import PageLog
from stream.judge.state.references import ANCHOR, DUPLICATE
from stream.judge.state.removal import Removal
from stream.messages.byte_strings import StringColumn
from stream.tables.store.rocks import ANCHORS, DEFAULT, DUPLICATES, URLS, Store
from tests import kills
from tests.night import cases

pytestmark = pytest.mark.chaos

APPLIED = b"test/applied"
TURNS = 60
PAGES = 37
WINDOW = 400
WORDS = 5


def reference(kind: int, number: int) -> bytes:
    return bytes([kind]) + number.to_bytes(8, "little")


def url_of(number: int) -> bytes:
    """A URL comes again after some time, or never."""
    key = number % 700 if number % 3 else number
    return np.array([key], np.uint64).tobytes() * 2


def replay(store: Store) -> None:
    """Apply the turns that are not applied yet: each adds pages, and all but the last ones go."""
    logs = PageLog(store, ANCHORS, WORDS), PageLog(store, DUPLICATES, WORDS)
    removing = Removal(store, *logs)
    applied = int.from_bytes(store.get(DEFAULT, [APPLIED])[0] or b"", "big")
    for turn in range(applied, TURNS):
        batch, urls = store.batch(), dict[bytes, bytes]()
        for kind, log in zip((ANCHOR, DUPLICATE), logs, strict=True):
            numbers = range(log.count, log.count + PAGES)
            added = log.prepare(words_of(numbers), StringColumn.utf8([f"u{number}" for number in numbers]))
            log.advance(added)
            log.write(batch, added)
            urls |= {url_of(2 * each + (kind == ANCHOR)): reference(kind, each) for each in numbers}
            log.raise_first(batch, max(0, log.count - WINDOW))
        batch.put_many(URLS, urls.items())
        removing.note_written(urls)
        batch.put(DEFAULT, APPLIED, (turn + 1).to_bytes(4, "big"))
        store.write(batch)
        removing.advance(wait=turn % 5 == 4)
        if turn % 3 == 2:
            store.flush()
    removing.advance(wait=True)
    removing.close()


def replay_in(path: Path) -> None:
    removal.LEAST_SWEPT = 16  # type: ignore[misc]
    replay(Store(path, 8 << 20))


def words_of(numbers: range) -> np.ndarray:
    return np.arange(numbers.start * WORDS, numbers.stop * WORDS, dtype=np.uint64).reshape(-1, WORDS)


FAILPOINTS = [
    ("sweep.urls",),
    ("sweep.urls:4", "drop.pages"),
    ("drop.pages:9", "sweep.urls:2", "flush:2"),
    ("flush:6", "drop.pages:4", "sweep.urls:3", "drop.pages:2"),
]


@pytest.mark.parametrize("number", cases(range(len(FAILPOINTS)), by_day=[2]))
def test_killed_while_pages_and_urls_are_removed(number: int, tmp_path: Path) -> None:
    for failpoint in FAILPOINTS[number]:
        kills.killed(failpoint, replay_in, tmp_path)
    with Store(tmp_path, 8 << 20) as store:
        replay(store)
        urls = {}
        for family in (ANCHORS, DUPLICATES):
            log = PageLog(store, family, WORDS)
            assert (log.first, log.count) == (TURNS * PAGES - WINDOW, TURNS * PAGES)
            left = range(log.first, log.count)
            pages = log.pages(np.arange(log.first, log.count))
            assert np.array_equal(pages.words, words_of(left))
            assert pages.url(0) == f"u{log.first}"
            first_group = next(iter(store.scan(family)))[0]
            assert int.from_bytes(first_group, "big") >= log.first - WINDOW // 50 - 8
        for number in range(TURNS * PAGES):
            for kind in (ANCHOR, DUPLICATE):
                urls[url_of(2 * number + (kind == ANCHOR))] = kind, number
        there = {url: reference(*page) for url, page in urls.items() if page[1] >= TURNS * PAGES - WINDOW}
        assert dict(store.scan(URLS)) == there
