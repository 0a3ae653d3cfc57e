"""How long test files take, by which parts of `make nightly` are divided.

The figures are elapsed seconds of files that take ten or more, with compiled code and on two idle cores:
`pytest --seconds-to FILE` writes those of a run. They need not be exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("seconds.txt")
OTHERS: Final = 4.0
"""Seconds of a file that is not in the table."""


def seconds_of_files(root: Path) -> dict[str, float]:
    """Seconds of each test file of the suites that pytest runs without an environment of their own."""
    known = dict(line.split() for line in TABLE.read_text("utf-8").splitlines())
    suites = ("unit", "property", "kafka", "browser", "chaos", "fuzz")
    files = [
        str(path.relative_to(root)) for each in suites for path in (root / "tests" / each).glob("test_*.py")
    ]
    return {file: float(known.get(file, OTHERS)) for file in sorted(files)}
