"""What commands write: files that are whole or not there, and a stdout whose errors are ours."""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from stream.errors import ClosedPipeError, OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT: Final = "-"


class Output:
    """An open file, for bytes. No class of `io`: NumPy would write past it, and lose what the error was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes = 0
        """How many were written."""

    def write(self, data: ReadableBuffer) -> int:
        """All of them. Raises OutputError, or ClosedPipeError when nobody reads any more."""
        written = self._file.write(data)
        self.bytes += written
        return written


@contextmanager
def writing(path: Path) -> Iterator[Output]:
    """The file at `path`, or stdout for `-`: written and durable when the block ends, else as it was.

    The bytes go to a file beside it, which takes its name last: an error, Ctrl-C or SIGTERM leaves nothing.
    It keeps permissions and owner of a file that it replaces, and a symbolic link stays one. Pipes and
    devices are written as they are. Raises OutputError that names the path, ClosedPipeError.
    """
    if str(path) == STDOUT:
        with if_interrupted(lambda: "what stdout got is not all"):
            yield Output(sys.stdout.buffer)
        sys.stdout.flush()
        return
    with if_interrupted(lambda: f"{path} is as it was before"), _whole(path) as file:
        yield file


@contextmanager
def if_interrupted(say: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C or SIGTERM within the block ends the command with what `say` tells of what was done by then."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        interrupted.append(say())
        raise


interrupted: Final[list[str]] = []
"""What an interrupted command has to say, for its last line."""


@contextmanager
def _whole(path: Path) -> Iterator[Output]:
    named = str(path)
    with _explained(named):
        target = path.resolve()  # through links, so that they stay
        there = target.stat() if target.exists() else None
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if there is not None and not stat.S_ISREG(there.st_mode):
        with _opened(named, target, os.O_WRONLY) as file:
            yield Output(file)
        return
    if there is not None and not os.access(target, os.W_OK):  # a read-only file is not to be replaced
        raise OutputError(f"{named}: {os.strerror(errno.EACCES)}")
    part = target.with_name(f".neardup-{secrets.token_hex(8)}.part")
    try:
        with _opened(named, part, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            if there is not None:
                with _explained(named):
                    _take_after(file.fileno(), there)
            yield Output(file)
            file.flush()
            with _explained(named):
                os.fsync(file.fileno())
        with _explained(named):
            part.replace(target)
            _sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):  # as it was not made, or its disk is gone
            part.unlink()
        raise


def take_stdout() -> None:
    """Let errors of stdout be OutputError and ClosedPipeError, whoever writes to it: click, rich, or we."""
    told = cast(io.TextIOWrapper | None, sys.stdout)
    if told is None:  # closed by whoever started us: writing must fail
        told = io.TextIOWrapper(Path(os.devnull).open("rb"), encoding="utf-8")  # noqa: SIM115
    _kept.append(told)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Raw("stdout", told.fileno(), closefd=False)),
        encoding=told.encoding,
        errors=told.errors,
        line_buffering=told.isatty(),
    )


def give_up_stdout() -> None:
    """Let go of what could not be written: the interpreter would try once more at its end."""
    away = os.open(os.devnull, os.O_WRONLY)
    os.dup2(away, sys.stdout.fileno())
    os.close(away)


_kept: Final[list[io.TextIOWrapper]] = []
"""The stdout that was there: collected, it would close its file descriptor."""


class _Raw(io.FileIO):
    """A file descriptor whose errors name the file."""

    def __init__(self, named: str, fd: int, *, closefd: bool = True) -> None:
        super().__init__(fd, "wb", closefd=closefd)
        self._named = named

    def write(self, data: ReadableBuffer, /) -> int:
        with _explained(self._named):
            return super().write(data)

    def close(self) -> None:
        with _explained(self._named):  # where network file systems tell of a full disk
            super().close()


@contextmanager
def _opened(named: str, path: Path, flags: int) -> Iterator[BinaryIO]:
    with _explained(named):
        raw = _Raw(named, os.open(path, flags | os.O_CLOEXEC, 0o666))
    with io.BufferedWriter(raw) as file:
        yield file


def _take_after(fd: int, there: os.stat_result) -> None:
    """Owner and permissions of the file that is replaced; the owner as far as we may."""
    with suppress(PermissionError):
        os.fchown(fd, there.st_uid, there.st_gid)
    os.fchmod(fd, stat.S_IMODE(there.st_mode))


def _sync_directory(directory: Path) -> None:
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # one may write in it, and not read it
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _explained(named: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError(f"{named}: nobody reads it any more") from error
    except OSError as error:
        raise OutputError(f"{named}: {error.strerror or error}") from error
