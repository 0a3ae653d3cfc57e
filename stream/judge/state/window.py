"""The window of a state with a lifetime: which pages have not expired, and what turns need to know (rule 23).

Pages expire in order of their numbers. Log time is divided into slots; a mark says which numbers were given
before a slot began, so the next turns know how far they may go. What was named by a verdict is *hit*, a bit
for each page. Anchors that are carried get new numbers, and a forwarding table leads from the old ones there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np
import xxhash

from stream.judge.state.page_numbers import PageNumbers
from stream.tables.arrays import I64, U8, distinct
from stream.tables.store.anchors import with_prefix
from stream.tables.store.contents import digest, hash_words, union
from stream.tables.store.rocks import DEFAULT, Store, Writes

SLOTS: Final = 1024
"""Number of slots in a lifetime."""
LEAST_SLOT: Final = 1000
"""Milliseconds."""
MOST_EXPIRING: Final = 1 << 15
"""Most numbers of anchors, and as many of duplicates, that expire in a turn. It bounds how long one takes."""
CARRIED_URL_BYTES: Final = 32 << 20
"""Most bytes of URLs of the anchors that a turn carries, and as many of the duplicates. It bounds the memory
that a turn takes."""
ROWS_BETWEEN: Final = 1 << 14
"""Rows that are judged between turns as long as more pages have expired than a turn takes."""
_MARK: Final = b"turn/mark/"
_FORWARD: Final = b"turn/forward/"
_HIT_ANCHORS: Final = b"turn/hit/a/"
_HIT_DUPLICATES: Final = b"turn/hit/d/"
_BLOCK: Final = 4096
"""Pages whose hits are one record, of 512 bytes. Many hits of a batch then write few records, and few hits
few bytes."""
_BLOCK_BYTES: Final = _BLOCK // 8


class StoredWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a window in the meta record of a state."""

    lifetime: int
    """Seconds."""
    turned: int = -1
    """Log time of the last turn, in milliseconds since the epoch; -1 before any."""
    is_behind: bool = False
    """Whether pages that have expired by log time are left to the next turns."""
    admitted: int = 0
    """Rows judged since the last turn."""


class Mark(NamedTuple):
    """What was there at the first turn of a slot, after it."""

    time: int
    """Its log time, in milliseconds since the epoch."""
    anchors: int
    """Number of the next anchor: those before were judged, or carried, before that time."""
    duplicates: int
    """Number of the next duplicate."""
    oldest: int
    """Number of the first anchor that had not expired."""


class Expiry(NamedTuple):
    """How far expiry has come, as of the last turn."""

    oldest: int
    """Log time before which no page was judged, or carried, that has not expired, in milliseconds since the
    epoch; -1 before the first turn."""
    late_pages: int = 0
    """Pages that have expired by log time, and are left to the next turns."""
    late: int = 0
    """How much longer than a lifetime the oldest of these have lived, in milliseconds."""


def _digest_of_mark(mark: Mark) -> int:
    return xxhash.xxh3_64_intdigest(np.array(mark, "<i8").tobytes())


class Forwarding:
    """The new numbers of anchors that were carried."""

    def __init__(self, store: Store) -> None:
        self._blocks = deque[tuple[int, I64]]()
        """First new number, and the old ones, of each turn that carried anchors. Both ascend."""
        self._columns: I64 = np.zeros((2, 0), np.int64)
        """Old and new numbers of all blocks, from `_start` on; with room for more, because a turn adds few to
        many."""
        self._start = self.count = self.digest = 0
        for key, value in with_prefix(store, _FORWARD):
            self._add(int.from_bytes(key, "big"), np.frombuffer(value, "<i8").astype(np.int64))

    def _add(self, first: int, old: I64) -> None:
        start, end, n = self._start, self._start + self.count, len(old)
        if end + n > self._columns.shape[1]:
            grown = np.zeros((2, 2 * (self.count + n)), np.int64)
            grown[:, : self.count] = self._columns[:, start:end]
            self._columns, self._start, end = grown, 0, self.count
        self._columns[0, end : end + n] = old
        self._columns[1, end : end + n] = np.arange(first, first + n)
        self._blocks.append((first, old))
        self.count += n
        self.digest = union(self.digest, _digest_of(first, old))

    def present(self, anchors: I64) -> I64:
        """Return the present numbers (n,) of anchors, which may have been carried since."""
        if not self.count:
            return anchors
        before, after = self._columns[:, self._start : self._start + self.count]
        anchors = anchors.copy()
        while True:
            place = np.searchsorted(before, anchors).clip(max=len(before) - 1)
            carried = before[place] == anchors
            if not carried.any():
                return anchors
            anchors[carried] = after[place[carried]]

    def advance(self, writes: Writes, first: int, old: I64, least: int) -> None:
        """Add carried anchors with ascending old numbers, which get the numbers from `first` on, and drop
        what no record refers to: those below `least`."""
        if len(old):
            writes.put(DEFAULT, _FORWARD + first.to_bytes(8, "big"), old.astype("<i8").tobytes())
            self._add(first, old)
        while self._blocks and self._blocks[0][1][-1] < least:
            dropped, numbers = self._blocks.popleft()
            writes.delete(DEFAULT, _FORWARD + dropped.to_bytes(8, "big"))
            self._start += len(numbers)
            self.count -= len(numbers)
            self.digest = union(self.digest, -_digest_of(dropped, numbers))


def _digest_of(first: int, old: I64) -> int:
    return xxhash.xxh3_64_intdigest(old.tobytes(), seed=first)


class Hits:
    """The pages that verdicts named, anchors or duplicates, as a bitmap from a block of numbers on."""

    def __init__(self, store: Store, prefix: bytes, oldest: int) -> None:
        self._prefix = prefix
        self._first = oldest // _BLOCK
        """Number of the first block."""
        self._bits: U8 = np.zeros(_BLOCK_BYTES, np.uint8)
        self.count = self.digest = 0
        for key, value in with_prefix(store, prefix):
            block = int.from_bytes(key, "big")
            self._grow(block)
            at = (block - self._first) * _BLOCK_BYTES
            self._bits[at : at + _BLOCK_BYTES] = np.frombuffer(value, np.uint8)
            self._note(self._inside(block), 1)

    def _grow(self, block: int) -> None:
        need = (block - self._first + 1) * _BLOCK_BYTES
        if need > len(self._bits):
            grown = np.zeros(max(need, 2 * len(self._bits)), np.uint8)
            grown[: len(self._bits)] = self._bits
            self._bits = grown

    def _note(self, numbers: I64, sign: int) -> None:
        self.count += sign * len(numbers)
        self.digest = union(self.digest, sign * digest(hash_words(numbers.astype(np.uint64))))

    def _inside(self, block: int) -> I64:
        return self.between(block * _BLOCK, (block + 1) * _BLOCK)

    def between(self, start: int, end: int) -> I64:
        """Return the pages of [start, end) that were hit, ascending."""
        base = self._first * _BLOCK
        low, high = max(0, start - base), max(0, end - base)
        bits = np.unpackbits(self._bits[low // 8 : -(-high // 8)], bitorder="little")
        numbers: I64 = base + low // 8 * 8 + np.flatnonzero(bits)
        return numbers[(numbers >= start) & (numbers < end)]

    def add(self, writes: Writes, numbers: I64) -> None:
        """Note hits. Numbers before the first block have expired."""
        numbers = distinct(numbers)
        places = numbers - self._first * _BLOCK
        numbers, places = numbers[places >= 0], places[places >= 0]
        if not len(numbers):
            return
        self._grow(int(numbers[-1]) // _BLOCK)
        bit = (1 << (places & 7)).astype(np.uint8)
        new = self._bits[places >> 3] & bit == 0
        if not new.any():
            return
        np.bitwise_or.at(self._bits, places[new] >> 3, bit[new])
        self._note(numbers[new], 1)
        for block in distinct(numbers[new] // _BLOCK).tolist():
            at = (block - self._first) * _BLOCK_BYTES
            key = self._prefix + block.to_bytes(8, "big")
            writes.put(DEFAULT, key, self._bits[at : at + _BLOCK_BYTES].tobytes())

    def drop_before(self, writes: Writes, oldest: int) -> None:
        """Drop the blocks of pages that have all expired."""
        gone = oldest // _BLOCK - self._first
        if gone <= 0:
            return
        inside = self.between(self._first * _BLOCK, (self._first + gone) * _BLOCK)
        for block in distinct(inside // _BLOCK).tolist():
            writes.delete(DEFAULT, self._prefix + block.to_bytes(8, "big"))
        self._note(inside, -1)
        self._bits = np.append(self._bits[gone * _BLOCK_BYTES :], np.zeros(_BLOCK_BYTES, np.uint8))
        self._first += gone


class Window:
    """The window of a state, with one writer."""

    def __init__(self, store: Store, stored: StoredWindow, first: Callable[[], PageNumbers]) -> None:
        """`first` returns the numbers of the state's first anchor and first duplicate: those before them have
        expired."""
        self._first = first
        self.lifetime: Final = 1000 * stored.lifetime
        """Milliseconds."""
        self.slot: Final = max(LEAST_SLOT, self.lifetime // SLOTS)
        """Milliseconds."""
        self.turned, self.is_behind, self.admitted = stored.turned, stored.is_behind, stored.admitted
        self.marks = [
            Mark(int.from_bytes(key, "big"), *np.frombuffer(value, "<i8").tolist())
            for key, value in with_prefix(store, _MARK)
        ]
        self._marks_digest = union(*map(_digest_of_mark, self.marks))
        self.forwarding = Forwarding(store)
        oldest = first()
        self.hit_anchors = Hits(store, _HIT_ANCHORS, oldest.anchors)
        self.hit_duplicates = Hits(store, _HIT_DUPLICATES, oldest.duplicates)
        self.expiry = self._expiry()
        """Replaced at each turn, so that other threads may read it."""

    @property
    def stored(self) -> StoredWindow:
        """The part for the meta record."""
        return StoredWindow(
            lifetime=self.lifetime // 1000,
            turned=self.turned,
            is_behind=self.is_behind,
            admitted=self.admitted,
        )

    @property
    def count(self) -> int:
        """Number of marks, forwarded anchors and hits."""
        return len(self.marks) + self.forwarding.count + self.hit_anchors.count + self.hit_duplicates.count

    @property
    def digest(self) -> int:
        """Digest of marks, forwarded anchors and hits."""
        duplicates = -self.hit_duplicates.digest  # told from anchors of the same numbers
        return union(self._marks_digest, self.forwarding.digest, self.hit_anchors.digest, duplicates)

    def begins_slot(self, time: int) -> bool:
        """Whether a log time is in a later slot than that of the last turn."""
        return time // self.slot > self.turned // self.slot

    def is_due(self, time: int) -> bool:
        """Whether a turn is due before a record at this log time."""
        return self.begins_slot(time) or (self.is_behind and self.admitted >= ROWS_BETWEEN)

    def before_turn(self, times: I64) -> int:
        """Return how many of the next records, at these log times (n,), come before the next slot."""
        return int(np.searchsorted(times // self.slot, self.turned // self.slot, "right"))

    def rows_until(self, rows: I64) -> int:
        """Return how many of the next n records come before a turn is due, given the running total of their
        judged rows (n,)."""
        if not self.is_behind:
            return len(rows)
        return min(len(rows), int(np.searchsorted(self.admitted + rows, ROWS_BETWEEN)) + 1)

    def target(self, time: int) -> PageNumbers:
        """Return the numbers of the first anchor and the first duplicate that were not surely there a
        lifetime before a log time: all before them have expired."""
        mark, oldest = self._target_mark(time), self._first()
        if mark is None:
            return oldest
        return PageNumbers(max(oldest.anchors, mark.anchors), max(oldest.duplicates, mark.duplicates))

    def _target_mark(self, time: int) -> Mark | None:
        """The newest mark that is a lifetime old at a log time, or None."""
        marks = bisect_right(self.marks, time - self.lifetime, key=lambda mark: mark.time)
        return self.marks[marks - 1] if marks else None

    def _expiry(self) -> Expiry:
        if not self.marks:
            return Expiry(-1)
        oldest, target = self.marks[0].time, self.target(self.turned)
        late = sum(target) - sum(self._first())
        mark = self._target_mark(self.turned)
        return Expiry(oldest, late, mark.time - oldest if late and mark is not None else 0)

    def oldest_after(self, time: int) -> PageNumbers:
        """Return the numbers of the first anchor and the first duplicate that may be left after a turn at a
        log time. More are if it carries URLs of very many bytes."""
        target, oldest = self.target(time), self._first()
        return PageNumbers(
            min(target.anchors, oldest.anchors + MOST_EXPIRING),
            min(target.duplicates, oldest.duplicates + MOST_EXPIRING),
        )

    @staticmethod
    def carried_at_once(url_bytes: I64) -> int:
        """Return how many of n pages a turn may carry, the first ones, given the sizes of their URLs (n,)."""
        return int(np.searchsorted(np.cumsum(url_bytes), CARRIED_URL_BYTES, "right"))

    def note_hits(self, writes: Writes, anchors: I64, duplicates: I64) -> None:
        """Note that verdicts named these pages."""
        self.hit_anchors.add(writes, anchors)
        self.hit_duplicates.add(writes, duplicates)

    def turn(self, writes: Writes, time: int, next_: PageNumbers, carried: I64) -> None:
        """Turn at a log time, after the state's first numbers were raised: the anchors `carried` get the
        numbers that end before `next_`, the next numbers from now on."""
        target, oldest = self.target(time), self._first()
        self.is_behind = oldest.anchors < target.anchors or oldest.duplicates < target.duplicates
        self._mark(writes, time, next_)
        first = next_.anchors - len(carried)
        least = self.marks[0].oldest if self._has_expired(self.marks[0]) else 0
        self.forwarding.advance(writes, first, carried, least)
        self.hit_anchors.drop_before(writes, oldest.anchors)
        self.hit_duplicates.drop_before(writes, oldest.duplicates)
        self.turned, self.admitted = time, 0
        self.expiry = self._expiry()

    def _mark(self, writes: Writes, time: int, next_: PageNumbers) -> None:
        """Mark the beginning of a slot, and drop marks that no later turn and no live duplicate needs."""
        if self.begins_slot(time):
            mark = Mark(time, next_.anchors, next_.duplicates, self._first().anchors)
            writes.put(DEFAULT, _MARK + time.to_bytes(8, "big"), np.array(mark[1:], "<i8").tobytes())
            self.marks.append(mark)
            self._marks_digest = union(self._marks_digest, _digest_of_mark(mark))
        while len(self.marks) > 1 and self._has_expired(self.marks[1]):
            gone = self.marks.pop(0)
            writes.delete(DEFAULT, _MARK + gone.time.to_bytes(8, "big"))
            self._marks_digest = union(self._marks_digest, -_digest_of_mark(gone))

    def _has_expired(self, mark: Mark) -> bool:
        """Whether all pages that were there at a mark have expired."""
        oldest = self._first()
        return mark.anchors <= oldest.anchors and mark.duplicates <= oldest.duplicates
