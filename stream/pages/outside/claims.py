"""Claim checks: a message names a record of a web archive, which is read from below one root directory.

The names are untrusted. Each component of a path is opened on its own without following symbolic links, so
no name leads out of the root, even while the directory is being changed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO, Final, NamedTuple

from stream.errors import PageError
from stream.pages.decompression import too_large
from stream.pages.members import FRAME, MAX_DICTIONARY, dictionary_bytes
from stream.pages.outside.errors import FetchNeededError, UnavailableError
from stream.pages.warc_record import ArchivedPage, MoreError, archived_page

MAX_NAME: Final = 4096
FIRST_BYTES: Final = 128 << 10
"""Bytes of the first read of a record, which suffice for most. Each further read brings the total to four
times as much, up to the largest page."""
_STEP: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FORBIDDEN: Final = {
    errno.ELOOP: "a symbolic link",
    errno.ENOTDIR: "a symbolic link or a file in its path",
    errno.ENAMETOOLONG: "its name is too long",
    errno.ENXIO: "not a regular file",
}

_Place = tuple[str, int]


class _Held(NamedTuple):
    """The bytes read from an archive at an offset."""

    dictionary: bytes
    """The frame that begins the archive, if it has the dictionary of all others."""
    data: bytes
    ended: bool
    """Whether the archive ends with `data`."""


class Archive:
    """Web archives below the directory of the setting `claim_root`.

    Reading and parsing are apart: a slow store delays the former, and the page's deadline covers only the
    latter.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._held: tuple[_Place, _Held | PageError] | None = None

    def record(self, filename: str, offset: int, limit: int) -> ArchivedPage:
        """Return the page at `offset` of a file. Raises FetchNeededError until it is fetched; see
        `Outside.record`."""
        steps, place = _steps(filename, offset), (filename, offset)
        where = f"{filename} at byte {offset}"
        held, self._held = self._held, None
        if held is None or held[0] != place:
            raise FetchNeededError(where, lambda: self._fetch(place, steps, b"", limit))
        content = held[1]
        if isinstance(content, PageError):
            raise content
        try:
            return archived_page(content.dictionary + content.data, content.ended, limit, where)
        except MoreError:
            if len(content.data) > limit + FIRST_BYTES:  # leaves room for the headers
                raise too_large(limit, "archived page") from None
            raise FetchNeededError(where, lambda: self._fetch(place, steps, content.data, limit)) from None

    def _fetch(self, place: _Place, steps: list[str], start_of_record: bytes, limit: int) -> None:
        """Read more of a record after its first bytes. Bounded in memory, but not in time."""
        filename, offset = place
        size = min(max(FIRST_BYTES, 3 * len(start_of_record)), limit + FIRST_BYTES + 1 - len(start_of_record))
        try:
            with self._open(filename, steps) as file:
                start = offset + len(start_of_record)
                beyond = start >= file.seek(0, os.SEEK_END)
                more = b"" if beyond else _read_at(file, start, size)
                dictionary = _dictionary(file) if offset else b""
            content: _Held | PageError = _Held(dictionary, start_of_record + more, len(more) < size)
        except PageError as error:
            content = error
        except OSError as error:
            raise UnavailableError(
                f"claim_root {self._root}: {filename}: {error.strerror or error}"
            ) from error
        self._held = place, content

    def _open(self, filename: str, steps: list[str]) -> BinaryIO:
        """Open a file below the root. Raises PageError for a name that leads to no file, OSError or
        UnavailableError if the store is unavailable."""
        here = self._open_root()
        try:
            for step in steps[:-1]:
                above, here = here, _down(step, os.O_DIRECTORY, here, filename)
                os.close(above)
            # Not blocking, or opening a named pipe would hang.
            file = _down(steps[-1], os.O_NONBLOCK, here, filename)
        finally:
            os.close(here)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise PageError("bad_claim", f"{filename} is not a regular file")
        return os.fdopen(file, "rb")

    def _open_root(self) -> int:
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(root) as entries:
                if next(entries, None) is None:  # as a mount point is while nothing is mounted
                    raise UnavailableError(f"claim_root {self._root} is empty: is it mounted?")
        except BaseException:
            os.close(root)
            raise
        return root


def _read_at(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def _dictionary(file: BinaryIO) -> bytes:
    """Return the frame with a dictionary that begins an archive, or nothing."""
    size = dictionary_bytes(_read_at(file, 0, FRAME))
    return _read_at(file, 0, size) if size <= MAX_DICTIONARY else b""


def _steps(filename: str, offset: int) -> list[str]:
    """Return the components of a relative path. Raises PageError `bad_claim`."""
    steps = filename.split("/")
    if not filename or len(filename) > MAX_NAME or "\0" in filename or set(steps) & {"", ".", ".."}:
        raise PageError(
            "bad_claim", f"warc_filename {filename[:200]!r}: expected a relative path without `..`"
        )
    if offset < 0:
        raise PageError("bad_claim", f"warc_offset {offset}")
    return steps


def _down(step: str, flags: int, here: int, filename: str) -> int:
    try:
        return os.open(step, _STEP | flags, dir_fd=here)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise PageError("claim_not_found", f"{filename}: {error.strerror}") from None
        if error.errno in _FORBIDDEN:
            raise PageError("bad_claim", f"{filename[:200]}: {_FORBIDDEN[error.errno]}") from None
        raise
    except UnicodeEncodeError:
        raise PageError("bad_claim", f"warc_filename {filename[:200]!r} is not a valid file name") from None
