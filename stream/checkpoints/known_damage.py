"""Data files and checkpoints that were found damaged, in a file beside the state directory.

A file may have been uploaded after it was damaged. Without this record its checkpoint would be restored, and
found damaged, again and again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from stream.checkpoints.digests import digest_of_file
from stream.errors import DamagedStateError
from stream.private import tighten
from stream.tables.store.failures import damaged_file

RECORD: Final = ".damaged-files"
"""Suffix of the file."""
RESTORED: Final = "restored-checkpoint"
"""File in a state directory with the name of the checkpoint that it was restored from, until a scrub has read
all of it and found no damage."""


def note_damage(directory: Path, error: DamagedStateError) -> None:
    """Record the file of a state directory that is damaged. If the error names none that is there, record the
    checkpoint that the directory was restored from, which may have been uploaded like that."""
    name = damaged_file(error)
    with suppress(OSError, UnicodeDecodeError):  # what cannot be read was not uploaded like that
        if name is not None and (directory / name).exists():
            _note(directory, digest_of_file(directory / name), name)
        else:
            _note(directory, (directory / RESTORED).read_text("ascii"), "a checkpoint")


def drop_restored(directory: Path) -> None:
    """Drop the checkpoint that a state directory was restored from: all of it was read since, and nothing
    found. What is damaged from now on is no fault of the checkpoint."""
    with suppress(OSError):  # the next scrub tries again
        (directory / RESTORED).unlink(missing_ok=True)


def _note(directory: Path, damaged: str, what: str) -> None:
    if damaged not in known_damage(directory):
        path = _record(directory)
        with path.open("a", encoding="ascii") as file:
            file.write(f"\n{damaged} {what}\n")  # the line before may be cut
        tighten(path)


def known_damage(directory: Path) -> set[str]:
    """The digests of the files of a state directory that were found damaged, and the names of checkpoints."""
    with suppress(OSError, UnicodeDecodeError):
        lines = _record(directory).read_text("ascii").splitlines()
        return {line.partition(" ")[0] for line in lines if line}
    return set()


def _record(directory: Path) -> Path:
    return directory.with_suffix(RECORD)
