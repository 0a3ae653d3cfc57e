"""Near-neighbour methods side by side: what they cost, computed and measured; what compression saves.

Random fingerprints of 64 bits, distance 3, random queries. Methods that take long get fewer queries, scaled
to 1000; the table of stored balls gets fewer fingerprints. Answers of all methods are compared with each
other on queries with planted neighbours.
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from stream.offline.compressed_blocks import encode, expected_bytes, sort_words
from stream.offline.layouts import Layout
from stream.tables.arrays import U64
from stream.tables.cold.build import RunAnchors, build_tables, table_file
from stream.tables.cold.runs import Run
from stream.tables.design import Design
from stream.tables.store.anchors import Skips
from stream.tables.store.rocks import sst_writer
from tests.bench.methods import METHODS, Method, open_method
from tests.bench.methods.ball import ball_size
from tests.bench.methods.sorted_tables import SortedTable, SortedTables, compare, predicted
from tests.bench.methods.stored_ball import StoredBall
from tests.fingerprint_sets import flip_bits, random_set

WIDTH, DISTANCE = 64, 3
QUERIES = {"brute-force": 100, "query-ball": 20, "one-bit": 40}
"""Others get 1000."""
BALLS = 500
"""Fingerprints in the table of stored balls: 0.26 GB."""
LAYOUTS = ("7 choose 4", "8 choose 5")
TURNS = 3


def best_of(work: Any, turns: int = TURNS) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def sequential(stored: U64) -> float:
    """Seconds to compare one fingerprint with one of many in a row."""
    tile = stored[: 1 << 17]
    return best_of(lambda: np.flatnonzero(np.bitwise_count(tile ^ tile[0]) <= DISTANCE), 20) / len(tile)


def units(stored: U64) -> dict[str, float]:
    """Seconds of the steps that methods are made of."""
    rng = np.random.default_rng(7)
    ascending, some = np.sort(stored), random_set(rng, 1 << 17, WIDTH)
    words = ascending[:, None]
    starts = rng.integers(0, len(stored) - 16, 1 << 15)
    held = SortedTable(words, np.arange(len(stored), dtype=np.uint32))
    asked = some[: len(starts), None]
    compressed = encode(words, WIDTH)
    tables = SortedTables(stored, WIDTH, DISTANCE, layout=Layout.choose(6, 3))
    thousand = some[:1000]
    return {
        "comparison in a row": sequential(stored),
        "candidate": best_of(lambda: compare(held, asked, starts, starts + 16, DISTANCE)) / len(starts) / 16,
        "look-up in one array": best_of(lambda: ascending.searchsorted(some)) / len(some),
        "probe of a table, 1000 queries": best_of(lambda: tables.search(thousand)) / 1000 / 20,
        "block decoded": best_of(compressed.decode) / len(compressed.counts),
    }


def costs(stored: U64, queries: U64, planted: U64) -> dict[str, Any]:
    """A row a method: computed and measured."""
    step = units(stored)
    rows: dict[str, Any] = {}
    answers: dict[str, set[tuple[int, int]]] = {}
    for name in (*METHODS, *LAYOUTS):
        held = stored[:BALLS] if name == "stored-ball" else stored
        asked = queries[: QUERIES.get(name, 1000)]
        gc.collect()
        start = time.perf_counter()
        method = open_method(name, held, WIDTH, DISTANCE)
        built = time.perf_counter() - start
        found = method.search(planted[:20])
        answers[name] = set(zip(found.row.tolist(), found.stored.tolist(), strict=True))
        method.queries = method.probes = method.candidates = 0
        seconds = best_of(lambda: method.search(asked), 1 if name in QUERIES else TURNS)  # noqa: B023
        rows[name] = _row(name, method, len(held), built, seconds / len(asked) * 1000)
        method.close()
    same = {name: pairs for name, pairs in answers.items() if name != "stored-ball"}
    if any(pairs != answers["brute-force"] for pairs in same.values()):
        raise AssertionError("methods disagree")
    for name, row in rows.items():
        row["seconds_per_1000_queries"]["predicted"] = round(1000 * seconds_a_query(name, row, step), 5)
    return {"rows": rows, "units": {f"{name}, ns": round(t * 1e9, 2) for name, t in step.items()}}


def _row(name: str, method: Method, stored: int, built: float, seconds: float) -> dict[str, Any]:
    if name in METHODS:
        computed = type(method).predicted(stored, WIDTH, DISTANCE)
    else:
        computed = predicted(Layout.parse(name), stored)
    return {
        "what": type(method).summary if name in METHODS else f"sorted tables, {name}",
        "stored": stored,
        "probes": {"predicted": computed.probes, "measured": method.measured.probes},
        "candidates": {"predicted": computed.candidates, "measured": method.measured.candidates},
        "bytes": {"predicted": computed.bytes, "measured": method.bytes},
        "seconds_per_1000_queries": {"measured": round(seconds, 5)},
        "build_seconds": round(built, 2),
    }


def seconds_a_query(name: str, row: dict[str, Any], step: dict[str, float]) -> float:
    """Time from the predicted probes and candidates, and what their steps take."""
    probes, candidates = row["probes"]["predicted"], row["candidates"]["predicted"]
    if name == "brute-force":
        return float(candidates * step["comparison in a row"])
    if name == "one-bit":  # 2 + 3 a counter's plane operations on 64 fingerprints at once, each half of a
        work = probes * row["stored"] / 64 * (2 + 3 * DISTANCE.bit_length())  # comparison's
        return float(work * step["comparison in a row"] / 2)
    if name == "query-ball":
        return float(probes * step["look-up in one array"])
    if name == "stored-ball":
        return float(2 * step["look-up in one array"])
    blocks = probes * step["block decoded"] if name == "compressed" else 0
    return float(probes * step["probe of a table, 1000 queries"] + candidates * step["candidate"] + blocks)


def parallel(stored: U64, queries: U64) -> dict[str, Any]:
    """Tables in turn, by two threads, by two processes: milliseconds a batch."""
    found: dict[str, Any] = {}
    for layout in ("4 choose 1", "5 choose 2"):
        for probing in ("turn", "threads", "processes"):
            method = SortedTables(
                stored, WIDTH, DISTANCE, layout=Layout.parse(layout), probing=probing, workers=2
            )  # type: ignore[arg-type]
            for size in (1000, len(queries)):
                asked = queries[:size]
                method.search(asked)
                ms = best_of(lambda: method.search(asked)) * 1000  # noqa: B023
                found[f"{layout}, {size} queries, {probing}"] = round(ms, 1)
            method.close()
    return found


def interpolation(stored: U64, queries: U64) -> dict[str, Any]:
    """Values read a probe by both searches."""
    found = {}
    for find in ("binary", "interpolation"):
        method = SortedTables(
            stored,
            WIDTH,
            DISTANCE,
            layout=Layout.choose(5, 2),
            find=find,  # type: ignore[arg-type]
        )
        method.search(queries[:1000])
        found[f"{find}: reads a probe"] = round(method.read / method.probes, 2)
    return found


NO_SKIPS = Skips(np.zeros(0, np.int64), np.zeros(0, np.uint64))


def compression(stored: U64) -> dict[str, Any]:
    """Bytes of a sorted fingerprint: ours, general methods, RocksDB."""
    words = sort_words(stored[:, None])
    n = len(words)
    start = time.perf_counter()
    compressed = encode(words, WIDTH)
    encoded = time.perf_counter()
    decoded = compressed.decode()
    end = time.perf_counter()
    assert (decoded == words).all()
    deltas = np.diff(words[:, 0], prepend=np.uint64(0))
    planes = np.ascontiguousarray(deltas.astype("<u8").view(np.uint8).reshape(n, 8).T)
    rows = np.column_stack([stored, stored])  # the key of an anchor is its fingerprint
    with tempfile.TemporaryDirectory() as folder:
        build_tables(
            sst_writer, Design(5, 2), RunAnchors(Run(0, 0, 0, len(stored)), rows, NO_SKIPS), Path(folder)
        )
        rocks = sum(table_file(Path(folder), table).stat().st_size for table in range(10)) / 10
    zstd = zstandard.ZstdCompressor(level=3)

    def share(size: float) -> float:
        return round(size / words.nbytes, 4)

    return {
        "delta by first differing bit, Huffman: ratio": share(compressed.bytes),
        "the same, expected": share(expected_bytes(n, WIDTH)),
        "the same, expected at 8e9 (the paper: almost half)": round(expected_bytes(8e9, WIDTH) / 64e9, 4),
        "zstd 3 on sorted fingerprints": share(len(zstd.compress(words.tobytes()))),
        "zstd 3 on deltas": share(len(zstd.compress(deltas.tobytes()))),
        "zstd 3 on deltas, byte planes": share(len(zstd.compress(planes.tobytes()))),
        "log2(C(2**64, n)) bits, the least possible": share((n * (64 - np.log2(n) + np.log2(np.e))) / 8),
        "RocksDB, a table (with 8 bytes of anchor number)": share(rocks),
        "encoded M/s": round(n / (encoded - start) / 1e6, 1),
        "decoded M/s": round(n / (end - encoded) / 1e6, 1),
    }


def run(stored: int = 1_000_000) -> dict[str, Any]:
    """All of it."""
    rng = np.random.default_rng(5)
    held = random_set(rng, stored, WIDTH)
    queries = random_set(rng, 20_000, WIDTH)
    planted = rng.integers(0, stored, len(queries) // 2)
    planted[:5] %= BALLS
    queries[::2] = flip_bits(rng, held[planted], WIDTH, rng.integers(0, DISTANCE + 2, len(planted)))
    ball = ball_size(WIDTH, DISTANCE)
    return {
        "stored": stored,
        "why not stored balls": f"{ball:,} entries a fingerprint: "
        f"{StoredBall.predicted(stored, WIDTH, DISTANCE).bytes:,.0f} bytes",
        "methods": costs(held, queries[1::2], queries[::2]),
        "probing, ms": parallel(held, queries),
        "search": interpolation(held, queries),
        "compression": compression(held),
    }


def show(console: Any, found: dict[str, Any]) -> None:
    """The cost table, and a table of the rest."""
    from rich.table import Table as Grid

    table = Grid(title=f"near neighbours, {found['stored']:,} stored, predicted / measured")
    for head in ("method", "probes", "candidates", "bytes", "s per 1000 queries", "build s"):
        table.add_column(head, justify="left" if head == "method" else "right")

    def both(row: dict[str, Any], form: str) -> str:
        return f"{row['predicted']:{form}} / {row['measured']:{form}}"

    for name, row in found["methods"]["rows"].items():
        few = f" ({row['stored']:,})" if row["stored"] != found["stored"] else ""
        table.add_row(
            name + few, f"{row['probes']['predicted']:,.0f}", both(row["candidates"], ",.4g"),
            both({k: v / 1e6 for k, v in row["bytes"].items()}, ",.4g") + " MB",
            both(row["seconds_per_1000_queries"], ".3g"), f"{row['build_seconds']}",
        )  # fmt: skip
    console.print(table)
    rest = Grid("figure", "value", title="of the same fingerprints")
    rest.add_row("why not stored balls", found["why not stored balls"])
    for part in (found["methods"]["units"], found["probing, ms"], found["search"], found["compression"]):
        for name, value in part.items():
            rest.add_row(name.replace("_", " "), f"{value:,}")
    console.print(rest)
