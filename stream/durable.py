"""Files, and names in directories, that outlive a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make the names of files and directories in a directory durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, in place of the one of this name if there is one, whole or not at all. Raises OSError."""
    written = path.with_suffix(".new")
    with written.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)
    sync_directory(path.parent)
