"""What is kept of a state directory's last scrub, in a file beside it: when it was, and what it found.

A judge that starts again does not begin a scrub anew, and does not open what was found damaged: it may be
read only rarely, and the next one to meet it might be a read of mapped memory, which ends the process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from stream.errors import DamagedStateError
from stream.output import writing
from stream.private import tighten
from stream.tables.scrub_child import Found


class Scrubbed(msgspec.Struct, frozen=True, kw_only=True):
    """A scrub that came to its end."""

    ended: float
    """Seconds since the epoch."""
    found: Found
    inode: int | None = None
    """Of the file that is damaged,"""
    changed: int | None = None
    """and when it was written, nanoseconds since the epoch: another file may get its name."""


def last_scrub(directory: Path) -> Scrubbed | None:
    """Of a state directory; None where there was none, or nobody knows."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_path(directory).read_bytes(), type=Scrubbed)
    return None


def note_scrub(directory: Path, found: Found, ended: float) -> None:
    """Keep what was found. Raises OutputError."""
    there = _stat(directory, found.file)
    scrubbed = Scrubbed(
        ended=ended,
        found=found,
        inode=there and there.st_ino,
        changed=there and there.st_mtime_ns,
    )
    with writing(_path(directory)) as file:
        file.write(msgspec.json.encode(scrubbed))
    tighten(_path(directory))


def refuse_known_damage(directory: Path) -> None:
    """Raises DamagedStateError where the last scrub found a file damaged that is still there."""
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
