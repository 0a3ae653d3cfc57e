"""Opens plain, gzip, bzip2, xz and zstd files; the compression is detected by the first bytes."""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import suppress
from typing import BinaryIO, Final, cast

from stream.errors import PageError, SettingsError
from stream.pages.members import DAMAGED, Members
from stream.stores.objects import is_url, path_of

STDIN: Final = "-"
_BUFFER: Final = 1 << 16


class CountingFile(io.RawIOBase):
    """A binary file that counts the bytes read from it, to report progress."""

    def __init__(self, file: BinaryIO, size: int = 0, *, owned: bool = True) -> None:
        """Of a file of `size` bytes, reading raises OSError at an earlier end: it was truncated meanwhile."""
        self._file = file
        self._size = size
        self._owned = owned
        self._ahead = b""
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        # read1, so that lines from a pipe arrive as they are written, not when a buffer is full.
        data = self._ahead[: len(buffer)] or self._read(len(buffer))
        self._ahead = self._ahead[len(data) :]
        buffer[: len(data)] = data
        self.bytes_read += len(data)
        if not data and self.bytes_read < self._size:
            raise OSError(f"the file ends after {self.bytes_read} bytes, and had {self._size}")
        return len(data)

    def look_ahead(self) -> bytes:
        """Return the bytes that are read next: as many more at each call as there are at once."""
        self._ahead += self._read(_BUFFER)
        return self._ahead

    def _read(self, size: int) -> bytes:
        return cast(io.BufferedReader, self._file).read1(size)

    def close(self) -> None:
        if self._owned:
            self._file.close()
        super().close()


def open_counting(path: str) -> CountingFile:
    """Open a file, an object, or standard input for `-`. Raises PageError."""
    if path == STDIN:
        return CountingFile(sys.stdin.buffer, owned=False)
    try:
        file = path_of(path).open("rb")
        return CountingFile(file, 0 if is_url(path) else os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise PageError("damaged_source", f"{path}: cannot be opened: {error.strerror}") from None


def is_read_once(path: str) -> bool:
    """Whether what is at `path` can be read only once: standard input, a pipe, a device."""
    if path == STDIN:
        return True
    if is_url(path):
        return False
    try:
        mode = os.stat(path).st_mode
    except OSError:  # reading it names the fault
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def decompressed(raw: CountingFile) -> io.BufferedReader:
    """The decompressed content of a file, over all members."""
    return io.BufferedReader(Members(raw), _BUFFER)


def first_bytes(path: str, count: int = 512) -> bytes:
    """The first bytes of a file's content, as far as it can be decompressed. Raises SettingsError."""
    try:
        with open_counting(path) as raw:
            return beginning(Members(raw), count)
    except PageError as error:
        raise SettingsError(f"source {error.detail}") from None


def beginning(members: Members, count: int = 512) -> bytes:
    """The first bytes of a content, as far as it can be decompressed."""
    start = b""
    with suppress(*DAMAGED):
        while len(start) < count and (block := members.block()):
            start += block
    return start[:count]
