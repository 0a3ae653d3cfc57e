"""The process that looks for damage in a state directory: `python -m stream.tables.scrub_child DIRECTORY`.

It reads every block of every file, slowly, while a judge works on them, and writes a `Found` in JSON to
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
from stream.tables.failures import file_named, unreadable
from stream.tables.rocks import families_in, read_from_disk

NICE: Final = 19
SHARE: Final = 0.1
"""Of the time; the rest of it, the process sleeps."""
SLICE_SECONDS: Final = 0.02
T = TypeVar("T")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of reading it all."""

    bytes: int
    """Read, of whole families."""
    damage: str | None = None
    """What the error says that ended it."""
    file: str | None = None
    """Name of the file that is damaged, where RocksDB said it."""


class Pace:
    """Sleeps, so that work takes no more than its share of the time."""

    def __init__(self, share: float = SHARE) -> None:
        self._rest = 1 / share - 1
        self._since = time.monotonic()

    def turn(self) -> None:
        """Some work is done."""
        worked = time.monotonic() - self._since
        if worked >= SLICE_SECONDS:
            time.sleep(worked * self._rest)
            self._since = time.monotonic()


def scrub(directory: Path, turn: Callable[[], None]) -> Found:
    """Read all families of the store in `directory`; `turn` is called between blocks. Raises NeardupError
    where something else than damage is in the way."""
    read = 0
    try:
        for family in _confirmed(directory, lambda: families_in(directory)):
            read += _confirmed(directory, lambda family=family: read_from_disk(directory, family, turn))  # type: ignore[misc]
    except DamagedStateError as error:
        return Found(bytes=read, damage=str(error), file=file_named(error))
    return Found(bytes=read)


def _confirmed(directory: Path, read: Callable[[], T]) -> T:
    """What `read` gives. Raises DamagedStateError where that is raised twice: what another process is writing
    may look damaged once, as a file that was removed does, or half a record of the manifest."""
    try:
        return read()
    except NeardupError as error:
        if unreadable(directory, error) is None:
            raise
    try:
        return read()
    except NeardupError as error:
        raise unreadable(directory, error) or error from None


if __name__ == "__main__":
    end_with_parent()
    os.nice(NICE)
    status = 0
    try:
        sys.stdout.buffer.write(msgspec.json.encode(scrub(Path(sys.argv[1]), Pace().turn)))
    except NeardupError as error:
        sys.stderr.write(f"{error}\n")
        status = error.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without waiting for the thread that reads the pipe
