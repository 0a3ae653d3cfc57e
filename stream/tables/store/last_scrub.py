"""The record of a state directory's last scrub, in a file beside the directory: its time and result.

By this record, a restarted judge does not scrub again at once, and does not open a directory that was found
damaged. The damaged block may be read rarely.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from stream.errors import DamagedStateError
from stream.output import writing
from stream.private import tighten
from stream.tables.store.scrub_child import ScrubResult


class Scrub(msgspec.Struct, frozen=True, kw_only=True):
    """A completed scrub, as recorded."""

    ended: float
    """Seconds since the epoch."""
    found: ScrubResult
    inode: int | None = None
    """Inode of the damaged file."""
    changed: int | None = None
    """Modification time of the damaged file, in nanoseconds since the epoch. Tells it from a later file of
    the same name."""


def last_scrub(directory: Path) -> Scrub | None:
    """The last scrub of a state directory; None if there is no readable record."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_path(directory).read_bytes(), type=Scrub)
    return None


def note_scrub(directory: Path, result: ScrubResult, ended: float) -> None:
    """Record the result of a scrub. Raises OutputError."""
    there = _stat(directory, result.file)
    scrub = Scrub(
        ended=ended,
        found=result,
        inode=there and there.st_ino,
        changed=there and there.st_mtime_ns,
    )
    with writing(_path(directory)) as file:
        file.write(msgspec.json.encode(scrub))
    tighten(_path(directory))


def refuse_known_damage(directory: Path) -> None:
    """Raise DamagedStateError if the last scrub found a damaged file that still exists."""
    last = last_scrub(directory)
    if last is None or last.found.damage is None:
        return
    there = _stat(directory, last.found.file)
    if there is not None and (there.st_ino, there.st_mtime_ns) == (last.inode, last.changed):
        raise DamagedStateError(last.found.damage)


def _path(directory: Path) -> Path:
    return directory.with_suffix(".scrub")


def _stat(directory: Path, name: str | None) -> os.stat_result | None:
    with suppress(OSError):
        return (directory / name).stat() if name else None
    return None
