"""How long commands take, processes and all: `neardup --help`, and the fingerprint of one page."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 7


def _seconds(*arguments: str) -> float:
    """The median of some runs; the first, which fills caches, is thrown away."""
    took = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "stream.cli", *arguments], check=True, stdout=subprocess.DEVNULL
        )
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def run() -> dict[str, Any]:
    """`help_seconds`, `fingerprint_seconds` of an English and of a Chinese page, and Python's own start."""
    page = {"url": "http://bench.example/", "text": "The harbour will repair the old lighthouse soon. " * 9}
    chinese = {
        "url": "http://bench.example/zh",
        "text": "港务局将在冬季风暴来临之前修复北码头的旧灯塔。" * 9,
    }
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        paths = []
        for number, each in enumerate((page, chinese)):
            paths.append(Path(directory) / f"{number}.jsonl")
            paths[-1].write_text(json.dumps(each) + "\n", "utf-8")
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", ""], check=True)
        python = time.perf_counter() - began
        return {
            "python_seconds": round(python, 3),
            "help_seconds": round(_seconds("--help"), 3),
            "fingerprint_seconds": round(_seconds("fingerprint", str(paths[0])), 3),
            "chinese_fingerprint_seconds": round(_seconds("fingerprint", str(paths[1])), 3),
        }
