"""`neardup plan`: recommends table designs for a number of pages (Manku, Jain, Das Sarma, WWW 2007, section
3.1: more tables have longer prefixes, hence faster queries, and take more memory).

All figures are computed for random fingerprints. Those of real crawls cluster, so the numbers of candidates
are lower bounds.
"""

from __future__ import annotations

import re
from itertools import count
from math import ceil, comb
from typing import Final, Literal

import msgspec

from stream.errors import SettingsError
from stream.fingerprint.lanes import WIDTHS
from stream.offline.compressed_blocks import BLOCK_BYTES, expected_bytes
from stream.offline.layouts import Layout
from stream.tables.design import LONGEST_PREFIX, MOST_TABLES
from stream.tables.hot.tier import LOAD
from stream.tables.runs.filters import MOST_BITS
from stream.tables.tables import HOT_GENERATIONS

PROBE_SECONDS: Final = 0.6e-6
"""Time to permute a query and find its prefix in a sorted table in RAM; measured by `python -m tests.bench
tables`."""
CANDIDATE_SECONDS: Final = 25e-9
"""Time to compare one candidate, at a random position in RAM; measured likewise."""
BLOCK_SECONDS: Final = 10e-6
"""Time to decode one of many compressed blocks of 1024 bytes; measured likewise."""
SCAN_SECONDS: Final = 0.35e-6
"""Time of `neardup match` per corpus fingerprint, on one core and with 10 tables; measured likewise."""
MOST_PAGES: Final = 1e15
LEAST_MEMORY: Final = 1 << 20
SLOW_SECONDS: Final = 5e-3
"""Slowest query of designs recommended for several machines, after the paper's "few milliseconds"."""
BATCH: Final = 1_000_000
"""Size of the batch in the advice on batch queries, as in the paper."""

_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MEMORY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)

GENERATION: Final = 1_000_000
"""Anchors of a generation, by default."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A table design and its costs."""

    layout: str
    tables: int
    prefix_bits: tuple[int, int]
    """Shortest and longest prefix."""
    candidates: float
    """Candidates per probe, averaged over the tables."""
    bytes: float
    """Size of all tables, counting fingerprints only, as in the paper."""
    compressed_bytes: float
    """Size of all tables in compressed blocks, with the blocks' keys."""
    reads: float
    """Compressed blocks read per query, in all tables."""
    query_seconds: float
    """Time of a query on plain tables in RAM, on one core."""
    compressed_query_seconds: float
    """Time of a query on compressed tables in RAM, on one core."""
    judge_bytes: float | None
    """RAM (`tables_memory`) in which the judge holds all pages, with exact probes; None if the judge does not
    support the design."""

    def seconds(self, storage: str) -> float:
        """Time of a query on `plain` or `compressed` tables."""
        return self.query_seconds if storage == "plain" else self.compressed_query_seconds

    def size(self, storage: str) -> float:
        """Size in bytes of `plain` or `compressed` tables."""
        return self.bytes if storage == "plain" else self.compressed_bytes


class TablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The designs compared, and the recommended one."""

    pages: int
    distance: int
    width: int
    memory: int
    designs: list[Candidate]
    """Sorted by number of tables."""
    recommended: str
    storage: Literal["plain", "compressed"]
    machines: int
    """Machines with `memory` each that the tables would fill."""
    reasons: list[str]
    batch: str
    """The cost of a batch query instead, as a sentence."""


def parse_pages(text: str, option: str) -> int:
    """Parse a number of pages such as `8e9`, `100_000_000` or `1,000`. Raises SettingsError, which names the
    option."""
    try:
        pages = float(text.replace(",", ""))
    except ValueError:
        pages = -1.0
    if not 1 <= pages <= MOST_PAGES:
        raise SettingsError(f"{option}: {text!r} is not a number from 1 to {MOST_PAGES:.0e}, such as 8e9")
    return round(pages)


def parse_memory(text: str, option: str) -> int:
    """Parse a size such as `64GiB`, `64GB`, `512M` or a number of bytes. Raises SettingsError, which names
    the option."""
    match = _MEMORY.fullmatch(text.strip())
    size = 0
    if match:
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** _UNITS[match[2].lower()])
    if size < LEAST_MEMORY:
        raise SettingsError(f"{option}: {text!r} is not a size of 1 MiB or more, such as 64GiB")
    return size


def plan(pages: int, distance: int, memory: int, width: int = 64) -> TablePlan:
    """Compare the designs for a number of fingerprints and bytes of RAM, and recommend one.

    Of the designs that fit in memory, plain or compressed, the fastest wins. If none fits, the one wins that
    needs the fewest machines with this memory and still answers in a few milliseconds. Raises SettingsError,
    which names the option.
    """
    if width not in WIDTHS:
        raise SettingsError(f"width: {width} bits; fingerprints have {', '.join(map(str, WIDTHS))}")
    if not 0 <= distance < width // 2:
        raise SettingsError(
            f"distance: {distance} bits of {width}; random fingerprints differ in {width // 2}, so it must"
            f" be within 0 to {width // 2 - 1}"
        )
    designs = [_candidate(layout, pages) for layout in layouts(width, distance)]
    choices = [(design, storage) for design in designs for storage in ("plain", "compressed")]

    def machines(design: Candidate, storage: str) -> int:
        return max(1, ceil(design.size(storage) / memory))

    def burden(choice: tuple[Candidate, str]) -> tuple[bool, int, float, float]:
        design, storage = choice
        seconds, needed = design.seconds(storage), machines(design, storage)
        return needed > 1 and seconds > SLOW_SECONDS, needed, seconds, design.size(storage)

    best, storage = min(choices, key=burden)
    return TablePlan(
        pages=pages,
        distance=distance,
        width=width,
        memory=memory,
        designs=designs,
        recommended=best.layout,
        storage="plain" if storage == "plain" else "compressed",
        machines=machines(best, storage),
        reasons=[
            *_reasons(designs, best, storage, machines(best, storage), pages, memory),
            *_chance_matches(pages, width, distance),
        ],
        batch=_batch(pages, width, memory),
    )


def layouts(width: int, distance: int) -> list[Layout]:
    """The layouts to compare: m choose m - distance, and two levels, with at most 64 tables."""
    designs = []
    for chosen in count(1):
        blocks = distance + chosen
        if blocks > width or comb(blocks, chosen) > MOST_TABLES or (distance == 0 and chosen > 1):
            break
        designs.append(Layout.choose(blocks, chosen, width))
    blocks = distance + 1
    if blocks > 1 and blocks * blocks <= MOST_TABLES and blocks <= width - -(-width // blocks):
        designs.append(Layout.two_level(blocks, blocks, width))
    return sorted(designs, key=lambda layout: (layout.tables, layout.name))


def _candidate(layout: Layout, pages: int) -> Candidate:
    per_probe = float((pages / 2.0**layout.prefix_bits).mean())
    tables = layout.tables
    compressed = expected_bytes(pages, layout.width)
    in_block = max(pages * (BLOCK_BYTES + 2 + layout.width / 8) / compressed, 1.0)
    reads = tables * (1 + per_probe / in_block)
    plain = tables * (PROBE_SECONDS + per_probe * CANDIDATE_SECONDS)
    judged = None
    if "choose" in layout.name and layout.width <= 64 and int(layout.prefix_bits.max()) <= LONGEST_PREFIX:
        hot = HOT_GENERATIONS * GENERATION * (16 + 8 * tables / LOAD)
        judged = hot + pages * tables * MOST_BITS / 8
    return Candidate(
        layout=layout.name,
        tables=tables,
        prefix_bits=(int(layout.prefix_bits.min()), int(layout.prefix_bits.max())),
        candidates=per_probe,
        bytes=float(tables * pages * layout.width / 8),
        compressed_bytes=tables * compressed,
        reads=reads,
        query_seconds=plain,
        compressed_query_seconds=plain + reads * BLOCK_SECONDS,
        judge_bytes=judged,
    )


def size(value: float) -> str:
    """A number of bytes for people, in units of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:,.0f} PiB"


def duration(seconds: float) -> str:
    """A duration for people."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:,.3g} {unit}" if seconds < 999.5 else f"{seconds:,.0f} s"
    return f"{seconds * 1e9:.0f} ns"


def number(value: float) -> str:
    """A count for people."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.1f}"


def _reasons(
    designs: list[Candidate], best: Candidate, storage: str, machines: int, pages: int, memory: int
) -> list[str]:
    reasons = []
    held = f"{best.layout}, {storage}"
    if machines == 1:
        reasons.append(
            f"{held}: {size(best.size(storage))} fits into {size(memory)}, and it is the fastest design that"
            f" fits: {duration(best.seconds(storage))} per query on one core."
        )
    else:
        least = min(designs, key=lambda design: design.compressed_bytes)
        reasons.append(
            f"No design fits into {size(memory)}: the smallest, {least.layout} compressed, takes"
            f" {size(least.compressed_bytes)}."
        )
        reasons.append(
            f"{held}: {size(best.size(storage))} is the smallest that answers in a few milliseconds:"
            f" {duration(best.seconds(storage))} per query. A judge is one process on one machine: give it"
            f" that memory ({machines} times {size(memory)}), split the crawl into namespaces, or leave older"
            " pages to RocksDB, which is slower."
        )
    fewer = [design for design in designs if design.tables < best.tables]
    if fewer:
        other = fewer[-1]
        share = other.candidates * other.tables / max(best.candidates * best.tables, 1e-9)
        reasons.append(
            f"Fewer tables save memory but compare more: {other.layout} has {number(other.candidates)}"
            f" candidates per probe, {best.layout} {number(best.candidates)}"
            + (f" ({number(share)} times fewer per query)." if share < 1e6 else ".")
        )
    more = [design for design in designs if design.tables > best.tables]
    if more:
        other = more[0]
        these, those = number(best.candidates * best.tables), number(other.candidates * other.tables)
        reasons.append(
            f"More tables would not pay: with {other.layout}, {these} candidates per query become {those},"
            f" for {other.tables - best.tables} more probes and"
            f" {size(other.size(storage) - best.size(storage))} more memory."
        )
    if storage == "compressed":
        reasons.append(
            f"Compressed tables take {best.compressed_bytes / best.bytes:.0%} of the plain size at"
            f" {number(pages)} fingerprints, and {number(best.reads)} blocks are decoded per query."
        )
    return reasons


def _chance_matches(pages: int, width: int, distance: int) -> list[str]:
    chance = pages * sum(comb(width, bits) for bits in range(distance + 1)) / 2.0**width
    if chance < 0.001:
        return []
    return [
        f"Beware: {number(chance)} of {number(pages)} random fingerprints are within {distance} bits of"
        " any page by chance: check similarities (default mode, `neardup match --verified`), or make wider"
        " fingerprints (--scheme width=128)."
    ]


def _batch(pages: int, width: int, memory: int) -> str:
    compressed, plain = expected_bytes(pages, width), pages * width / 8
    batch = min(BATCH, pages)
    cores = pages * SCAN_SECONDS / 3600
    time = f"{cores:,.1f} core hours" if cores >= 0.1 else duration(cores * 3600) + " on a core"
    return (
        f"For batch queries, `neardup match` keeps tables of only the batch in RAM and reads the corpus once:"
        f" {size(compressed)} as a compressed file ({size(plain)} plain), {time} for a batch of {batch:,}."
    )
