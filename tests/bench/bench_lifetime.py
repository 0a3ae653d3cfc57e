"""A judge whose pages expire: speed, memory, disk and starts by quarters of a long run.

    python -m tests.bench lifetime

`python -m tests.bench.lifetime` takes other sizes, and shows how far it has come.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from tests.bench.bench_growth import MEMORY
from tests.bench.lifetime import SKETCH_BINS, Setup, measure, process_apart


def run(
    pages: int = 50_000_000, window: int = 10_000_000, executor: Callable[[], Executor] = process_apart
) -> dict[str, Any]:
    """Figures of a judge that judges so many pages through a window of so many anchors."""
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as folder:
        return measure(Setup(Path(folder) / "state", window, MEMORY, SKETCH_BINS), pages, executor)
