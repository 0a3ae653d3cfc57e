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
AT_ONCE: Final = 2
"""Files that two cores run at once."""


def seconds_of_files(root: Path) -> dict[str, float]:
    """Seconds that each test file adds to a run, of the suites that need no environment of their own."""
    known = dict(line.split() for line in TABLE.read_text("utf-8").splitlines())
    suites = ("unit", "property", "kafka", "browser", "chaos", "fuzz")
    files = [
        str(path.relative_to(root)) for each in suites for path in (root / "tests" / each).glob("test_*.py")
    ]
    return {file: float(known.get(file, OTHERS)) / AT_ONCE for file in sorted(files)}
