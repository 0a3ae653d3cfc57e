"""Processes that are killed: at a failpoint, or at any moment.

A process is forked from a server that has imported the program and loaded its compiled loops, so its start
takes milliseconds rather than seconds.

    killed("flush:2", command, {}, "scan", rows)  # dies when it reaches `flush` for the second time

The target is a function of a module, since a child imports it; its arguments are pickled.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final

from stream import failpoints
from stream.settings import Settings
from tests.waiting import HANG_SECONDS

PR_SET_PDEATHSIG: Final = 1

_forking = get_context("forkserver")
_forking.set_forkserver_preload(["tests.preloaded"])


def killed(failpoint: str, target: Callable[..., object], *arguments: Any, **options: Any) -> bytes:
    """Run `target(*arguments)` in a process of its own until it dies at a failpoint. Returns what it wrote to
    standard output. `options` are those of `started`."""
    code, output, error = end_of(failpoint, target, *arguments, **options)
    assert code == -signal.SIGKILL, f"exit code {code}, not killed at {failpoint}: {error.decode()}"
    return output


def end_of(
    failpoint: str, target: Callable[..., object], *arguments: Any, **options: Any
) -> tuple[int | None, bytes, bytes]:
    """Exit code, standard output and standard error of a process that may die at a failpoint."""
    with TemporaryDirectory() as folder:
        output, error = Path(folder) / "output", Path(folder) / "error"
        process = started(target, *arguments, failpoint=failpoint, output=output, error=error, **options)
        process.join(HANG_SECONDS)
        code = process.exitcode
        process.kill()
        return code, output.read_bytes(), error.read_bytes()


async def killed_command(
    settings: Settings,
    failpoint: str,
    *arguments: str | Path,
    constants: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Run a command that gets its settings by environment until it dies at a failpoint."""
    environment = settings.environment()
    await asyncio.to_thread(
        partial(killed, failpoint, command, dict(constants), *arguments, environment=environment)
    )


def command(constants: Mapping[str, object], *arguments: str | Path) -> None:
    """Run `neardup ARGUMENTS` with other values of constants, given by dotted names."""
    from stream.cli import main

    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        setattr(import_module(module), constant, value)
    sys.argv = ["neardup", *map(str, arguments)]
    main()


def started(
    target: Callable[..., object],
    *arguments: Any,
    failpoint: str = "",
    environment: Mapping[str, str] | None = None,
    output: Path | None = None,
    error: Path | None = None,
) -> ForkServerProcess:
    """Start `target(*arguments)`, with these variables besides ours. What it writes is added to files;
    without them, it goes where that of the server goes. Whoever starts it waits for its end or kills it."""
    given = (os.environ | (environment or {}), failpoint, {1: output, 2: error}, target, arguments)
    for path in filter(None, (output, error)):
        path.touch()  # whoever reads it need not wait until the process writes
    process = _forking.Process(target=_run, args=given, daemon=True)
    process.start()
    return process


def stop_server() -> None:
    """End the server, if it was started, and with it what was forked."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def _run(
    environment: Mapping[str, str],
    failpoint: str,
    files: Mapping[int, Path | None],
    target: Callable[..., object],
    arguments: tuple[Any, ...],
) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.clear()
    os.environ.update(environment)
    failpoints.arm(failpoint)
    for number, path in files.items():
        if path is not None:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(file, number)
            os.close(file)
    target(*arguments)
