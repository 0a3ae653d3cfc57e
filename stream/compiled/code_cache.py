"""Machine code of compiled functions, kept on disk between processes.

A file holds one function for one set of argument types. Its name is a digest of everything that the code
depends on: another state of the source, other versions and another CPU are other files, and no file is stale.
Files appear whole, by renaming, and carry a checksum: processes of several versions may share a directory,
and what a damaged file held is compiled again.
"""

from __future__ import annotations

import fcntl
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
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from stream.compiled.code_digest import code_digest

FORMAT: Final = 1
SUFFIX: Final = ".code"
LOCK_SECONDS: Final = 60.0
"""How long a process waits for one that has its turn and shows no sign of life. Then it compiles too:
the other may be stopped. For one that is at work it waits as long as that takes."""
_SIGN_SECONDS: Final = 1.0
"""How often a process that compiles shows that it lives, by touching the lock."""
_POLL_SECONDS: Final = 0.05
_TELL_SECONDS: Final = 10.0
"""How often it is told how far compiling is, and after how long that a process waits for another one."""
_IN_TREE: Final = Path(__file__).parents[1] / "__pycache__" / "compiled"
"""As trusted as Python's own bytecode beside it. An image, or root, may have filled it for all users."""
_CONFIGURED: Final = (
    *("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "ENABLE_PROFILING"),
    *("DEBUGINFO_DEFAULT", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "DEBUG_NRT", "DEBUG_NRT_STACK_LIMIT"),
)
"""Settings of Numba that change what it compiles."""
_CHECKSUM_BYTES: Final = 32
_DAY: Final = 86_400.0
_KEPT_SECONDS: Final = 30 * _DAY
"""How long a file is kept after it was last used."""

log = logging.getLogger(__name__)
"""Not structlog's: where nobody configures logging, its lines go to stderr and not to stdout."""


class CodeCache(_Cache):
    """The cache of one compiled function, in the place of Numba's own."""

    def __init__(self, function: Dispatcher[Any]) -> None:
        self._function: Any = function
        self._enabled = True
        self._compile = function.compile
        self._digest: bytes | None = None

    @property
    def cache_path(self) -> str:
        """Where what is compiled now is kept; empty when nowhere."""
        return str(next(_directories(make=True), ""))

    def compile(self, sig: Any) -> Any:
        """In the place of the function's method: of several processes that need it, one compiles."""
        with global_compiler_lock:
            self._function.targetctx.refresh()
            name = self._file_name(self._key(sig, self._function.targetctx.codegen()))

            def kept() -> bool:
                return any((directory / name).exists() for directory in _directories())

            if kept():
                return self._compile(sig)
            with _turn.taken(kept):
                return self._compile(sig)

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The function for arguments of these types, or None when it must be compiled."""
        target_context.refresh()
        if not self._enabled:
            return None
        key = self._key(sig, target_context.codegen())
        for directory in _directories():
            content = _read(directory / self._file_name(key), key)
            if content is None:
                continue
            try:
                parts = pickle.loads(content)  # noqa: S301 (nobody else can have written it)
                result: CompileResult = CompileResult._rebuild(target_context, *parts)  # type: ignore[no-untyped-call]
                return result
            except Exception as error:  # it names something that is gone: compiling does not need it
                log.debug("cannot use what is kept of %s: %r", self._function, error)
        _progress.begin()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the function where that is possible."""
        if not self._enabled or data.lifted or data.library.has_dynamic_globals:
            return
        _progress.tell()
        key = self._key(sig, data.codegen)
        content = dumps(data._reduce())  # type: ignore[no-untyped-call]
        for directory in _directories(make=True):
            with suppress(OSError):  # read-only or full
                _write(directory / self._file_name(key), key, content)
                _remove_unused(directory)
                return

    def enable(self) -> None:
        """Load and save."""
        self._enabled = True

    def disable(self) -> None:
        """Neither load nor save."""
        self._enabled = False

    def flush(self) -> None:
        """Nothing to do: no file is stale."""

    def _key(self, sig: Any, codegen: Any) -> bytes:
        digest = code_digest(self._function)
        if self._digest not in (None, digest):
            # Code with the old value, in this function or in one that calls it, would get the new one's key.
            raise RuntimeError(f"a constant that {self._function.py_func.__qualname__} reads has changed")
        self._digest = digest
        parts = (
            FORMAT,
            (sys.implementation.cache_tag, sys.hexversion, sys.abiflags),
            (numba.__version__, llvmlite.__version__, np.__version__),
            [(name, str(getattr(config, name, None))) for name in _CONFIGURED],
            codegen.magic_tuple(),  # platform, CPU and its features
            repr(sig),
            digest,
        )
        return hashlib.sha256(repr(parts).encode()).digest()

    def _file_name(self, key: bytes) -> str:
        function = self._function.py_func
        module = function.__module__.rpartition(".")[2]
        return f"{module}.{function.__name__}-{key[:16].hex()}{SUFFIX}"


def _directories(*, make: bool = False) -> Iterator[Path]:
    """Where code is looked for, in this order; with `make`, where it may be kept."""
    chosen = str(getattr(config, "CACHE_DIR", ""))
    if not chosen:
        yield _IN_TREE
    cache_directory = Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("neardup"))
    if cache_directory.is_absolute() and _is_private(cache_directory / "compiled", make):
        yield cache_directory / "compiled"  # not absolute: a user without a home


def _is_private(directory: Path, make: bool) -> bool:
    """Whether it is there, and only this user or root can put code into it."""
    try:
        if make:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                directory.mkdir(mode=0o700)
        status = directory.lstat()
    except OSError:
        return False
    if stat.S_ISDIR(status.st_mode) and _only_we_write(status):
        return True
    _warn_of(directory)
    return False


@cache
def _warn_of(directory: Path) -> None:
    log.warning("others can write to %s: no compiled code is kept there or taken from there", directory)


def _only_we_write(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class _Turn:
    """Taken by one process at a time; a function that another one calls is compiled in the turn of that one.
    Only entered by a thread that holds `global_compiler_lock`."""

    def __init__(self) -> None:
        self._depth = 0
        self._patient = True

    @contextmanager
    def taken(self, kept: Callable[[], bool]) -> Iterator[None]:
        """Wait for our turn to compile, or until another process has `kept` what it compiled."""
        file = _lock_file() if self._patient and not self._depth else None
        self._depth += 1
        try:
            if file is None or not self._has_come(file, kept):
                yield
            else:
                with _signs_of_life(file):
                    yield
        finally:
            self._depth -= 1
            if file is not None:
                os.close(file)

    def _has_come(self, file: int, kept: Callable[[], bool]) -> bool:
        """Whether we have the lock. Otherwise there is no need of it, or no use in waiting."""
        began = since = time.monotonic()
        sign = 0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if kept():
                    return False
            except OSError:  # a file system without locks
                self._patient = False
                return False
            else:
                return True
            now, seen = time.monotonic(), os.fstat(file).st_mtime_ns
            if seen != sign:
                sign, since = seen, now
            elif now - since > LOCK_SECONDS:
                self._patient = False
                return False
            if now - began > _TELL_SECONDS:
                _tell_waiting()
            time.sleep(_POLL_SECONDS)


@contextmanager
def _signs_of_life(file: int) -> Iterator[None]:
    """Touch the lock again and again: who waits for it sees that we are at work, however slowly."""
    done = threading.Event()

    def touch() -> None:
        while not done.wait(_SIGN_SECONDS):
            os.utime(file)

    touching = threading.Thread(target=touch, name="compiling", daemon=True)
    try:
        touching.start()
    except RuntimeError:  # no thread is allowed: others wait LOCK_SECONDS at most
        yield
        return
    try:
        yield
    finally:
        done.set()
        touching.join()


def _lock_file() -> int | None:
    for directory in _directories(make=True):
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            return os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    return None


_turn: Final = _Turn()


def _read(path: Path, key: bytes) -> bytes | None:
    """What was written under `key`; None if there is nothing, or nothing to be trusted."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if path.parent != _IN_TREE and not _only_we_write(status):
                return None
            found = file.read()
            if time.time() - status.st_mtime > _DAY:
                with suppress(OSError):
                    os.utime(file.fileno())  # still in use
    except OSError:
        return None
    checksum, content = found[:_CHECKSUM_BYTES], found[_CHECKSUM_BYTES:]
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
    """What other states of the source and other versions left, once a process."""
    oldest = time.time() - _KEPT_SECONDS
    for path in directory.iterdir():
        with suppress(OSError):
            if path.suffix in (SUFFIX, ".part") and path.stat().st_mtime < oldest:
                path.unlink()


class _Progress:
    """Says what a first start waits for, in a line every now and then."""

    def __init__(self) -> None:
        self._functions = 0
        self._began = self._told = 0.0

    def begin(self) -> None:
        """Something must be compiled."""
        if not self._began:
            self._began = self._told = time.monotonic()
            log.warning("compiling inner loops, once: some 20 s, longer on a busy machine")

    def tell(self) -> None:
        """One function more is compiled."""
        self._functions += 1
        now = time.monotonic()
        if now - self._told > _TELL_SECONDS:
            self._told = now
            log.warning("compiling inner loops: %d in %.0f s", self._functions, now - self._began)


_progress: Final = _Progress()


@cache
def _tell_waiting() -> None:
    log.warning("waiting for another process, which compiles inner loops for all")
