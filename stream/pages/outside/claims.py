"""Claim checks: a message names a record of a web archive, and the record is read from under one directory.

Names come from outside, so every step from the root down is opened by itself and follows no link: no name
can lead out, also not while somebody changes the directory.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO, Final, NamedTuple

from stream.errors import PageError
from stream.pages.compression import too_large
from stream.pages.outside.errors import AwayError, WantedError
from stream.pages.warc_record import ArchivedPage, MoreError, archived_page

MAX_NAME: Final = 4096
FIRST_BYTES: Final = 128 << 10
"""Read of a record at first, more than most take; then four times as many, up to the largest page."""
_STEP: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FORBIDDEN: Final = {
    errno.ELOOP: "a symbolic link",
    errno.ENOTDIR: "goes through a symbolic link or a file",
    errno.ENAMETOOLONG: "too long a name",
    errno.ENXIO: "no file",
}

_Place = tuple[str, int]


class _Held(NamedTuple):
    """What was read of an archive, from a byte on."""

    data: bytes
    ended: bool
    """The archive has no more."""


class Archive:
    """The directory of the setting `claim_root`.

    Reading takes the time that the store takes; what was read is parsed in the time that the page has.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._held: tuple[_Place, _Held | PageError] | None = None

    def record(self, filename: str, offset: int, limit: int) -> ArchivedPage:
        """The page at that byte of a file, once it was fetched; see `Outside.record`."""
        steps, place = _steps(filename, offset), (filename, offset)
        where = f"{filename} at byte {offset}"
        held, self._held = self._held, None
        if held is None or held[0] != place:
            raise WantedError(where, lambda: self._fetch(place, steps, b"", limit))
        found = held[1]
        if isinstance(found, PageError):
            raise found
        try:
            return archived_page(found.data, found.ended, limit, where)
        except MoreError:
            if len(found.data) > limit + FIRST_BYTES:  # with room for headers
                raise too_large(limit, "archived page") from None
            raise WantedError(where, lambda: self._fetch(place, steps, found.data, limit)) from None

    def _fetch(self, place: _Place, steps: list[str], begun: bytes, limit: int) -> None:
        """Read on; bounded in memory, but in time only by the store."""
        filename, offset = place
        size = min(max(FIRST_BYTES, 3 * len(begun)), limit + FIRST_BYTES + 1 - len(begun))
        try:
            with self._open(filename, steps) as file:
                start = offset + len(begun)
                beyond = start >= file.seek(0, os.SEEK_END)
                more = b"" if beyond else _read_at(file, start, size)
            found: _Held | PageError = _Held(begun + more, len(more) < size)
        except PageError as error:
            found = error
        except OSError as error:
            raise AwayError(f"claim_root {self._root}: {filename}: {error.strerror or error}") from error
        self._held = place, found

    def _open(self, filename: str, steps: list[str]) -> BinaryIO:
        """Raises PageError for names that lead nowhere, OSError where the store is away."""
        here = self._open_root()
        try:
            for step in steps[:-1]:
                above, here = here, _down(step, os.O_DIRECTORY, here, filename)
                os.close(above)
            # Not blocking: a pipe of that name must not hold us.
            file = _down(steps[-1], os.O_NONBLOCK, here, filename)
        finally:
            os.close(here)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise PageError("bad_claim", f"{filename} is no file")
        return os.fdopen(file, "rb")

    def _open_root(self) -> int:
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(root) as entries:
                if next(entries, None) is None:  # what a mount point looks like when nothing is mounted
                    raise AwayError(f"claim_root {self._root} is empty: is it mounted?")
        except BaseException:
            os.close(root)
            raise
        return root


def _read_at(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def _steps(filename: str, offset: int) -> list[str]:
    """Names from the root down. Raises PageError `bad_claim`."""
    steps = filename.split("/")
    if not filename or len(filename) > MAX_NAME or "\0" in filename or set(steps) & {"", ".", ".."}:
        raise PageError(
            "bad_claim", f"warc_filename {filename[:200]!r}: a relative path is expected, no `..`"
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
        raise PageError("bad_claim", f"warc_filename {filename[:200]!r} is no file name") from None
