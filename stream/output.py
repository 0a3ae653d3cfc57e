"""Output of commands: files that are written completely or not at all, and a stdout with our own errors."""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from stream.durable import sync_directory
from stream.errors import ClosedPipeError, OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT: Final = "-"


class Output:
    """An open binary file. It is not an `io` class, because NumPy would bypass it and lose the cause of
    errors."""

    def __init__(self, file: BinaryIO, *, direct: bool = False) -> None:
        self._file = file
        self.direct = direct
        """Whether bytes can be read at once, as on stdout, and not when all are written."""
        self.bytes = 0
        """Number of bytes written so far."""

    def write(self, data: ReadableBuffer) -> int:
        """Write all of `data`. Raises OutputError, or ClosedPipeError if the reader closed the pipe."""
        written = self._file.write(data)
        self.bytes += written
        return written

    def flush(self) -> None:
        """Pass on what is buffered. Raises as `write` does."""
        self._file.flush()


@contextmanager
def writing(path: Path) -> Iterator[Output]:
    """Open the file at `path`, or stdout for `-`, for atomic writing.

    Bytes go to a temporary file in the same directory, which is synced and renamed when the block ends. An
    error, Ctrl-C or SIGTERM leaves an existing file unchanged. Permissions and owner of a replaced file are
    kept, and a symbolic link stays a link. Pipes and devices are written directly. Raises OutputError, which
    names the path, and ClosedPipeError.
    """
    if str(path) == STDOUT:
        with if_interrupted(lambda: "the output on stdout is incomplete"):
            yield Output(sys.stdout.buffer, direct=True)
        sys.stdout.flush()
        return
    with if_interrupted(lambda: f"{path} is unchanged"), _whole(path) as file:
        yield file


@contextmanager
def if_interrupted(say: Callable[[], str]) -> Iterator[None]:
    """If Ctrl-C or SIGTERM interrupts the block, print what `say` returns as the last line of the command."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, CancelledError):  # at Ctrl-C, asyncio.run cancels its task
        interrupted.append(say())
        raise


interrupted: Final[list[str]] = []
"""Parts of the last line of an interrupted command, which says what was done by then."""


@contextmanager
def _whole(path: Path) -> Iterator[Output]:
    named = str(path)
    with _translated_errors(named):
        try:
            target = path.resolve()  # replace the target of a link, not the link
        except (RuntimeError, ValueError) as error:  # a loop of links, a zero byte
            raise OutputError(f"{named}: {error}") from error
        there = target.stat() if target.exists() else None
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if there is not None and not stat.S_ISREG(there.st_mode):
        with _opened(named, target, os.O_WRONLY) as file:
            yield Output(file, direct=True)
        return
    if there is not None and not os.access(target, os.W_OK):  # renaming would replace even a read-only file
        raise OutputError(f"{named}: {os.strerror(errno.EACCES)}")
    part = target.with_name(f".neardup-{secrets.token_hex(8)}.part")
    try:
        with _opened(named, part, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            if there is not None:
                with _translated_errors(named):
                    _take_after(file.fileno(), there)
            yield Output(file)
            file.flush()
            with _translated_errors(named):
                os.fsync(file.fileno())
        with _translated_errors(named):
            part.replace(target)
            with suppress(PermissionError):  # a directory can be writable but not readable
                sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):  # it may not exist, or its disk may be gone
            part.unlink()
        raise


def take_stdout() -> None:
    """Replace `sys.stdout`, so that click and rich raise OutputError and ClosedPipeError too, and print any
    letter."""
    original = cast(io.TextIOWrapper | None, sys.stdout)
    if original is None:  # started with stdout closed: writing must fail
        original = io.TextIOWrapper(Path(os.devnull).open("rb"), encoding="utf-8")  # noqa: SIM115
    _kept.append(original)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Raw("stdout", original.fileno(), closefd=False)),
        encoding=original.encoding,
        errors="backslashreplace",  # as stderr has: a locale may lack the letters of a page
        line_buffering=original.isatty(),
        write_through=True,
    )


def write_json(line: bytes) -> None:
    """Write a line of JSON to stdout: in UTF-8, whatever the locale has."""
    sys.stdout.buffer.write(line + b"\n")


def give_up_stdout() -> None:
    """Discard output that could not be written, which the interpreter would try to flush again at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


_kept: Final[list[io.TextIOWrapper]] = []
"""The original stdout. If it were garbage-collected, it would close its file descriptor."""


class _Raw(io.FileIO):
    """A raw file whose errors are OutputError and ClosedPipeError, which name the file."""

    def __init__(self, named: str, fd: int, *, closefd: bool = True) -> None:
        super().__init__(fd, "wb", closefd=closefd)
        self._named = named

    def write(self, data: ReadableBuffer, /) -> int:
        with _translated_errors(self._named):
            return super().write(data)

    def close(self) -> None:
        with _translated_errors(self._named):  # network file systems may report a full disk only here
            super().close()


@contextmanager
def _opened(named: str, path: Path, flags: int) -> Iterator[BinaryIO]:
    with _translated_errors(named):
        raw = _Raw(named, os.open(path, flags | os.O_CLOEXEC, 0o666))
    with io.BufferedWriter(raw) as file:
        yield file


def _take_after(fd: int, there: os.stat_result) -> None:
    """Copy permissions, and the owner if allowed, of the file to be replaced."""
    with suppress(PermissionError):
        os.fchown(fd, there.st_uid, there.st_gid)
    os.fchmod(fd, stat.S_IMODE(there.st_mode))


@contextmanager
def _translated_errors(named: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError(f"{named}: the reader closed the pipe") from error
    except OSError as error:
        raise OutputError(f"{named}: {error.strerror or error}") from error
