"""Journal records: what decodes is what a judge can decide."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

from stream.errors import NeardupError, RecordError
from stream.judge.batch import Entry, digest_of
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.journal import Genesis, Rows, SourceRange, decode_journal
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import damaged, packed
from tests.genesis import genesis_of

FINGERPRINTER = PageFingerprinter()
GENESIS = genesis_of(FINGERPRINTER.scheme)
WORDS = [
    "amber",
    "basin",
    "copper",
    "delta",
    "ember",
    "fjord",
    "granite",
    "harbour",
    "island",
    "jetty",
    "kelp",
    "lagoon",
    "mooring",
]

RECORDS = 64
"""Whole records that all others are made from."""


def pages(rng: random.Random, count: int) -> list[Page]:
    """Pages, some of which have the same text, some the same URL, and some a quality."""
    made = []
    for _ in range(count):
        words = random.Random(rng.randrange(4)).choices(WORDS, k=rng.choice((3, 20)))
        quality = rng.choice((None, None, 0.5, -1e308))
        made.append(Page(url=f"http://a/{rng.randrange(4)}", text=" ".join(words), quality=quality))
    return made


def record(rng: random.Random) -> bytes:
    """A record as a worker writes it, with few rows in one or two ranges."""
    sizes = [rng.randrange(4) for _ in range(rng.choice((1, 2)))]
    rows = [FINGERPRINTER.page(each) for each in pages(rng, sum(sizes))]
    ranges, offsets = [], []
    for partition, size in enumerate(sizes):
        start = rng.randrange(100)
        ranges.append(SourceRange("k", "pages", "0" * 32, partition, start, start + size + 1, size, True))
        offsets += range(start, start + size)
    return Rows.of(FINGERPRINTER.scheme, ranges, rows, offsets, [None] * len(rows)).encode()


def empty_state(directory: Path) -> State:
    """An empty state."""
    return State(directory, GENESIS, "k", memory=1 << 20, generation=1 << 20, cache=1 << 20)


class JournalRecords(Decoder):
    """`decode_journal`; and what it takes is decided without an error."""

    name: ClassVar = "journal"

    def __enter__(self) -> JournalRecords:
        directory = self.directory()
        state = empty_state(directory)
        self.stack.callback(state.close)
        self._judge = Judge(state, GENESIS)
        self._records = [record(random.Random(number)) for number in range(RECORDS)]
        return self

    def make(self, rng: random.Random) -> bytes:
        data = packed(rng, rng.choice(self._records), rng.choice((0, 1, 1, 1, 2, 4)))
        return damaged(rng, data) if rng.random() < 0.3 else data

    def check(self, data: bytes) -> str:
        try:
            found = decode_journal(data, 1)
        except RecordError:
            return "refused"
        if isinstance(found, Genesis):
            return "genesis"
        again = decode_journal(found.encode(), 1)
        assert isinstance(again, Rows)
        assert again.encode() == found.encode()
        try:
            found.refuse_foreign(GENESIS, "here")
            decided = self._judge.decide([Entry(1, 0, digest_of(data), found)])
        except NeardupError as error:
            return type(error).__name__
        return f"{sum(decided.counts.values())} verdicts"
