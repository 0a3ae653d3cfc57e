"""What a store of files does, wherever it is."""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_PART: Final = r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*"
_NAME: Final = re.compile(rf"{_PART}(/{_PART})*")


class Entry(NamedTuple):
    """A file of a store, or an object of a bucket."""

    name: str
    """As it was put; the key of an object."""
    size: int
    """Bytes."""
    modified: float
    """Seconds since 1970, by the store's clock."""
    etag: str | None = None
    """Of an object, what changes with its content."""


class Store(ABC):
    """Files by name, which appear whole or not at all. Several threads and processes may use one at once.

    Names have one or more parts between single slashes, of letters, digits and `._=-`; none begins with a
    dot. Other names raise ValueError.

    What fails raises OSError: `strerror` has our own words, for those of a store quote requests and with them
    the ids of keys; `filename` is the file's URL. Its `errno` says what happened:

    | errno | meaning |
    |---|---|
    | ENOENT (FileNotFoundError) | no such file, or no such bucket or directory to put it into |
    | EACCES (PermissionError) | denied; credentials are unknown, wrong, missing or expired |
    | EREMOTE | the bucket is in another region |
    | EHOSTUNREACH | the store cannot be reached, or closed the connection |
    | ETIMEDOUT (TimeoutError) | the store did not answer in time |
    | EAGAIN (BlockingIOError) | the store asks for fewer requests |
    | ENOSPC, EDQUOT | the store is full, or its quota is used up |
    | ESTALE | the file was replaced while it was read |
    | EINVAL | the store has a file whose name cannot be read |
    | EIO | anything else |

    Requests to which a store gave no answer, or one that passes, are repeated four times.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        """Where the store is, without credentials."""

    def __str__(self) -> str:
        return self.url

    @abstractmethod
    def put(self, name: str, content: bytes | Path, turn: Callable[[], None] = lambda: None) -> None:
        """Store bytes, or what a file has, in place of an earlier file; durable once this returns.

        A file is read in pieces. `turn` is called often while it is, and may raise: then nothing is stored,
        and what was sent may be left as by a killed process.
        """

    def get(self, name: str, most: int = sys.maxsize) -> bytes:
        """The bytes of a file, of a larger one the first `most`. Little more is held in memory."""
        content = b""
        for block in self._blocks(checked(name)):
            content += block
            if len(content) >= most:
                break
        return content[:most]

    def download(self, name: str, path: Path, note: Callable[[bytes], object] = lambda _: None) -> None:
        """Copy a file to a new one at `path`, with mode 0600, durable but for its entry in the directory.
        `note` is called with each piece of it, in order.

        Raises FileExistsError if `path` exists. Nothing is left there after another error. If that is of the
        new file, `filename` is `path`.
        """
        blocks = self._blocks(checked(name))
        with new_file(path) as file:
            for block in blocks:
                file.write(block)
                note(block)

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Entry]:
        """The files whose names begin with the parts of `prefix`, by name. There may be none."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove files. Those that are not there count as removed."""

    @abstractmethod
    def _blocks(self, name: str) -> Iterator[bytes]:
        """The content of a file, in pieces of some MiB."""


def is_name(text: str) -> bool:
    """Whether a file may have this name."""
    return _NAME.fullmatch(text) is not None


def checked(name: str) -> str:
    """The name of a file. Raises ValueError if none may have it."""
    if not is_name(name):
        raise ValueError(f"{name!r} is no name of a stored file")
    return name


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file with mode 0600, synced when the block ends and removed at an error."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
