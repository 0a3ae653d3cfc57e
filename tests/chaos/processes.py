"""Processes of roles: started anew, or forked from the fork server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import deque
from pathlib import Path
from typing import Protocol


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
    """A process forked by the fork server."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal that killed it."""
        return self._code.result() if self._code.done() else None

    async def wait(self) -> int:
        """Wait for its end; its exit code."""
        return await asyncio.shield(self._code)

    def send_signal(self, signal: int) -> None:
        """Send a signal, if it still runs."""
        if not self._code.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal)

    def note_end(self, code: int) -> None:
        """Record its end."""
        self._code.set_result(code)


class ForkServer:
    """Starts `neardup COMMAND`, for `tests.chaos.fork_server` to fork."""

    def __init__(self) -> None:
        self._forked: dict[int, ForkedProcess] = {}
        self._asked: deque[asyncio.Future[ForkedProcess]] = deque()

    async def __aenter__(self) -> ForkServer:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.fork_server",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._listening

    async def fork(self, command: str, environment: dict[str, str], log: Path) -> Process:
        """`neardup COMMAND` with these variables besides ours; its output is added to `log`."""
        answer: asyncio.Future[ForkedProcess] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        question = {"command": command, "environment": environment, "log": str(log)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        # Not given up half-way: a process that nobody knows of would run on.
        return await asyncio.shield(answer)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            if "started" in answer:
                process = self._forked[answer["started"]] = ForkedProcess(answer["started"])
                self._asked.popleft().set_result(process)
            else:
                self._forked.pop(answer["ended"]).note_end(answer["code"])


async def start(command: str, environment: dict[str, str], log: Path) -> Process:
    """Start `neardup COMMAND` as a new process, with the arguments of `ForkServer.fork`."""
    environment = {**os.environ, **environment, "NEARDUP_SUPERVISOR": str(os.getpid())}
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.neardup", *command.split(),
            env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
