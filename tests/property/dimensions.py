"""Dimensions of judged crawls, in which the test against the oracle combines their values."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest
from msgspec import structs

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.log_time import AHEAD_MS
from stream.judge.state import window
from stream.messages.verdict_options import VerdictOptions
from tests.covering import Value
from tests.judged_crawls import (
    Clock,
    crawl,
    crowd,
    entries_of,
    flips,
    mirrors,
    oracle_of,
    redelivered,
    search_as_for_spam,
    search_few_rows,
    templates,
    timed,
)
from tests.oracle import Oracle, OraclePage

YEARS_MS: Final = 5 * 365 * 86_400_000


class Expiry(NamedTuple):
    """Lifetime in seconds, and how much a turn lets expire: pages, rows until the next turn, bytes of URLs.
    Some append times may be years ahead."""

    lifetime: int = 600
    most: int = 1 << 15
    rows: int = 1 << 14
    url_bytes: int = 32 << 20
    ahead: bool = False


def mixed(seed: int, n: int, width: int) -> list[OraclePage]:
    """Pages of a skewed crawl and of templates in turn."""
    kinds = crawl(seed, n // 2, dense=True, skew=0.5, width=width), templates(seed, n // 2, width=width)
    return [page for pair in zip(*kinds, strict=True) for page in pair]


DIMENSIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "design": {
        "pairs": VerdictOptions(),
        "strict": VerdictOptions.paper(),
        "strict-6-choose-3": VerdictOptions.paper(k=3, blocks=6),
    },
    "crawl": {
        "sparse": lambda seed, n, width: crawl(seed, n, dense=False, width=width),
        "dense": lambda seed, n, width: crawl(seed, n, dense=True, width=width),
        "skewed": lambda seed, n, width: crawl(seed, n, dense=True, skew=0.4, width=width),
        "crowd": lambda seed, n, width: crowd(seed, n, width=width),
        "templates": lambda seed, n, width: templates(seed, n, width=width),
        "mixed": mixed,
        "flips": lambda seed, n, width: flips(seed, n, 3 + seed % 3, width=width),
        "mirrors": lambda seed, n, width: mirrors(seed, n, width=width),
    },
    "cap": {"cap-16": 16, "cap-5": 5, "cap-2": 2, "cap-1": 1},
    "baselines": {"2-baselines": 2, "1-baseline": 1, "3-baselines": 3},
    "compared": {"64-compared": 64, "all-compared": 0, "1-compared": 1, "3-compared": 3},
    "evidence": {"evidence": "0.5", "all-evidence": "0.0", "no-evidence": "1"},
    "width": {"64-bits": 64, "32-bits": 32, "128-bits": 128},
    "short": {"no-short": False, "short": True},
    "urls": {"all-keyed": False, "some-unkeyed": True},
    "expiry": {
        "endless": None,
        "lifetime": Expiry(),
        "in-bites": Expiry(most=5, rows=8),
        "in-bites-of-urls": Expiry(most=40, rows=8, url_bytes=1100),
        "clocks-ahead": Expiry(ahead=True),
    },
    "forgetting": {"nothing-forgotten": False, "forgetting": True},
    "records": {"small-records": (1, 1, 2, 3, 8), "large-records": (1, 3, 20, 60)},
    "delivery": {"once": False, "again": True},
    "cut": {"one-by-one": (1,), "cut": (1, 2, 7), "large-batches": (9, 30)},
    "tables": {"hot": (64 << 20, 1 << 20), "frozen": (64 << 20, 50), "rocksdb": (0, 40), "merged": (0, 10)},
    "numbers": {"early": False, "late": True},
    "search": {"at-once": lambda _: None, "in-parts": search_few_rows, "as-for-spam": search_as_for_spam},
    "effort": {
        "any-effort": {},
        "no-pairs": {"most": 0},
        "40-pairs": {"most": 40},
        "no-urls": {"url_bytes": 0},
        "4000-bytes-of-urls": {"url_bytes": 4000},
    },
    "writes": {"written": False, "ahead": True},
    "restart": {"no-restart": "", "reopened": "reopened", "taken-over": "taken over"},
    "ledgers": {"no-ledgers": False, "ledgers": True},
}
"""Name of each dimension -> names of its values -> the values."""
FORBIDDEN: Final[list[frozenset[Value]]] = [
    frozenset({("short", "short"), ("width", "128-bits")}),
    *(
        frozenset({("design", each), ("short", "short")})
        for each, options in DIMENSIONS["design"].items()
        if not options.strict
    ),
    *(
        frozenset({("design", each), ("width", "128-bits")})
        for each, options in DIMENSIONS["design"].items()
        if options.strict
    ),
]
"""Values that may not meet: distances, and so short pages, count in strict mode alone, and tables of
fingerprints take at most 64 bits."""


class Combination:
    """A value of each dimension, by its name, and the number of pages that are judged."""

    def __init__(self, names: Mapping[str, str], count: int) -> None:
        self.names, self._count = names, count
        self.seed = 1 + sum(map(ord, "".join(names.values())))
        self.scheme = Scheme(sketch_bins=192, width=self["width"], short_tokens=20 * self["short"])
        self.expiry: Expiry | None = self["expiry"]
        options: VerdictOptions = self["design"]
        self.options = structs.replace(
            options,
            distance=None if options.distance is None else options.distance - 2 * self["short"],
            short_distance=(options.distance or 0) * self["short"],
            bucket_cap=self["cap"],
            baselines=self["baselines"],
            compared=self["compared"],
            evidence=self["evidence"],
            lifetime=self.expiry and self.expiry.lifetime,
        )

    def __getitem__(self, name: str) -> Any:
        return DIMENSIONS[name][self.names[name]]

    def pages(self) -> list[OraclePage]:
        rng = random.Random(self.seed)
        pages: list[OraclePage] = self["crawl"](self.seed, self._count, self["width"])
        if self["short"]:
            pages = [
                dataclasses.replace(each, status=3) if each.status == 0 and rng.random() < 0.3 else each
                for each in pages
            ]
        if self["urls"]:
            urls = sorted({each.url for each in pages if each.url})
            some = set(rng.sample(urls, len(urls) // 8))
            pages = [dataclasses.replace(each, url=None) if each.url in some else each for each in pages]
        return pages

    def entries(self, pages: list[OraclePage]) -> tuple[list[Entry], Clock]:
        """Journal records with the pages, and the caps of their append times."""
        entries = entries_of(pages, self.seed, self.scheme, self["records"])
        if self["delivery"]:
            entries = redelivered(entries, pages, self.seed)
        entries = timed(entries, self.seed)
        if not (self.expiry and self.expiry.ahead):
            return entries, lambda _: None
        rng, caps = random.Random(self.seed), {each.offset: each.time + AHEAD_MS for each in entries}
        ahead = [
            dataclasses.replace(each, time=each.time + YEARS_MS * (rng.random() < 0.1)) for each in entries
        ]
        return ahead, lambda entry: caps[entry.offset]

    def oracle(self, monkeypatch: pytest.MonkeyPatch) -> Oracle:
        """The oracle, whose bounds of turns become those of the judge."""
        oracle = oracle_of(self.options, self["width"])
        if self.expiry:
            _, oracle.most_expiring, oracle.rows_between, oracle.most_url_bytes, _ = self.expiry
            monkeypatch.setattr(window, "MOST_EXPIRING", self.expiry.most)
            monkeypatch.setattr(window, "ROWS_BETWEEN", self.expiry.rows)
            monkeypatch.setattr(window, "CARRIED_URL_BYTES", self.expiry.url_bytes)
        return oracle
