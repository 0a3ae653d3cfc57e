"""Directories with crawled content, which only their owner may read."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def private_directory(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700; `tighten` it if it exists."""
    for each in reversed([path, *path.parents]):
        each.mkdir(mode=0o700, exist_ok=True)
    tighten(path)


def tighten(path: Path) -> None:
    """Revoke the permissions of group and others, recursively, on all files that this user owns."""
    _tighten(path, path.stat().st_mode)
    for parent, directories, files in os.walk(path):
        for name in (*directories, *files):
            each = Path(parent, name)
            with suppress(FileNotFoundError):  # RocksDB removes files in the background
                _tighten(each, each.lstat().st_mode)


def _tighten(path: Path, mode: int) -> None:
    if mode & _OTHERS and not stat.S_ISLNK(mode):
        with suppress(PermissionError):
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
