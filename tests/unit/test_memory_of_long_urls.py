"""A judge takes memory for the bytes of a batch, not for its rows, of which the largest are considered here.

Measured in processes of their own, on Linux.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long_urls import ROLES
from tests.night import cases

ROOT = Path(__file__).parents[2]
ROWS = 1200
"""Rows of the journal: 39 MB, which took 260 MB in one batch."""
BATCH_BYTES = 2 << 20
MEBIBYTES = 110
"""Of which RocksDB holds up to 64 MiB of each family before it writes a file."""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is reset by Linux"
)


@pytest.mark.parametrize("role", cases(ROLES, by_day=["judge", "follower"]))
def test_rule_9_memory_is_bounded_by_the_bytes_of_a_batch(role: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.long_urls", role, str(ROWS), str(BATCH_BYTES), str(tmp_path)],
        check=True, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    peak, verdicts, batches = json.loads(found.stdout.splitlines()[-1])
    assert verdicts == ROWS
    assert batches > 10
    assert peak < MEBIBYTES << 20, f"{peak >> 20} MiB"
