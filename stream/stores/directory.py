"""A store that is a directory, on a disk or a network file system."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from stream.durable import sync_directory
from stream.stores.store import Entry, Store, checked, is_name, new_file

_PARTS: Final = ".parts"
"""Below the root: files that are being written."""
_BLOCK: Final = 1 << 20
_LEFT_SECONDS: Final = 86_400.0
"""Age of the last byte of a part whose writer was killed."""


class DirectoryStore(Store):
    """Files below a directory that only their owner may read. It and directories in it are made at the first
    `put`, but the one that it lies in must exist: a file system that is not mounted is an error."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self._root = root

    def put(self, name: str, content: bytes | Path, turn: Callable[[], None] = lambda: None) -> None:
        target = self._path(name)
        with self._explained(name, content):
            part = self._new_part()
            try:
                with new_file(part) as file:
                    for block in _blocks_of(content):
                        file.write(block)
                        turn()
                self._make(target.parent)
                part.rename(target)
                sync_directory(target.parent)
            finally:
                part.unlink(missing_ok=True)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        within = self._path(prefix) if prefix else self._root
        with self._explained(prefix):
            self._root.parent.stat()
            for name in sorted(self._names(within)):
                with suppress(FileNotFoundError):  # removed meanwhile
                    status = (self._root / name).stat()
                    yield Entry(name, status.st_size, status.st_mtime)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._explained(name), suppress(FileNotFoundError):
                self._path(name).unlink()

    def _blocks(self, name: str) -> Iterator[bytes]:
        with self._explained(name):
            yield from _blocks_of(self._path(name))

    def _path(self, name: str) -> Path:
        return self._root / checked(name)

    def _names(self, within: Path) -> Iterator[str]:
        """Names of the files below a directory, without those that are no names of ours."""
        for parent, _, files in os.walk(within, onerror=_raise_unless_missing):
            for file in files:
                name = Path(parent, file).relative_to(self._root).as_posix()
                if is_name(name):
                    yield name

    def _new_part(self) -> Path:
        """A path for a file that is being written; removes those whose writers were killed."""
        parts = self._root / _PARTS
        self._make(parts)
        for left in parts.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                    left.unlink()
        return parts / secrets.token_hex(8)

    def _make(self, directory: Path) -> None:
        """Make a directory in the root, or the root, durable with those that it lies in."""
        if directory.is_dir():
            return
        if directory != self._root:
            self._make(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        sync_directory(directory.parent)

    @contextmanager
    def _explained(self, name: str, ours: bytes | Path | None = None) -> Iterator[None]:
        """Name the stored file in errors, but not in those of `ours`, which is none of the store's."""
        try:
            yield
        except OSError as error:
            if isinstance(ours, Path) and error.filename in (ours, str(ours)):
                raise
            number = error.errno or errno.EIO
            raise OSError(number, os.strerror(number), str(self._root / name)) from None


def _blocks_of(content: bytes | Path) -> Iterator[bytes]:
    """Bytes, or the content of a file in pieces."""
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error
