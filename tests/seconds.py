"""How long test files take, by which parts of `make nightly` are divided and files are begun.

The figures are elapsed seconds of files that take ten or more, with compiled code and on two idle cores:
`pytest --seconds-to FILE` writes those of a run. They need not be exact.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("seconds.txt")
OTHERS: Final = 4.0
"""Seconds of a file that is not in the table."""
AT_ONCE: Final = 2
"""Files that two cores run at once."""
WAITING: Final = ("kafka", "chaos", "browser")
"""Folders of tests that wait for processes more than they compute."""


def seconds_of_files(root: Path) -> dict[str, float]:
    """Seconds that each test file adds to a run, of the suites that need no environment of their own."""
    known = _known()
    suites = ("unit", "property", "kafka", "browser", "chaos", "fuzz")
    files = [
        str(path.relative_to(root)) for each in suites for path in (root / "tests" / each).glob("test_*.py")
    ]
    return {file: float(known.get(file, OTHERS)) / AT_ONCE for file in sorted(files)}


def order_of_files(files: Collection[str]) -> list[str]:
    """Files in the order in which they are begun by processes that run tests side by side: the longest first,
    and those that wait among those that compute. So processors are busy all the time, and no long file is
    left for the end."""
    known, places = _known(), []
    for waits in (True, False):
        of_kind = [file for file in files if (Path(file).parent.name in WAITING) == waits]
        seconds = [float(known.get(file, OTHERS)) for file in of_kind]
        before = 0.0
        for length, file in sorted(zip(seconds, of_kind, strict=True), reverse=True):
            places.append((before / sum(seconds), file))
            before += length
    return [file for _, file in sorted(places)]


def _known() -> dict[str, str]:
    return dict(line.split() for line in TABLE.read_text("utf-8").splitlines())
