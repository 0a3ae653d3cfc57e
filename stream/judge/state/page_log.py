"""Append-only logs of pages in RocksDB, in groups of eight per key.

One holds the anchors, the other the duplicates that are baselines of their URL. Grouping pays because a key
costs RocksDB as much as its value. An incomplete group is a record of the default family, so that each group
is written once and in order. RocksDB then moves files between levels without rewriting them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np

from stream.compiled import compiled, copy_bytes
from stream.errors import DamagedStateError
from stream.fingerprint.lanes import words_of
from stream.messages.byte_strings import StringColumn, Texts
from stream.messages.row_columns import digests_in
from stream.tables.arrays import I64, U8, U64, distinct
from stream.tables.store.failures import damage_error
from stream.tables.store.rocks import DEFAULT, Store, Writes

GROUP: Final = 8
"""Pages per key."""
URL_DIGEST: Final = slice(2, 4)
"""The words of a page that are the digest of its URL."""
HEAD: Final = 4
"""Words before a page's fingerprint: the page id; the mask of tables that an anchor did not enter, or the
cluster of a duplicate; and the digest of its URL."""
HAS_OLDER: Final = np.uint64(1 << 63)
"""A bit of an anchor's mask, where pages have a lifetime: its URL had baselines before it, so a turn that
carries it must read which."""
OF_ANCHOR: Final = 1
"""Words after a duplicate's sketch: the number of its cluster's anchor."""
GROUPS_AT_ONCE: Final = 256
PART_BYTES: Final = 8 << 20
"""Groups read at once, and bytes of groups from which pages are taken at once. A group has the whole URLs of
eight pages, up to 32 KiB each, whichever are wanted."""
SEARCHED_AT_ONCE: Final = 1 << 12
"""Pages read at once to find one by its id."""
LEAST_KEPT: Final = 8 << 10
"""Bytes of URLs that are kept in memory however few pages they are of."""
_PREFIX: Final = b"pages/"
_HEAD_BYTES: Final = 16  # of the record: numbers of the first page and of the next one, u64 LE each
_END: Final = 4  # bytes of the end position of a URL, u32 LE


@dataclass(frozen=True, slots=True, eq=False)
class LoggedPages:
    """m pages read from a log."""

    words: U64
    """(m, lanes)."""
    url_bytes: I64
    """(m,): sizes of the URLs."""
    _urls: StringColumn | None
    """None if they take more memory than the words: most candidates are compared, and never named."""
    _numbers: I64
    _log: PageLog

    def merged(self, others: LoggedPages) -> LoggedPages:
        """Return these pages and others of the same log, in order of their numbers."""
        numbers, urls = np.append(self._numbers, others._numbers), None
        order = np.argsort(numbers)
        if self._urls is not None and others._urls is not None:
            urls = StringColumn.joined([self._urls, others._urls]).take(order)
        return LoggedPages(
            np.concatenate([self.words, others.words])[order],
            np.append(self.url_bytes, others.url_bytes)[order],
            urls,
            numbers[order],
            self._log,
        )

    def url(self, place: int) -> str:
        """Return the URL of the page at index `place`."""
        if self._urls is not None:
            return self._urls.text(place)
        return self.urls(np.array([place])).text(0)

    def url_digests(self) -> list[bytes]:
        """Return the digest of each page's URL (m,)."""
        return digests_in(np.ascontiguousarray(self.words[:, URL_DIGEST], "<u8"))

    def masks(self) -> U64:
        """Return the mask of each anchor's skipped tables and reserves (m,)."""
        return self.words[:, 1] & ~HAS_OLDER

    def take(self, places: I64) -> LoggedPages:
        """Return the pages at these indexes (k,), which ascend."""
        urls = None if self._urls is None else self._urls.take(places)
        return LoggedPages(self.words[places], self.url_bytes[places], urls, self._numbers[places], self._log)

    def urls(self, places: I64) -> StringColumn:
        """Return the URLs (k,) of the pages at these indexes, which may repeat. Large ones are read again."""
        if self._urls is not None:
            return self._urls.take(places)
        some = distinct(places)
        again = self._log.pages(self._numbers[some], keep_urls=True)
        return again.urls(np.searchsorted(some, places))


class _Part(NamedTuple):
    """The first columns of `LoggedPages`."""

    words: U64
    url_bytes: I64
    urls: StringColumn | None


@dataclass(frozen=True, slots=True, eq=False)
class Added:
    """The state of a log after some pages were added."""

    count: int
    """Number of the next page."""
    groups: list[bytes]
    """The values of the groups that were completed."""
    last: bytes
    """The incomplete group."""

    @property
    def first(self) -> int:
        """The group that was completed first."""
        return self.count // GROUP - len(self.groups)


class PageLog:
    """A log of pages numbered in order, from `first` on, with one writer. The first pages may go.

    Between `advance` and `write`, readers see added pages from RAM, before they are in RocksDB.

    The value of a group consists of the end positions of its URLs (u32 LE, from the start of the first), the
    words of each page (u64 LE), and the URLs in UTF-8. The first word is the page id; ids ascend, but for
    those of pages that were carried (rule 23).
    """

    def __init__(self, store: Store, family: str, words: int) -> None:
        self._store, self._family = store, family
        self._size = 8 * words
        self._last = _PREFIX + family.encode()
        stored = store.get(DEFAULT, [self._last])[0] or bytes(_HEAD_BYTES)
        self.first = int.from_bytes(stored[:8], "little")
        """Number of the first page. Those before it are gone, though they may still be in RocksDB."""
        self._removed = 0  # groups before this page were removed by this process
        # Always replaced as a whole and read once, so that readers see a consistent state.
        self._now = Added(int.from_bytes(stored[8:_HEAD_BYTES], "little"), [], stored[_HEAD_BYTES:])

    @property
    def start(self) -> bytes:
        """The key of the group that has the first page."""
        return _key(self.first - self.first % GROUP)

    @property
    def count(self) -> int:
        """Number of pages ever added, which is the number of the next page."""
        return self._now.count

    def pages(self, numbers: I64, *, keep_urls: bool = False) -> LoggedPages:
        """Read the pages with these ascending numbers. Raises DamagedStateError for missing ones, among them
        those before the first.

        URLs that take more memory than the rest are read again when they are requested, unless `keep_urls`.
        """
        if len(numbers) and numbers[0] < self.first:
            raise self._none(int(numbers[0]))
        return self._pages(numbers, keep_urls)

    def _pages(self, numbers: I64, keep_urls: bool) -> LoggedPages:
        now = self._now
        if len(numbers) and numbers[-1] >= now.count:
            raise self._none(int(numbers[-1]))
        group = numbers // GROUP
        groups = distinct(group)
        parts: list[_Part] = []
        start = 0
        for some, values in self._values(groups, now):
            end = int(np.searchsorted(group, some[-1], "right")) if len(some) else 0
            part = slice(start, end)
            parts.append(self._part(numbers[part], group[part], some, values, now, keep_urls))
            start = end
        if len(parts) == 1:
            return LoggedPages(*parts[0], numbers, self)
        words, url_bytes, urls = zip(*parts, strict=True)
        whole = None if None in urls else StringColumn.joined(urls)
        return LoggedPages(np.concatenate(words), np.concatenate(url_bytes), whole, numbers, self)

    def _values(self, groups: I64, now: Added) -> Iterator[tuple[I64, list[bytes]]]:
        """Read groups. Yields some of them with their values, of little more than PART_BYTES."""
        values: list[bytes] = []
        first = size = 0
        for end in range(GROUPS_AT_ONCE, len(groups) + GROUPS_AT_ONCE, GROUPS_AT_ONCE):
            more = self._groups(groups[end - GROUPS_AT_ONCE : end], now)
            values += more
            size += sum(map(len, more))
            if size >= PART_BYTES and end < len(groups):
                yield groups[first:end], values
                values, size, first = [], 0, end
        yield groups[first:], values

    def _part(
        self, numbers: I64, group: I64, groups: I64, values: list[bytes], now: Added, keep_urls: bool
    ) -> _Part:
        """Take pages with these numbers, each of its group, from the values of `groups`."""
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        base = np.cumsum(sizes) - sizes
        held = np.where(groups == now.count // GROUP, now.count % GROUP, GROUP)
        of = np.searchsorted(groups, group)
        data = np.frombuffer(bytearray().join(values), np.uint8)
        short = np.flatnonzero(sizes < held * (_END + self._size))  # compiled loops do not check bounds
        if len(short):
            raise self._damaged(groups[short[0]])
        ends = base + sizes
        words, urls, edges = _take(data, base[of], held[of], ends[of], numbers - group * GROUP, self._size)
        if len(edges) <= len(numbers):
            raise self._damaged(group[len(edges) - 1])
        column = Texts(urls, edges).column()
        kept = keep_urls or len(urls) <= max(len(words) * self._size, LEAST_KEPT)
        lanes = words.view("<u8").astype(np.uint64, copy=False)
        return _Part(lanes, column.sizes, column if kept else None)

    def _groups(self, groups: I64, now: Added) -> list[bytes]:
        """Return the values of groups. Raises DamagedStateError for a missing one."""
        values = self._present(groups, now)
        for group, value in zip(groups.tolist(), values, strict=True):
            if value is None:
                raise self._none(group * GROUP)
        return values  # type: ignore[return-value]  # no value is None

    def _present(self, groups: I64, now: Added) -> list[bytes | None]:
        """Return the values of groups, from RAM if in `now`, else from RocksDB; None for missing ones."""
        stored = np.searchsorted(groups, now.first)
        values = self._store.get(self._family, _keys(groups[:stored]))
        complete = len(now.groups)
        later = (groups[stored:] - now.first).tolist()
        return values + [now.groups[each] if each < complete else now.last for each in later]

    def _none(self, number: int) -> DamagedStateError:
        return damage_error(self._store.path, f"{self._family} have no record of {number}")

    def _damaged(self, group: int) -> DamagedStateError:
        return damage_error(self._store.path, f"{self._family} from {group * GROUP} on")

    def number_of(self, page: int, *, ascending: bool) -> int | None:
        """Return the number of the page with this id; None if no page has it. `ascending` says that ids
        ascend with numbers; otherwise pages are read one after the other, the last ones first."""
        first, end = self.first, self.count
        if ascending:
            while first < end:
                middle = (first + end) // 2
                if self._ids(np.array([middle]))[0] < page:
                    first = middle + 1
                else:
                    end = middle
            is_there = first < self.count and self._ids(np.array([first]))[0] == page
            return first if is_there else None
        while end > first:
            start = max(first, end - SEARCHED_AT_ONCE)
            places = np.flatnonzero(self._ids(np.arange(start, end)) == page)
            if len(places):
                return start + int(places[-1])
            end = start
        return None

    def _ids(self, numbers: I64) -> I64:
        """Return the ids of the pages with these ascending numbers."""
        ids: I64 = self.pages(numbers).words[:, 0].astype(np.int64)
        return ids

    def scan(self) -> Iterator[U64]:
        """Yield the words (k, words) of the pages of each group, in order. Not allowed between `advance` and
        `write`."""
        group, before = self.first // GROUP, self.first % GROUP
        for key, value in self._store.scan(self._family, self.start):
            if key != _key(group * GROUP):
                raise self._none(group * GROUP)
            yield self._words(value, group, GROUP)[before:]
            group, before = group + 1, 0
        if group != self.count // GROUP:
            raise self._none(group * GROUP)
        if held := self.count % GROUP:
            yield self._words(self._now.last, group, held)[before:]

    def _words(self, value: bytes, group: int, held: int) -> U64:
        part = value[_END * held : (_END + self._size) * held]
        if len(part) != self._size * held:
            raise self._damaged(group)
        return np.frombuffer(part, "<u8").astype(np.uint64, copy=False).reshape(held, -1)

    def prepare(self, words: U64, urls: StringColumn) -> Added:
        """Encode n further pages, given by words (n, lanes) and URLs, without adding them."""
        if not len(words):
            return Added(self.count, [], self._now.last)
        held = self.count % GROUP
        before = self._pages(np.arange(self.count - held, self.count), keep_urls=True)
        urls_before = before.urls(np.arange(held))
        rows = np.ascontiguousarray(np.concatenate([before.words, words]), "<u8").view(np.uint8)
        texts = _joined(urls_before, urls)
        bounds = np.append(np.arange(0, len(rows), GROUP), len(rows))
        edges = texts.edges[bounds] + bounds * (_END + self._size)
        packed = np.empty(edges[-1], np.uint8)
        _pack(rows.ravel(), self._size, texts, packed)
        values = Texts(packed, edges).strings()
        count = self.count + len(words)
        last = values.pop() if count % GROUP else b""
        return Added(count, values, last)

    def blank(self, numbers: I64, words: I64) -> None:
        """Remove the URLs and these words of the pages with these ascending numbers, in the store. Pages that
        are gone are left out. Not allowed between `advance` and `write`."""
        groups = numbers // GROUP
        every = distinct(groups)
        for start in range(0, len(every), GROUPS_AT_ONCE):
            some, now, batch = every[start : start + GROUPS_AT_ONCE], self._now, self._store.batch()
            last = now.last
            for group, value in zip(some.tolist(), self._present(some, now), strict=True):
                if value is None and (group + 1) * GROUP <= self.first:
                    continue
                if value is None:
                    raise self._none(group * GROUP)
                held = min(GROUP, now.count - group * GROUP)
                places = numbers[groups == group] - group * GROUP
                blanked = self._blanked(value, group, held, places, words)
                if held == GROUP:
                    batch.put(self._family, _key(group * GROUP), blanked)
                else:
                    last = blanked
            blank = Added(now.count, [], last)
            self.write(batch, blank)
            self._store.write(batch)
            self._now = blank

    def _blanked(self, value: bytes, group: int, held: int, places: I64, words: I64) -> bytes:
        """Return the value of a group without the URLs and these words of the pages at some places."""
        rows = self._words(value, group, held).copy()
        rows[places[:, None], words] = 0
        start = (_END + self._size) * held
        edges = [0, *np.frombuffer(value, "<u4", held).tolist()]
        urls = [value[start + edges[at] : start + edges[at + 1]] for at in range(held)]
        for place in places.tolist():
            urls[place] = b""
        ends = np.cumsum([len(url) for url in urls]).astype("<u4")
        return ends.tobytes() + rows.astype("<u8").tobytes() + b"".join(urls)

    def advance(self, added: Added) -> None:
        """Add pages in RAM. Previously added ones must have been written."""
        self._now = added

    def write(self, batch: Writes, added: Added) -> None:
        """Add the added pages to the write batch `batch`."""
        keys = _keys(np.arange(added.first, added.first + len(added.groups)))
        batch.put_many(self._family, zip(keys, added.groups, strict=True))
        self._put_head(batch, added)

    def _put_head(self, batch: Writes, added: Added) -> None:
        head = np.array([self.first, added.count], "<u8").tobytes()
        batch.put(DEFAULT, self._last, head + added.last)

    def raise_first(self, batch: Writes, first: int) -> None:
        """Let the pages begin at `first`: those before it are gone at once. The caller writes `batch`, with
        the pages that were added in RAM. What they take is told by `take_removable`."""
        if not self.first <= first <= self.count:
            raise ValueError(f"{self._family} must begin from {self.first} on, and not after {self.count}")
        self.first = first
        self._put_head(batch, self._now)

    def take_removable(self, share: int) -> tuple[bytes, bytes] | None:
        """The bounds of the keys of groups that are gone, for the caller to remove, if they are a `share`-th
        of what is left or more. They are told once."""
        bounds = _key(self._removed), self.start
        if bounds[0] >= bounds[1] or share * (self.first - self._removed) < self.count - self.first:
            return None
        self._removed = self.first - self.first % GROUP
        return bounds


def record_words(width: int, sketch_bytes: int) -> int:
    """Return the number of words per page."""
    return HEAD + words_of(width) + sketch_bytes // 8


def _key(number: int) -> bytes:
    """Return the key of the group that starts with page `number`."""
    return number.to_bytes(8, "big")


def _keys(groups: I64) -> list[bytes]:
    """Return the keys of groups (n,)."""
    return cast(list[bytes], (GROUP * groups).astype(">u8").view("V8").tolist())


@compiled
def _joined(first: StringColumn, then: StringColumn) -> Texts:
    """Copy two sets of strings into one buffer; None is empty."""
    held = len(first.sizes)
    edges = np.zeros(held + len(then.sizes) + 1, np.int64)
    for row in range(held):
        edges[row + 1] = edges[row] + first.sizes[row]
    for row in range(len(then.sizes)):
        edges[held + row + 1] = edges[held + row] + max(0, then.sizes[row])
    data = np.empty(edges[-1], np.uint8)
    for row in range(held):
        copy_bytes(data, edges[row], first.data, first.starts[row], first.sizes[row])
    for row in range(len(then.sizes)):
        copy_bytes(data, edges[held + row], then.data, then.starts[row], max(0, then.sizes[row]))
    return Texts(data, edges)


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
    """Extract m pages from groups: words (m, size), URLs, and the edges of URLs (m + 1,).

    Page i is at index `place[i]` of a group at `data[base[i]:ends[i]]` with `held[i]` pages. Fewer edges are
    returned if a URL exceeds its group: they end at that page.
    """
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
