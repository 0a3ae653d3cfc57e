"""Rows made for benchmarks: any record can be made alone, so a run can go on anywhere.

A row is a function of its number and of a seed. Every tenth but three is new; the others are near-duplicates
of a new row before: of a third of them any, of the others at most `REMEMBERED` rows back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.minima import (
    FIRST_MINIMA,
    KEY_WORDS,
    MINIMA,
    MINIMA_WORDS,
    MINIMUM_BITS,
    RESERVE_BITS,
    TRIANGLE,
)
from stream.fingerprint.scheme import Scheme
from stream.messages.journal import Rows, SourceRange, Strings
from tests.url_digests import digests_of_urls

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
ROWS: Final = 512
"""Rows a record."""
PARTITIONS: Final = 8
"""Source partitions."""
REMEMBERED: Final = 1 << 20
"""Most near-duplicates are of rows at most this far back."""
NEAR_OF_TEN: Final = 3
"""Rows of ten that are near-duplicates."""
NEAR: Final = NEAR_OF_TEN / 10
LEAST_ALIKE, MOST_ALIKE = 0.82, 0.95
"""Similarities of planted copies."""
CLOSE: Final = 3
"""Most bits in which the fingerprints of near-duplicates differ; the distance of the paper."""
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_PLACES: Final = np.array(
    [
        *((at // TRIANGLE, at % TRIANGLE * MINIMUM_BITS, MINIMUM_BITS) for at in range(FIRST_MINIMA)),
        *(
            (KEY_WORDS + at // 4, at % 4 * RESERVE_BITS, RESERVE_BITS)
            for at in range(MINIMA - FIRST_MINIMA - 1)
        ),
        (0, TRIANGLE * MINIMUM_BITS, 7),
    ]
)
"""Word, shift and bits of each minimum; of the last one its first piece."""


def hashes(numbers: I64, columns: int, seed: int) -> U64:
    """Uniform words (n, columns) that depend on the number alone (SplitMix64)."""
    start = (numbers.astype(np.uint64) << np.uint64(8))[:, None] + np.arange(columns, dtype=np.uint64)
    words = (start + np.uint64(seed * 0x632BE59BD9B4E019 % 2**64)) * _GOLDEN
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


class MadeRows:
    """The records of a made journal, the first of which is number 0."""

    def __init__(self, scheme: Scheme, seed: int = 20) -> None:
        self.scheme, self.seed = scheme, seed
        self._words = scheme.sketch_bytes // 8

    def record(self, number: int) -> Rows:
        """The rows of a record."""
        rows = np.arange(number * ROWS, (number + 1) * ROWS)
        prints, sketches = self._contents(rows)
        near = np.flatnonzero((rows % 10 >= 10 - NEAR_OF_TEN) & (rows >= 10))
        random = hashes(rows[near], 4, self.seed + 1)
        bases = new_before(rows[near], random[:, 0])
        prints[near], sketches[near] = self._contents(bases)
        prints[near] ^= _flips(random[:, 1], CLOSE)
        sketches[near, 0] ^= np.uint64(0x1001001001)
        for column in (2, 3):  # up to two of the minima
            self._change_minima(sketches, near, random[:, column] % np.uint64(MINIMA), random[:, column])
        return self._rows(number, rows, prints, sketches, "host")

    def copies(self, originals: I64, first: int) -> list[Rows]:
        """Records, from number `first` on, of a planted copy of each of these new rows."""
        records = []
        for start in range(0, len(originals) - ROWS + 1, ROWS):
            rows = originals[start : start + ROWS]
            prints, sketches = self._contents(rows)
            random = hashes(rows, 2 + 2 * MINIMA, self.seed + 2)
            prints ^= _flips(random[:, 0], CLOSE)
            sketches[:, 0] ^= np.uint64(0x1001001001)
            alike = LEAST_ALIKE + (MOST_ALIKE - LEAST_ALIKE) * (random[:, 1] / 2.0**64)
            for minimum in range(MINIMA):
                changed = np.flatnonzero(random[:, 2 + minimum] / 2.0**64 > alike)
                which = np.full(len(changed), minimum, np.uint64)
                self._change_minima(sketches, changed, which, random[changed, 2 + MINIMA + minimum])
            number = first + start // ROWS
            records.append(self._rows(number, np.arange(number * ROWS, (number + 1) * ROWS), prints,
                                      sketches, "copies"))  # fmt: skip
        return records

    def _contents(self, rows: I64) -> tuple[U64, U64]:
        """Fingerprints and sketches of rows as if they were new."""
        words = hashes(rows, self._words + 1, self.seed)
        sketches = words[:, 1:].copy()
        sketches[:, self.scheme.sketch_bins // 64] = 1000  # shingles
        return words[:, 0].copy(), sketches

    def _change_minima(self, sketches: U64, rows: I64, minima: U64, random: U64) -> None:
        """Change one minimum of each of these rows."""
        word, shift, size = _PLACES[minima.astype(np.int64)].T
        bits = (random >> np.uint64(40)) & ((np.uint64(1) << size.astype(np.uint64)) - np.uint64(1))
        changed = np.maximum(bits, np.uint64(1)) << shift.astype(np.uint64)
        sketches[rows, self._words - MINIMA_WORDS + word] ^= changed

    def _rows(self, number: int, rows: I64, prints: U64, sketches: U64, host: str) -> Rows:
        n, start = len(rows), number // PARTITIONS * ROWS
        urls = [f"https://{host}-{i % 997}.example/articles/2026/{i}.html" for i in rows.tolist()]
        source = SourceRange("c", "pages", "0" * 32, number % PARTITIONS, start, start + n, n, start == 0)
        text_hash = hashes(rows, 2, self.seed + len(host)).view(np.uint8).reshape(n, 16)
        return rows_of(self.scheme, source, prints, sketches, urls, text_hash)


def rows_of(
    scheme: Scheme,
    source: SourceRange,
    prints: U64,
    sketches: U64,
    urls: list[str],
    text_hash: NDArray[np.uint8],
) -> Rows:
    """A record of n rows, with fingerprints (n,), sketches (n, lanes) and text hashes (n, 16)."""
    n = len(prints)
    return Rows(
        scheme=scheme.id,
        ranges=[source],
        status=np.zeros(n, np.uint8),
        fingerprint=prints[:, None],
        sketch=sketches,
        text_hash=text_hash,
        url_digest=digests_of_urls(urls),
        offset=np.arange(source.start, source.end),
        fetched_at=np.full(n, 1_790_000_000_000),
        quality=np.full(n, np.nan),
        length=np.full(n, 6_000, np.uint32),
        language=np.zeros(n, "S3"),
        strings=Strings.of(urls, [url.encode() for url in urls]),
    )


def journal(rows: int, scheme: Scheme) -> Iterator[Rows]:
    """The first records, with so many rows or a few more."""
    made = MadeRows(scheme)
    return (made.record(number) for number in range(-(-rows // ROWS)))


def is_new(rows: I64) -> NDArray[np.bool_]:
    """Whether each of these rows is new rather than a near-duplicate."""
    return (rows % 10 < 10 - NEAR_OF_TEN) | (rows < 10)


def new_before(rows: I64, random: U64) -> I64:
    """A new row before each of these: of a third of them any, of the others at most `REMEMBERED` rows
    back."""
    within = np.where((random >> np.uint64(32)) % np.uint64(3) == 0, rows, np.minimum(rows, REMEMBERED))
    back = (random % within.astype(np.uint64)).astype(np.int64)
    chosen = rows - 1 - back
    return chosen - np.where(is_new(chosen), 0, NEAR_OF_TEN)


def _flips(random: U64, most: int) -> U64:
    """Words (n,) with 0 to `most` bits set."""
    flips = np.zeros(len(random), np.uint64)
    count = random & np.uint64(0xFF)
    for flip in range(most):
        bit = random >> np.uint64(8 + 6 * flip) & np.uint64(63)
        flips |= np.where(count % np.uint64(most + 1) > flip, np.uint64(1) << bit, np.uint64(0))
    return flips
