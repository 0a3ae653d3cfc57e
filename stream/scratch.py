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
from types import TracebackType
from typing import Final

from stream.locks import try_lock

SUFFIX: Final = ".scratch"
UNLOCKED: Final = ".unlocked"
"""Suffix of a directory that is not locked yet."""
YOUNG_SECONDS: Final = 60.0
"""Age up to which a directory with this suffix may be of a process that is about to lock it."""


class ScratchDirectory:
    """A temporary directory named `neardup-NAME-*.scratch`, with a lock that ends with the process.

    Making one removes those of processes that were killed, whatever their NAME: nobody holds their lock. As a
    context manager, it gives its path as a string and removes the directory at the end.
    """

    name: str
    """Path of the directory."""

    def __init__(self, name: str, directory: Path | None = None) -> None:
        """By default, the directory is made where the system keeps temporary files."""
        _remove_left(directory or Path(tempfile.gettempdir()))
        made = tempfile.mkdtemp(UNLOCKED, f"neardup-{name}-", directory)
        lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # without locks in this file system, none is taken for left
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Under its name it is locked from the first moment, so one without a lock is left, however young.
        self.name = made.removesuffix(UNLOCKED) + SUFFIX
        os.rename(made, self.name)
        self._remove = weakref.finalize(self, _remove, self.name, lock)

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Remove the directory now."""
        self._remove()


def _remove(directory: str, lock: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.close(lock)


def _remove_left(directory: Path) -> None:
    for left in directory.glob("neardup-*"):
        if left.suffix not in (SUFFIX, UNLOCKED):
            continue
        with suppress(OSError):  # of another user, or removed meanwhile
            status = left.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            if left.suffix == SUFFIX or time.time() - status.st_mtime > YOUNG_SECONDS:
                _remove_unlocked(left)


def _remove_unlocked(left: Path) -> None:
    lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if try_lock(lock):
            shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(lock)
