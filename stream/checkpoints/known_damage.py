"""Data files that were found damaged, by digest, in a file beside the state directory.

A file may have been uploaded after it was damaged. Without this record its checkpoint would be restored, and
found damaged, again and again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from stream.checkpoints.digests import digest_of_file
from stream.errors import DamagedStateError
from stream.private import tighten
from stream.tables.store.failures import damaged_file


def note_damage(directory: Path, error: DamagedStateError) -> None:
    """Record the file of a state directory that is damaged, if the error names one that can be read."""
    name = damaged_file(error)
    if name is None:
        return
    with suppress(OSError):  # what cannot be read was not uploaded like that
        digest = digest_of_file(directory / name)
        if digest not in known_damage(directory):
            with _path(directory).open("a", encoding="ascii") as file:
                file.write(f"{digest} {name}\n")
            tighten(_path(directory))


def known_damage(directory: Path) -> set[str]:
    """The digests of the files of a state directory that were found damaged."""
    with suppress(OSError, UnicodeDecodeError):
        lines = _path(directory).read_text("ascii").splitlines()
        return {line.partition(" ")[0] for line in lines}
    return set()


def _path(directory: Path) -> Path:
    return directory.with_suffix(".damaged-files")
