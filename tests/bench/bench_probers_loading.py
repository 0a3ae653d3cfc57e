"""What a prober needs to load a segment, with its tables in RAM and on disk.

    python -m tests.bench.bench_probers_loading [anchors of a segment ...]

The file has random fingerprints and sketches. As in a prober, it is verified and its tables are built;
another process verifies it and opens them again, as after a restart. The file is in the page cache.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream.checkpoints.digests import digest_of_file
from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.judge.segments.answer import Segment
from stream.judge.segments.file import AnchorColumns, Origin, SegmentFile, write_segment_file
from stream.judge.segments.held_segment import HeldSegment, TablesRoom
from stream.messages.verdict_options import VerdictOptions
from stream.settings import MIB
from tests.bench.lifetime import process_apart
from tests.bench.made_rows import MadeRows
from tests.genesis import genesis_of

SIZES: Final = (1 << 20,)
MEMORY: Final = {"on disk": 40, "in RAM": 256}
"""`tables_memory`, in bytes an anchor: for a part of the tables, and for all of them."""
CACHE: Final = 16 * MIB
GENERATION: Final = 1_000_000
"""`tables_generation`, by default."""
AT_ONCE: Final = 1 << 16


def run(
    sizes: Sequence[int] = SIZES,
    executor: Callable[[], Executor] = process_apart,
) -> dict[str, Any]:
    """Figures for segments of so many anchors. Each `executor` is one more process."""
    genesis, found = genesis_of(Scheme(), VerdictOptions()), dict[str, Any]()
    for anchors in sizes:
        with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
            path, segment = Path(directory) / "segment", Segment(0, anchors)
            columns = _columns(MadeRows(genesis.scheme), anchors)
            write_segment_file(path, Origin.of(genesis), segment, columns)
            figures = found[f"{anchors:,} anchors"] = dict[str, Any]()
            figures["file_bytes_an_anchor"] = round(path.stat().st_size / anchors, 1)
            for name, memory in MEMORY.items():
                figures[name] = dict[str, float]()
                for again in (False, True):
                    with executor() as process:
                        figures[name] |= process.submit(_load, path, memory * anchors, again=again).result()
    return found


def _columns(made: MadeRows, anchors: int) -> Iterator[AnchorColumns]:
    for first in range(0, anchors, AT_ONCE):
        some = np.arange(first, min(first + AT_ONCE, anchors))
        fingerprints, sketches = made._contents(some)
        yield AnchorColumns(fingerprints.reshape(-1, 1), np.zeros(len(some), np.uint64), sketches)


def _load(path: Path, memory: int, *, again: bool) -> dict[str, float]:
    """Figures for a file whose tables may take so much RAM; `again`, if they are there."""
    genesis = genesis_of(Scheme(), VerdictOptions())
    rule, room = Rule(genesis.options, genesis.scheme), TablesRoom(memory, CACHE, GENERATION)
    tables, before, began = path.with_name("tables"), _own_memory(), time.perf_counter()
    digest_of_file(path)
    verified, file = time.perf_counter(), SegmentFile(path, Origin.of(genesis))
    held = (
        HeldSegment.open(tables, file, rule, room)
        if again
        else HeldSegment.build(tables, file, rule, room, 0)
    )
    ready, own, anchors = time.perf_counter(), _own_memory() - before, file.segment.end
    assert held is not None
    held.close()
    name = "_again" if again else ""
    return {
        f"verified{name}_seconds": round(verified - began, 1),
        f"ready{name}_seconds": round(ready - began, 1),
        f"tables{name}_bytes_an_anchor": round(_size(tables) / anchors, 1),
        f"ram{name}_bytes_an_anchor": round(own / anchors, 1),
    }


def _size(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())


def _own_memory() -> int:
    """Bytes of RAM of this process that are not a file's."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run([int(each) for each in sys.argv[1:]] or SIZES), indent=2) + "\n")
