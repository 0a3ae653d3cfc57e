"""Locks of files and directories, which end with the process that holds them."""

from __future__ import annotations

import fcntl


def try_lock(file: int) -> bool:
    """Lock an open file or directory, for as long as it is open; False if another process has it locked.
    Raises OSError where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
