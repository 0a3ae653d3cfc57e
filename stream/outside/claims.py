"""Claim checks: a message names a record of a web archive, and the record is read from under one directory.

Names come from outside, so every step from the root down is opened by itself and follows no link: no name
can lead out, also not while somebody changes the directory.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO, Final

from stream.errors import PageError
from stream.outside.errors import AwayError, WantedError
from stream.outside.warc_record import ArchivedPage, archived_page

MAX_NAME: Final = 4096
_STEP: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FORBIDDEN: Final = {
    errno.ELOOP: "a symbolic link",
    errno.ENOTDIR: "goes through a symbolic link or a file",
    errno.ENAMETOOLONG: "too long a name",
    errno.ENXIO: "no file",
}

_Place = tuple[str, int, int]


class Archive:
    """The directory of the setting `claim_root`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._held: tuple[_Place, ArchivedPage | PageError] | None = None

    def record(self, filename: str, offset: int, limit: int) -> ArchivedPage:
        """The page at that byte of a file, once it was fetched; see `Outside.record`."""
        steps = _steps(filename, offset)
        place = (filename, offset, limit)
        if self._held is None or self._held[0] != place:
            raise WantedError(f"{filename} at byte {offset}", lambda: self._fetch(place, steps))
        found = self._held[1]
        self._held = None
        if isinstance(found, PageError):
            raise found
        return found

    def _fetch(self, place: _Place, steps: list[str]) -> None:
        """Bounded by `limit` in memory and hence in time, but for what the file system takes."""
        filename, offset, limit = place
        try:
            with self._open(filename, steps) as file:
                where = f"{filename} at byte {offset}"
                found: ArchivedPage | PageError = archived_page(file, offset, limit, where)
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
