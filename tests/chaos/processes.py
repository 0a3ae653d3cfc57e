"""Processes of roles: started anew, or forked by the server of tests/kills.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from stream.failpoints import VARIABLE
from tests import kills


class Process(Protocol):
    """A process of a role: the part of `asyncio.subprocess.Process` that is used here."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal that killed it."""

    async def wait(self) -> int:
        """Wait for its end; its exit code."""

    def send_signal(self, signal: int) -> None:
        """Send a signal, if it still runs."""


class ForkedProcess:
    """A process forked by the server."""

    def __init__(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        self._process, self.pid = process, process.pid
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._process.sentinel, self._note_end)

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal that killed it."""
        return self._process.exitcode if self._ended.is_set() else None

    async def wait(self) -> int:
        """Wait for its end; its exit code."""
        await self._ended.wait()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def send_signal(self, signal: int) -> None:
        """Send a signal, if it still runs."""
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal)

    def _note_end(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set()


async def fork(
    command: Sequence[str],
    environment: dict[str, str],
    log: Path,
    constants: Mapping[str, object] = MappingProxyType({}),
) -> Process:
    """Start `neardup COMMAND`, with these variables besides ours and other values of constants; its output is
    added to `log`."""
    failpoint = environment.get(VARIABLE, "")
    return ForkedProcess(
        await asyncio.to_thread(
            kills.started, kills.command, dict(constants), *command,
            failpoint=failpoint, environment=environment, output=log, error=log,
        )
    )  # fmt: skip


async def start(command: Sequence[str], environment: dict[str, str], log: Path) -> Process:
    """Start `neardup COMMAND` as a new process, with the arguments of `fork`."""
    environment = {**os.environ, **environment, "NEARDUP_SUPERVISOR": str(os.getpid())}
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.neardup", *command,
            env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
