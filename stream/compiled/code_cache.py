"""A cache of compiled functions on disk, shared by processes.

A file contains the machine code of one function for one set of argument types. Its name includes a digest of
everything that the code depends on, such as source, versions and CPU, so no file is ever stale. Files are
written under another name and renamed, and have a checksum, so processes of different versions can share a
directory, and damaged files are compiled again.

Numba's own cache has no lock and no checksum. Of processes that start together each compiles everything; two
that compile a function for different types can leave one's code under the other's types; and a damaged file
is an error, or is run.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
import platformdirs
from numba.core import config, ir, types
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from stream.compiled.code_digest import code_digest
from stream.locks import try_lock

FORMAT: Final = 1
SUFFIX: Final = ".code"
LOCKS: Final = 16
"""Each function has one of so many locks: processes that need the same function wait for the first of them,
and others compile meanwhile."""
LOCK_SECONDS: Final = 60.0
"""Longest wait for a lock whose holder sends no heartbeat, since that process may be stopped. After that we
compile as well. There is no limit while the holder sends heartbeats."""
_HEARTBEAT_SECONDS: Final = 1.0
"""Interval of heartbeats: the process that compiles touches the lock file."""
_POLL_SECONDS: Final = 0.05
_LOG_SECONDS: Final = 30.0
"""Interval of log lines about progress."""
_IN_TREE: Final = Path(__file__).parents[1] / "__pycache__" / "compiled"
"""The directory beside the source, as trusted as Python's own bytecode. An image, or root, may have filled it
for all users."""
_CONFIGURED: Final = (
    *("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "ENABLE_PROFILING"),
    *("DEBUGINFO_DEFAULT", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "DEBUG_NRT", "DEBUG_NRT_STACK_LIMIT"),
)
"""Settings of Numba that affect the machine code."""
_CHECKSUM_BYTES: Final = 32
_DAY: Final = 86_400.0
_KEPT_SECONDS: Final = 30 * _DAY
"""Retention of a file after its last use."""

log = logging.getLogger(__name__)
"""The standard logger instead of structlog's: unless logging is configured, it writes to stderr, not to
stdout."""


class CodeCache(_Cache):
    """The cache of one compiled function; replaces Numba's own."""

    def __init__(self, function: Dispatcher[Any]) -> None:
        self._function: Any = function
        self._enabled = True
        self._compile = function.compile
        self._digest: bytes | None = None

    @property
    def cache_path(self) -> str:
        """The directory to which compiled code is saved; empty if there is none."""
        return str(next(_directories(make=True), ""))

    def compile(self, sig: Any) -> Any:
        """Compile the function for a signature; replaces the function's own method. Of several processes that
        need it, one compiles, and the others load its result.

        A constant that a compiled function passes is a value of its type: it would have code of its own.
        """
        if isinstance(sig, tuple):
            sig = tuple(map(types.unliteral, sig))
        with global_compiler_lock:
            self._function.targetctx.refresh()
            key = self._key(sig, self._function.targetctx.codegen())
            name = self._file_name(key)

            def kept() -> bool:
                # Not Path.exists, which raises where root's directory may not be searched.
                return any(os.path.exists(directory / name) for directory in _directories())

            if kept():
                return self._compile(sig)
            with _locks.hold(key[0] % LOCKS, kept):
                return self._compile(sig)

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The cached function for a signature, or None if it has to be compiled."""
        target_context.refresh()
        if not self._enabled:
            return None
        key = self._key(sig, target_context.codegen())
        for directory in _directories():
            content = _read(directory / self._file_name(key), key)
            if content is None:
                continue
            try:
                parts = pickle.loads(content)  # noqa: S301 (only this user or root can have written it)
                result: CompileResult = CompileResult._rebuild(target_context, *parts)  # type: ignore[no-untyped-call]
                return result
            except Exception as error:  # it refers to something that no longer exists: compile again
                log.debug("cannot use the cached code of %s: %r", self._function, error)
        _progress.report()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the function, which was just compiled, to the first directory that is writable. Raises
        TypeError for one that borrows arrays and returns some, or calls a function that does."""
        if not self._function.targetoptions["_nrt"] and (returning := _returning_arrays(data)):
            self._function._reset_overloads()
            name = self._function.py_func.__qualname__
            raise TypeError(f"{name} is borrowing, but {returning} returns an array")
        if not self._enabled or data.lifted or data.library.has_dynamic_globals:
            return
        _progress.report()
        key = self._key(sig, data.codegen)
        content = dumps(data._reduce())  # type: ignore[no-untyped-call]
        for directory in _directories(make=True):
            with suppress(OSError):  # the file system is read-only or full
                _write(directory / self._file_name(key), key, content)
                _remove_unused(directory)
                return

    def enable(self) -> None:
        """Load and save from now on."""
        self._enabled = True

    def disable(self) -> None:
        """Neither load nor save from now on."""
        self._enabled = False

    def flush(self) -> None:
        """Do nothing, as no file is ever stale."""

    def _key(self, sig: Any, codegen: Any) -> bytes:
        digest = code_digest(self._function)
        if self._digest not in (None, digest):
            # Code compiled with the old value would be saved under the key of the new value.
            raise RuntimeError(f"a constant that {self._function.py_func.__qualname__} reads has changed")
        self._digest = digest
        parts = (
            FORMAT,
            (sys.implementation.cache_tag, sys.hexversion, sys.abiflags),
            (numba.__version__, llvmlite.__version__, np.__version__),
            [(name, str(getattr(config, name, None))) for name in _CONFIGURED],
            codegen.magic_tuple(),  # platform, CPU and its features
            repr(sig),
            [_fields(each) for each in sig],
            digest,
        )
        return hashlib.sha256(repr(parts).encode()).digest()

    def _file_name(self, key: bytes) -> str:
        function = self._function.py_func
        module = function.__module__.rpartition(".")[2]
        return f"{module}.{function.__name__}-{key[:16].hex()}{SUFFIX}"


def _fields(kind: Any) -> Any:
    """Field names of a named tuple, which the name of its type leaves out, and those of the tuples in it."""
    names = getattr(kind, "fields", ())
    return names, [_fields(each) for each in getattr(kind, "types", ())] if names else []


def _returning_arrays(compiled: Any) -> str | None:
    """What returns arrays of a function that was just compiled: itself, or one of our functions that it
    calls. Arrays are counted by who makes them: a caller that counts would release a reference that was never
    taken, and one that does not would keep the array for ever."""
    if _has_arrays(compiled.signature.return_type):
        return str(compiled.fndesc.qualname)
    types_of, calls = compiled.type_annotation.typemap, compiled.type_annotation.calltypes
    for each, signature in calls.items():
        if isinstance(each, ir.Expr) and each.op == "call" and signature is not None:
            called = types_of.get(each.func.name)
            if isinstance(called, types.Dispatcher) and _has_arrays(signature.return_type):
                return str(called.dispatcher.py_func.__qualname__)
    return None


def _has_arrays(kind: Any) -> bool:
    """Whether values of a type are arrays, or tuples with some."""
    inner = [kind.type] if isinstance(kind, types.Optional) else getattr(kind, "types", ())
    return isinstance(kind, types.Array) or any(map(_has_arrays, inner))


def _directories(*, make: bool = False) -> Iterator[Path]:
    """The directories to load from, in order; with `make`, those to save to, created if needed."""
    chosen = str(getattr(config, "CACHE_DIR", ""))
    if not chosen:
        yield _IN_TREE
    cache_directory = Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("neardup"))
    if not cache_directory.is_absolute():  # the user has no home
        return
    if make:
        _make_private(cache_directory / "compiled")
    if _is_private(cache_directory / "compiled"):
        yield cache_directory / "compiled"


def is_empty() -> bool:
    """Whether the cache has no compiled function of any version."""
    return not any(any(directory.glob(f"*{SUFFIX}")) for directory in _directories())


def _make_private(directory: Path) -> None:
    with suppress(OSError):
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)


def _is_private(directory: Path) -> bool:
    """Whether the directory exists, and only this user and root can write to it. Warns of others who can."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    if stat.S_ISDIR(status.st_mode) and _is_writable_by_us_alone(status):
        return True
    _warn_of(directory)
    return False


@cache
def _warn_of(directory: Path) -> None:
    log.warning("other users can write to %s: compiled code is neither saved there nor loaded", directory)


def _is_writable_by_us_alone(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class _CompileLocks:
    """Locks by which one process at a time compiles a function. Compiling a function compiles those that it
    calls; no lock is taken for these, so a process that holds a lock never waits for another. Used only by a
    thread that holds `global_compiler_lock`."""

    def __init__(self) -> None:
        self._depth = 0
        self._patient = True

    @contextmanager
    def hold(self, number: int, kept: Callable[[], bool]) -> Iterator[None]:
        """Context manager that holds lock `number`, or goes on without it once `kept` returns True, since
        another process has saved the result."""
        file = _lock_file(number) if self._patient and not self._depth else None
        self._depth += 1
        try:
            if file is None or not self._acquire(file, kept):
                yield
            else:
                with _heartbeats(file):
                    yield
        finally:
            self._depth -= 1
            if file is not None:
                os.close(file)

    def _acquire(self, file: int, kept: Callable[[], bool]) -> bool:
        """Acquire the lock. Returns False if it is no longer needed, or waiting is pointless."""
        since = time.monotonic()
        sign = 0
        while True:
            try:
                if try_lock(file):
                    return True
            except OSError:  # the file system does not support locks
                self._patient = False
                return False
            if kept():
                return False
            now, seen = time.monotonic(), os.fstat(file).st_mtime_ns
            if seen != sign:
                sign, since = seen, now
            elif now - since > LOCK_SECONDS:
                self._patient = False
                return False
            _progress.report()
            time.sleep(_POLL_SECONDS)


@contextmanager
def _heartbeats(file: int) -> Iterator[None]:
    """Context manager that sends heartbeats to the processes that wait for the lock, by touching its file."""
    done = threading.Event()

    def touch() -> None:
        while not done.wait(_HEARTBEAT_SECONDS):
            os.utime(file)

    touching = threading.Thread(target=touch, name="compiling", daemon=True)
    try:
        touching.start()
    except RuntimeError:  # threads are forbidden; others then wait at most LOCK_SECONDS
        yield
        return
    try:
        yield
    finally:
        done.set()
        touching.join()


def _lock_file(number: int) -> int | None:
    for directory in _directories(make=True):
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            return os.open(directory / f".lock-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    return None


_locks: Final = _CompileLocks()


def _read(path: Path, key: bytes) -> bytes | None:
    """The content saved under `key`; None if it is missing, damaged or untrusted."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if path.parent != _IN_TREE and not _is_writable_by_us_alone(status):
                return None
            data = file.read()
            if time.time() - status.st_mtime > _DAY:
                with suppress(OSError):
                    os.utime(file.fileno())  # marks it as used
    except OSError:
        return None
    checksum, content = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    return content if hashlib.sha256(key + content).digest() == checksum else None


def _write(path: Path, key: bytes, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{uuid.uuid4().hex}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(hashlib.sha256(key + content).digest() + content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@cache
def _remove_unused(directory: Path) -> None:
    """Remove expired files, of old sources and versions, once per process."""
    oldest = time.time() - _KEPT_SECONDS
    for path in directory.iterdir():
        with suppress(OSError):
            if path.suffix in (SUFFIX, ".part") and path.stat().st_mtime < oldest:
                path.unlink()


class _Progress:
    """Logs that loops are compiled: a line now and then, from one of the processes that compile together."""

    def __init__(self) -> None:
        self._last = -_LOG_SECONDS

    def report(self) -> None:
        """Log how far the cache is filled, unless a process has done so within _LOG_SECONDS."""
        now = time.monotonic()
        if now - self._last < _LOG_SECONDS:
            return
        self._last = now
        if _is_first_since(_LOG_SECONDS):
            loops = sum(len(list(directory.glob(f"*{SUFFIX}"))) for directory in _directories())
            log.warning(
                "compiling inner loops, once for this machine: %d so far, about 170 in all;"
                " `python -m stream.precompile` does it beforehand",
                loops,
            )


def _is_first_since(seconds: float) -> bool:
    """Whether no process with the same cache announced it within `seconds`."""
    now = time.time()
    for directory in _directories(make=True):
        announcement = directory / ".announced"
        with suppress(OSError):
            if announcement.exists() and 0 <= now - announcement.stat().st_mtime < seconds:
                return False
            announcement.parent.mkdir(parents=True, exist_ok=True)
            announcement.touch(0o644)
            os.utime(announcement, (now, now))
            return True
    return True


_progress: Final = _Progress()
