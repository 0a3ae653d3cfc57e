"""Anchors, and the duplicates that are their URLs' baselines: by number, eight to a key of RocksDB.

A key costs RocksDB as much as the bytes behind it, written and read. What fills no group yet is one record of
the default family, so each group is written once, and after those before it: files of such keys go from level
to level as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stream.compiled import compiled, copy_bytes
from stream.errors import DamagedStateError
from stream.messages.texts import Texts
from stream.tables.arrays import I64, U8, U64, distinct
from stream.tables.failures import damaged
from stream.tables.rocks import DEFAULT, Batch, Store
from stream.tables.words import words_of

GROUP: Final = 8
"""Pages a key."""
HEAD: Final = 2
"""Words before a page's fingerprint: its id; the mask of tables that an anchor did not enter, or a
duplicate's cluster."""
_PREFIX: Final = b"pages/"
_END: Final = 4  # bytes of the place where a URL ends, u32 LE


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """m of the pages."""

    words: U64
    """(m, words)"""
    _urls: Texts

    def url(self, place: int) -> str:
        """URL of the page at that index."""
        first, end = self._urls.edges[place : place + 2].tolist()
        return self._urls.data[first:end].tobytes().decode()


@dataclass(frozen=True, slots=True, eq=False)
class Added:
    """How a log stands once the pages are added that come next."""

    count: int
    """Of all pages."""
    groups: dict[bytes, bytes]
    """Key -> value of each group that these fill."""
    last: bytes
    """The group that is not full."""


class PageLog:
    """Pages numbered 0, 1, 2, ... in the order they came. One writer; between `advance` and `write` readers
    find in RAM what RocksDB has not.

    A group is the ends of its URLs, u32 LE, counted from where the first begins; the words of each page, u64
    LE; the URLs in UTF-8. The first word is the page's id: no page has a smaller one than the page before.
    """

    def __init__(self, store: Store, family: str, words: int) -> None:
        self._store, self._family = store, family
        self._size = 8 * words
        self._last = _PREFIX + family.encode()
        stored = store.get(DEFAULT, [self._last])[0] or bytes(8)
        # Replaced as a whole, and read once by who reads: nobody sees one part of it without the other.
        self._now = Added(int.from_bytes(stored[:8], "little"), {}, stored[8:])

    @property
    def count(self) -> int:
        """Pages added so far; the next one's number."""
        return self._now.count

    def pages(self, numbers: I64) -> Pages:
        """The pages of these numbers, which ascend. Raises DamagedStateError where there are none."""
        now = self._now
        if len(numbers) and numbers[-1] >= now.count:
            raise self._none(int(numbers[-1]))
        group = numbers // GROUP
        groups = distinct(group)
        values = self._groups(groups, now)
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        base = np.cumsum(sizes) - sizes
        held = np.where(groups == now.count // GROUP, now.count % GROUP, GROUP)
        of = np.searchsorted(groups, group)
        data = np.frombuffer(bytearray().join(values), np.uint8)
        short = np.flatnonzero(sizes < held * (_END + self._size))  # compiled loops look at no bounds
        if len(short):
            raise self._damaged(groups[short[0]])
        ends = base + sizes
        words, urls, edges = _take(data, base[of], held[of], ends[of], numbers - group * GROUP, self._size)
        if len(edges) <= len(numbers):
            raise self._damaged(group[len(edges) - 1])
        return Pages(words.view("<u8").astype(np.uint64, copy=False), Texts(urls, edges))

    def _groups(self, groups: I64, now: Added) -> list[bytes]:
        """Their values: out of RAM as `now` has them, or of RocksDB, which had the others before that."""
        keys = [_key(group * GROUP) for group in groups.tolist()]
        values = [now.groups.get(key) for key in keys]
        if keys and groups[-1] == now.count // GROUP:
            values[-1] = now.last
        found = iter(
            self._store.get(
                self._family, [key for key, value in zip(keys, values, strict=True) if value is None]
            )
        )
        values = [next(found) if value is None else value for value in values]
        for group, value in zip(groups.tolist(), values, strict=True):
            if value is None:
                raise self._none(group * GROUP)
        return values  # type: ignore[return-value]  # none is None

    def _none(self, number: int) -> DamagedStateError:
        return damaged(self._store.path, f"{self._family} have no record of {number}")

    def _damaged(self, group: int) -> DamagedStateError:
        return damaged(self._store.path, f"{self._family} from {group * GROUP} on")

    def number_of(self, page: int) -> int | None:
        """The number of the page with that id."""

        def page_at(number: int) -> int:
            return int(self.pages(np.array([number])).words[0, 0])

        number = bisect_left(range(self.count), page, key=page_at)
        return number if number < self.count and page_at(number) == page else None

    def scan(self) -> Iterator[U64]:
        """The words of all pages in order, (k, words) a group; not between `advance` and `write`."""
        group = 0
        for key, value in self._store.scan(self._family):
            if key != _key(group * GROUP):
                raise self._none(group * GROUP)
            yield self._words(value, group, GROUP)
            group += 1
        if group != self.count // GROUP:
            raise self._none(group * GROUP)
        if held := self.count % GROUP:
            yield self._words(self._now.last, group, held)

    def _words(self, value: bytes, group: int, held: int) -> U64:
        part = value[_END * held : (_END + self._size) * held]
        if len(part) != self._size * held:
            raise self._damaged(group)
        return np.frombuffer(part, "<u8").astype(np.uint64, copy=False).reshape(held, -1)

    def prepare(self, words: U64, urls: Sequence[str]) -> Added:
        """n pages that come next, their words (n, words) and URLs; changes nothing."""
        if not len(words):
            return Added(self.count, {}, self._now.last)
        held = self.count % GROUP
        before = self.pages(np.arange(self.count - held, self.count))
        rows = np.ascontiguousarray(np.concatenate([before.words, words]), "<u8").view(np.uint8)
        texts = Texts.utf8([*map(before.url, range(held)), *urls])
        bounds = np.append(np.arange(0, len(rows), GROUP), len(rows))
        edges = texts.edges[bounds] + bounds * (_END + self._size)
        packed = np.empty(edges[-1], np.uint8)
        _pack(rows.ravel(), self._size, texts, packed)
        values = Texts(packed, edges).strings()
        count = self.count + len(words)
        last = values.pop() if count % GROUP else b""
        first = self.count - held
        keys = [_key(number) for number in range(first, first + len(values) * GROUP, GROUP)]
        return Added(count, dict(zip(keys, values, strict=True)), last)

    def advance(self, added: Added) -> None:
        """Take them over in RAM; those before them must have been written."""
        self._now = added

    def write(self, batch: Batch, added: Added) -> None:
        """Add them to what `batch` writes."""
        batch.put_many(self._family, added.groups.items())
        batch.put(DEFAULT, self._last, added.count.to_bytes(8, "little") + added.last)


def record_words(width: int, sketch_bytes: int) -> int:
    """Words of a page."""
    return HEAD + words_of(width) + sketch_bytes // 8


def _key(number: int) -> bytes:
    """Of the group that begins with that page."""
    return number.to_bytes(8, "big")


@compiled
def _pack(rows: U8, size: int, urls: Texts, out: U8) -> None:
    at, count = 0, len(urls.edges) - 1
    for first in range(0, count, GROUP):
        held = min(GROUP, count - first)
        start = urls.edges[first]
        for place in range(held):
            end = urls.edges[first + place + 1] - start
            for byte in range(_END):
                out[at + byte] = (end >> (8 * byte)) & 255
            at += _END
        copy_bytes(out, at, rows, first * size, held * size)
        at += held * size
        length = urls.edges[first + held] - start
        copy_bytes(out, at, urls.data, start, length)
        at += length


@compiled
def _take(data: U8, base: I64, held: I64, ends: I64, place: I64, size: int) -> tuple[U8, U8, I64]:
    """Words (m, size), URLs and their edges (m + 1,) of the pages at `place` in groups that begin at `base`,
    hold so many and end at `ends`; fewer edges, up to a page whose URL would not lie in its group."""
    count = len(place)
    begins, edges = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    words = np.empty(count * size, np.uint8)
    for row in range(count):
        start, within = base[row], place[row]
        rows = start + held[row] * _END
        copy_bytes(words, row * size, data, rows + within * size, size)
        before = _end(data, start + (within - 1) * _END) if within else np.int64(0)
        begins[row] = rows + held[row] * size + before
        length = _end(data, start + within * _END) - before
        if length < 0 or begins[row] + length > ends[row]:
            return words.reshape(count, size), words[:0], edges[: row + 1]
        edges[row + 1] = edges[row] + length
    urls = np.empty(edges[count], np.uint8)
    for row in range(count):
        copy_bytes(urls, edges[row], data, begins[row], edges[row + 1] - edges[row])
    return words.reshape(count, size), urls, edges


@compiled
def _end(data: U8, at: int) -> np.int64:
    end = np.int64(0)
    for byte in range(_END):
        end |= np.int64(data[at + byte]) << (8 * byte)
    return end
