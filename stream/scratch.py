"""Temporary directories that are removed even if the process that made them was killed: by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

SUFFIX: Final = ".scratch"
YOUNG_SECONDS: Final = 60.0
"""Age up to which a directory without a lock may be of a process that is about to lock it."""


class ScratchDirectory(tempfile.TemporaryDirectory[str]):
    """A `TemporaryDirectory` named `neardup-NAME-*.scratch`, with a lock that ends with the process.

    Making one removes those of processes that were killed, whatever their NAME: nobody holds their lock.
    """

    def __init__(self, name: str, directory: Path | None = None) -> None:
        """By default, the directory is made where the system keeps temporary files."""
        _remove_left(directory or Path(tempfile.gettempdir()))
        super().__init__(prefix=f"neardup-{name}-", suffix=SUFFIX, dir=directory)
        held = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._release = weakref.finalize(self, os.close, held)
        with suppress(OSError):  # without locks in this file system, none is taken for left
            fcntl.flock(held, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        """Remove the directory now."""
        super().cleanup()
        self._release()


def _remove_left(directory: Path) -> None:
    for left in directory.glob(f"neardup-*{SUFFIX}"):
        with suppress(OSError):  # of another user, or removed meanwhile
            there = left.lstat()
            if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid():
                continue
            if time.time() - there.st_mtime > YOUNG_SECONDS:
                _remove_unlocked(left)


def _remove_unlocked(left: Path) -> None:
    held = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(held)
