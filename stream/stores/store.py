"""What a store of files does, wherever it is."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from stream.stores.files import new_file

_PART: Final = r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*"
_NAME: Final = re.compile(rf"{_PART}(/{_PART})*")


class Entry(NamedTuple):
    """A file of a store."""

    name: str
    """As it was put."""
    size: int
    """Bytes."""
    modified: float
    """Seconds since 1970, by the store's clock."""


class Store(ABC):
    """Files by name, which appear whole or not at all. Several threads and processes may use one at once.

    Names have one or more parts between single slashes, of letters, digits and `._=-`; none begins with a
    dot. Other names raise ValueError.

    What fails raises OSError: `strerror` has our own words, for those of a store quote requests and with them
    the ids of keys; `filename` is the file's URL. Its `errno` says what happened:

    | errno | meaning |
    |---|---|
    | ENOENT (FileNotFoundError) | no such file, or no such bucket or directory to put it into |
    | EEXIST (FileExistsError) | another file has that name, though only a new one was to be put |
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
    def put(
        self,
        name: str,
        content: bytes | Path,
        *,
        only_new: bool = False,
        turn: Callable[[], None] = lambda: None,
    ) -> None:
        """Store bytes, or what a file has, in place of an earlier file; durable once this returns.

        A file is read in pieces. `turn` is called often while it is, and may raise: then nothing is stored,
        and what was sent may be left as by a killed process.

        With `only_new`, raises FileExistsError if a file with other content has the name: one with the same
        content may be our own, if the answer to a request was lost. Then content is at most `ONE_REQUEST`
        bytes.
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
    def head(self, name: str) -> Entry:
        """A file's size and time."""

    @abstractmethod
    def _blocks(self, name: str) -> Iterator[bytes]:
        """The content of a file, in pieces of some MiB."""


ONE_REQUEST: Final = 64 << 20
"""Bytes at most of a file that is put `only_new`, and is held in memory."""


def is_name(text: str) -> bool:
    """Whether a file may have this name."""
    return _NAME.fullmatch(text) is not None


def checked(name: str) -> str:
    """The name of a file. Raises ValueError if none may have it."""
    if not is_name(name):
        raise ValueError(f"{name!r} is no name of a stored file")
    return name


def whole(content: bytes | Path) -> bytes:
    """The content of a file that is put in one request. Raises ValueError if it is too large."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if size > ONE_REQUEST:
        raise ValueError(f"{size} bytes are not put in one request, {ONE_REQUEST} at most")
    return content if isinstance(content, bytes) else content.read_bytes()
