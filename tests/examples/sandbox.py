"""A sandbox in which examples run as their pages say."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

from tests.documented import ROOT, fences, furnish

LONGEST = {
    "https://mirror.example/lighthouse?utm_source=feed",
    "https://news.example/market",
    "https://news.example/loading",
}
"""URLs of the longest page of each cluster of the tutorial's pages."""


def enter_sandbox(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make the files that guides speak of, change to them, and put the command `neardup` on the path."""
    furnish(folder / "sandbox")
    patch.chdir(folder / "sandbox")
    command = folder / "bin" / "neardup"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stream.cli "$@"\n')
    command.chmod(0o755)
    patch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))


def assert_deduplicates(
    engine: str, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
) -> None:
    """The example for an engine goes from a web archive to the Parquet and the words that its page shows."""
    from pyarrow import parquet

    enter_sandbox(folder, patch)
    runpy.run_path(f"deduplicate_with_{engine}.py")["main"]("crawl.warc.gz")
    printed = capture.readouterr()
    assert_printed(f"{engine}.md", printed.out + printed.err)
    kept = parquet.read_table("deduplicated.parquet")
    assert set(kept["url"].to_pylist()) == LONGEST
    assert sum(b"Tuesday" in body for body in kept["body"].to_pylist()) == 1


def assert_printed(page: str, printed: str) -> None:
    """What a page of docs/integrations shows is among what was printed, besides what engines say."""
    (shown,) = (
        content
        for _, language, content in fences(ROOT / "docs" / "integrations" / page)
        if language == "text"
    )
    for line in shown.splitlines():
        assert all(part in printed for part in line.split("...")), f"{page}: {line}\n{printed}"
