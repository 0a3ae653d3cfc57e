"""The process that scrubs a state directory: `python -m stream.tables.store.scrub_child DIRECTORY`.

It reads every block of every file, slowly, beside a running judge, and writes a `ScrubResult` in JSON to
standard output.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from stream.children.parent import end_with_parent
from stream.errors import DamagedStateError, NeardupError
from stream.tables.store.failures import damaged_file, read_error
from stream.tables.store.rocks import families_in, read_from_disk

NICE: Final = 19
SHARE: Final = 0.1
"""Fraction of time for which the process works; it sleeps for the rest."""
SLICE_SECONDS: Final = 0.02
LONGEST_PAUSE: Final = 0.5
"""Seconds. What takes very long is waiting, for a network or on a busy machine, and no work."""
T = TypeVar("T")


class ScrubResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scrub."""

    bytes: int
    """Bytes read, counting families that were read completely."""
    damage: str | None = None
    """Text of the error that ended the scrub; None if there is no damage."""
    file: str | None = None
    """Name of the damaged file, if RocksDB reported it."""


class Throttle:
    """Limits a thread to a fraction of the time by sleeping."""

    def __init__(self, share: float = SHARE, sleep: Callable[[float], object] = time.sleep) -> None:
        """`sleep` is called with seconds. It may end early."""
        self._share, self._sleep = share, sleep
        self._since = time.monotonic()

    def turn(self, share: float | None = None) -> None:
        """Call this between pieces of work; sleeps if it is due. `share` is that of the work that has just
        been done, if it is another one."""
        worked = time.monotonic() - self._since
        if worked >= SLICE_SECONDS:
            self._sleep(min(worked * (1 / (share or self._share) - 1), LONGEST_PAUSE))
            self._since = time.monotonic()


def scrub(directory: Path, turn: Callable[[], None]) -> ScrubResult:
    """Read all families of the store in `directory`. `turn` is called between blocks. Raises NeardupError for
    failures other than damage."""
    read = 0
    try:
        for family in _read_twice(directory, lambda: families_in(directory)):
            read += _read_twice(directory, lambda family=family: read_from_disk(directory, family, turn))  # type: ignore[misc]
    except DamagedStateError as error:
        return ScrubResult(bytes=read, damage=str(error), file=damaged_file(error))
    return ScrubResult(bytes=read)


def _read_twice(directory: Path, read: Callable[[], T]) -> T:
    """Return the result of `read`, which is called again if it finds damage. Files that another process is
    writing may look damaged once, such as a removed file or half a record of the manifest."""
    try:
        return read()
    except NeardupError as error:
        if read_error(directory, error) is None:
            raise
    try:
        return read()
    except NeardupError as error:
        raise read_error(directory, error) or error from None


if __name__ == "__main__":
    end_with_parent()
    os.nice(NICE)
    status = 0
    try:
        sys.stdout.buffer.write(msgspec.json.encode(scrub(Path(sys.argv[1]), Throttle().turn)))
    except NeardupError as error:
        sys.stderr.write(f"{error}\n")
        status = error.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # does not wait for the thread that reads standard input
