"""Journals that strangers could have a judge read to slow it down, and an ordinary one beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.minima import MINIMA_WORDS
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.messages.journal import Rows, SourceRange, decode_journal
from tests.bench.made_rows import ROWS, journal, rows_of

U64 = NDArray[np.uint64]
BINS: Final = Scheme().sketch_bins // 64
"""Words of the bins of a sketch, before the size of the set."""
SHINGLES: Final = 1000
"""Of a page of 6 KB."""
APART: Final = 7
"""Bits by which crafted fingerprints differ from one, hence no more than 14 from each other."""
DISTINCT: Final = 64
"""Texts that some cases repeat: as many URLs come back, or as many topics share a template."""
TEMPLATES: Final = 32
"""Pages of one record of a journal are of as many, so that few of a template are superseded at once."""
WORDS: Final = 900
"""Of a text of 6 KB."""


class HostileJournal:
    """Records of n rows in all, whose URLs are all different unless given."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    def entries(self, prints: U64, sketches: U64, urls: list[str] | None = None) -> list[Entry]:
        """Of n fingerprints (n,) and sketches (n, lanes), ROWS a record."""
        urls = urls or [f"https://host-{i % 997}.example/{i}.html" for i in range(len(prints))]
        return [
            self._entry(first, prints[first : first + ROWS], sketches[first : first + ROWS], urls)
            for first in range(0, len(prints), ROWS)
        ]

    def _entry(self, first: int, prints: U64, sketches: U64, urls: list[str]) -> Entry:
        n = len(prints)
        source = SourceRange("c", "pages", "0" * 32, 0, first, first + n, n, not first)
        hashes = np.zeros((n, 16), np.uint8)
        rows = rows_of(self._scheme, source, prints, sketches, urls[first : first + n], hashes)
        return _entry(rows, first // ROWS + 1)


def _entry(rows: Rows, offset: int) -> Entry:
    """As the judge gets it, from the wire."""
    decoded = decode_journal(rows.encode(), offset)
    assert isinstance(decoded, Rows)  # no genesis
    return Entry(offset, 1000, offset.to_bytes(16, "big"), decoded)


def ordinary(rows: int) -> list[Entry]:
    """Random pages, and near-duplicates of 30 %."""
    return [_entry(record, offset) for offset, record in enumerate(journal(rows, Scheme()), start=1)]


def sketches_of_one_set(rng: np.random.Generator, rows: int, scheme: Scheme) -> U64:
    """Of unlike pages of one size that share all minima: every bucket is the same for all."""
    sketches = rng.integers(0, 1 << 64, (rows, scheme.sketch_bytes // 8), dtype=np.uint64)
    sketches[:, BINS] = SHINGLES
    sketches[:, -MINIMA_WORDS:] = 0x123456789ABCDEF
    return sketches


def near_zero(rng: np.random.Generator, rows: int) -> U64:
    """Fingerprints that are all near each other."""
    bits = np.argsort(rng.random((rows, 64)), axis=1)[:, :APART].astype(np.uint64)
    prints: U64 = np.bitwise_or.reduce(np.left_shift(np.uint64(1), bits), axis=1)
    return prints


def templates_in_turns(rows: int) -> list[Entry]:
    """Pages of some templates, of which those of the first third come again, changed."""
    rng, scheme, numbers = np.random.default_rng(14), Scheme(), np.arange(rows)
    prints, minima = (
        rng.integers(0, 1 << 64, (TEMPLATES, size), np.uint64)[numbers % TEMPLATES]
        for size in (1, MINIMA_WORDS)
    )
    sketches = sketches_of_one_set(rng, rows, scheme)
    sketches[:, -MINIMA_WORDS:] = minima
    names = [f"https://host-{each % 997}.example/{each}.html" for each in (numbers % -(-rows // 3)).tolist()]
    return HostileJournal(scheme).entries(prints[:, 0] ^ near_zero(rng, rows), sketches, names)


def same_buckets_near(rows: int) -> list[Entry]:
    """Pages that share all minima and have near fingerprints, but unlike text."""
    rng, scheme = np.random.default_rng(1), Scheme()
    return HostileJournal(scheme).entries(near_zero(rng, rows), sketches_of_one_set(rng, rows, scheme))


def same_buckets_in_turns(rows: int) -> list[Entry]:
    """The same, but for the fingerprint of every other page: it is always one. So pages have their nearest
    anchors at another distance than the page before."""
    rng, scheme = np.random.default_rng(13), Scheme()
    prints = near_zero(rng, rows)
    prints[::2] = 0
    return HostileJournal(scheme).entries(prints, sketches_of_one_set(rng, rows, scheme))


def same_buckets_far(rows: int) -> list[Entry]:
    """Pages that share all minima, and nothing else."""
    rng, scheme = np.random.default_rng(2), Scheme()
    prints = rng.integers(0, 1 << 64, rows, dtype=np.uint64)
    return HostileJournal(scheme).entries(prints, sketches_of_one_set(rng, rows, scheme))


def same_buckets_almost_alike(rows: int) -> list[Entry]:
    """The same with sketches that differ in a sixth of their bins: just too few are alike."""
    rng, scheme = np.random.default_rng(3), Scheme()
    sketches = sketches_of_one_set(rng, rows, scheme)
    differ = np.bitwise_and.reduce(rng.integers(0, 1 << 64, (4, *sketches.shape), dtype=np.uint64), axis=0)
    differ |= np.bitwise_and.reduce(rng.integers(0, 1 << 64, (5, *sketches.shape), dtype=np.uint64), axis=0)
    sketches[:, :BINS] = sketches[0, :BINS] ^ differ[:, :BINS]
    return HostileJournal(scheme).entries(near_zero(rng, rows), sketches)


def hub(rows: int) -> list[Entry]:
    """A third of them as far from each other as just makes them anchors; the others are in their middle,
    similar to all of them."""
    rng, scheme = np.random.default_rng(4), Scheme()
    sketches = sketches_of_one_set(rng, rows, scheme)
    differ = np.bitwise_and.reduce(rng.integers(0, 1 << 64, (4, *sketches.shape), dtype=np.uint64), axis=0)
    differ |= np.bitwise_and.reduce(rng.integers(0, 1 << 64, (5, *sketches.shape), dtype=np.uint64), axis=0)
    middle = sketches[0, :BINS].copy()
    sketches[:, :BINS] = middle ^ differ[:, :BINS]
    prints = near_zero(rng, rows)
    sketches[rows // 3 :, :BINS], prints[rows // 3 :] = middle, 0
    return HostileJournal(scheme).entries(prints, sketches)


def changing_url(rows: int) -> list[Entry]:
    """One URL whose page is another every time, and whose anchors all belong in the same buckets."""
    rng, scheme = np.random.default_rng(5), Scheme()
    urls = ["https://host.example/"] * rows
    return HostileJournal(scheme).entries(near_zero(rng, rows), sketches_of_one_set(rng, rows, scheme), urls)


def changing_urls(rows: int) -> list[Entry]:
    """Some URLs that come back in turn, each time as another page of the same buckets."""
    rng, scheme = np.random.default_rng(6), Scheme()
    urls = [f"https://host.example/{i % DISTINCT}" for i in range(rows)]
    return HostileJournal(scheme).entries(near_zero(rng, rows), sketches_of_one_set(rng, rows, scheme), urls)


def superseded_hub(rows: int) -> list[Entry]:
    """A hub whose anchors' URLs come back as other pages, one for every page in the middle."""
    entries = hub(rows)
    flat = [url for entry in entries for url in entry.rows.strings.columns().url.texts()]
    rng, scheme = np.random.default_rng(7), Scheme()
    prints = np.concatenate([entry.rows.fingerprint[:, 0] for entry in entries])
    sketches = np.concatenate([entry.rows.sketch for entry in entries])
    back = np.arange(2 * rows // 3, rows, 2)
    sketches[back], prints[back] = sketches_of_one_set(rng, len(back), scheme), near_zero(rng, len(back))
    for anchor, row in enumerate(back.tolist()):
        flat[row] = flat[anchor]
    return HostileJournal(scheme).entries(prints, sketches, [url or "" for url in flat])


def one_template(rows: int) -> list[Entry]:
    """Texts that share three quarters of their words."""
    rng = np.random.default_rng(10)
    template = _words(rng, 3 * WORDS // 4)

    def text() -> str:
        return " ".join([*template, *_words(rng, WORDS // 4)])

    return _fingerprinted([text() for _ in range(rows)])


def shuffled_sentences(rows: int) -> list[Entry]:
    """Texts of the same sentences of six words, each in an order of its own."""
    rng = np.random.default_rng(11)
    sentences = [" ".join(_words(rng, 6)) + "." for _ in range(WORDS // 6)]
    return _fingerprinted([" ".join(rng.permutation(sentences).tolist()) for _ in range(rows)])


def _words(rng: np.random.Generator, count: int) -> list[str]:
    return [f"word{number}" for number in rng.integers(0, 100_000, count).tolist()]


def _fingerprinted(texts: list[str]) -> list[Entry]:
    found = Fingerprinter(Scheme()).texts(texts)
    prints = np.array([each.fingerprint for each in found], np.uint64)
    sketches = np.frombuffer(b"".join(each.sketch for each in found), "<u8").astype(np.uint64)
    return HostileJournal(Scheme()).entries(prints, sketches.reshape(len(texts), -1))


CASES: Final[dict[str, Callable[[int], list[Entry]]]] = {
    each.__name__: each
    for each in (
        same_buckets_near,
        same_buckets_in_turns,
        templates_in_turns,
        same_buckets_far,
        same_buckets_almost_alike,
        hub,
        superseded_hub,
        changing_url,
        changing_urls,
        one_template,
        shuffled_sentences,
    )
}
"""Name -> records of so many rows."""
