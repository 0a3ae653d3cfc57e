"""Translates failures of RocksDB and of the disk into errors that name the state directory, the file and the
remedy."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, TypeGuard

from stream.errors import DamagedStateError, DiskError, NeardupError, StateBusyError, StateError

CURE: Final = (
    "move the directory away: a role rebuilds it from the topics (and moves it by itself with"
    " --rebuild-damaged), a dashboard from what they still have, an Index starts empty"
)
DAMAGED: Final = "damaged"
OUTDATED: Final = "outdated"
"""Words in the names of directories that were set aside: it is damaged, or the logs begin behind it."""
_CORRUPTION: Final = "Corruption: "
MISSING_FILE: Final = "IO error: No such file or directory"
_LOCKED: Final = ("IO error: While lock file", "IO error: lock hold by current process")
_DISK_NUMBERS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
_DISK: Final = tuple(map(os.strerror, _DISK_NUMBERS))
_REFUSALS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR})
_SURROUNDINGS: Final = tuple(map(os.strerror, {*_REFUSALS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}))
"""Permissions and limits, with which the files may be whole. RocksDB reports some failures to open a file as
corruption."""
_AFTERTHOUGHT: Final = re.compile(r"\s+The file \S+ may be corrupted\.")
"""RocksDB appends the manifest's name to errors about any file that it reads while opening."""
_FILE: Final = re.compile(
    r"\b(\d{6,}\.(?:sst|log)|MANIFEST-\d+|CURRENT|IDENTITY|OPTIONS-\d+|rocksdict-config\.json)\b"
)


def damage_error(path: Path, what: str) -> DamagedStateError:
    """The error for a state directory whose content is not what was written."""
    return DamagedStateError(f"state directory {path}: damaged: {what}; {CURE}")


def disk_error(directory: Path | str, message: object) -> DiskError:
    """The error for a directory on a disk that is full or fails."""
    return DiskError(
        f"directory {directory}: {message}; free some space, or repair the disk, and start again: flushed"
        " data are safe"
    )


def names_disk(message: str) -> bool:
    """Whether a message is of a disk that is full or fails."""
    return any(each in message for each in _DISK)


def is_of_disk(error: BaseException) -> bool:
    """Whether the cause of an error is a disk that is full or fails."""
    return isinstance(error, OSError) and error.errno in _DISK_NUMBERS


def translate(path: Path, error: Exception) -> NeardupError:
    """Translate an error of RocksDB or of the disk in a state directory into one of ours."""
    message = str(error)
    if message.startswith(_LOCKED):
        return StateBusyError(f"state directory {path}: in use by another process ({message})")
    if names_disk(message):
        return disk_error(path, message)
    if _is_gone(path, error):
        return DiskError(f"directory {path}: it is gone ({message}); restarted, a role creates it again")
    text = _AFTERTHOUGHT.sub("", message)
    if any(each in message for each in _SURROUNDINGS) or not _is_damage(text):
        return StateError(f"state directory {path}: {message}")
    if _file_in(path, text):
        return _file_damage_error(path, text)
    led = _file_in(path, message)
    return damage_error(path, f"{led[0]} or a file that it names: {text}" if led else text)


def _is_damage(text: str) -> bool:
    return text.startswith((_CORRUPTION, MISSING_FILE))


def _file_in(path: Path, text: str) -> re.Match[str] | None:
    """The file that a message names, in a directory that may be called like one."""
    return _FILE.search(text.replace(str(path), ""))


def _file_damage_error(path: Path, text: str) -> DamagedStateError:
    file = _file_in(path, text)
    return damage_error(path, f"{file[0]}: {text}" if file else text)


def read_error(path: Path, error: NeardupError) -> DamagedStateError | None:
    """The error for a file that cannot be read because its checksum or the disk fails; None for others."""
    if isinstance(error, DamagedStateError):
        return error
    message = str(error.__cause__ or error)
    return _file_damage_error(path, message) if os.strerror(errno.EIO) in message else None


def damaged_file(error: DamagedStateError) -> str | None:
    """Name of the damaged file, if known."""
    match = _FILE.search(str(error).rpartition(": damaged: ")[2])
    return match[0] if match else None


def set_aside(path: Path, why: str = DAMAGED) -> Path:
    """Rename a state directory that no process has open, and return its new path beside the old one, which
    has `why` in its name. Raises StateBusyError, and StateError if it cannot be moved."""
    with (path / "LOCK").open("ab") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StateBusyError(f"state directory {path}: {why}, but in use by another process") from error
        return rename_damaged(path, why)


def rename_damaged(path: Path, why: str = DAMAGED) -> Path:
    """Rename a directory to a unique name with `why` and a timestamp, and return its new path."""
    name = f"{path.name}.{why}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (path.with_name(name + (f".{number}" if number else "")) for number in count())
    to = next(each for each in names if not each.exists())
    try:
        path.rename(to)
    except OSError as error:
        raise StateError(f"state directory {path}: {why}, and cannot be moved: {error.strerror}") from error
    return to


def translate_cause(path: Path, error: BaseException | None) -> NeardupError | None:
    """Like `translate`, for an error that may be wrapped in others. None if its cause is neither RocksDB nor
    the disk."""
    while error is not None:
        if _is_translatable(error):
            return translate(path, error)
        error = error.__cause__ or error.__context__
    return None


def _is_translatable(error: BaseException | None) -> TypeGuard[Exception]:
    # The binding raises plain Exception for RocksDB's errors, and subclasses for wrong calls.
    return error is not None and (type(error) is Exception or is_of_disk(error))


def _is_of_directory(path: Path, error: OSError) -> bool:
    """Whether an error of the operating system would be met again at the next start."""
    return error.errno in _REFUSALS or _is_gone(path, error)


def _is_gone(path: Path, error: BaseException | None) -> bool:
    """Whether the error is caused by the deletion of the directory."""
    missing = isinstance(error, FileNotFoundError) or MISSING_FILE in str(error)
    return missing and not path.exists()


class TranslatedErrors:
    """A context manager that translates errors of RocksDB and of its files into ours (see `translate`)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _is_translatable(error) or (isinstance(error, OSError) and _is_of_directory(self._path, error)):
            raise translate(self._path, error) from error
