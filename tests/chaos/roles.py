"""Roles in processes of their own, restarted as by a supervisor, and ended in all ways."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]

from tests.chaos.disk import Disk
from tests.chaos.neardup import CONSTANTS
from tests.chaos.processes import Process, fork, start
from tests.waiting import HANG_SECONDS

PAUSE: Final = 0.3
"""Seconds between an end and the next start."""
RESTART: Final = 2
REFUSED: Final = 78
"""Exit code: a person must act (docs/operations.md)."""
READY: Final = ("leading", "standby", "caught_up")
"""What a judge or an elector logs when it has opened its state and works."""
STEADY_SECONDS: Final = 30.0
"""Lifetime from which a process does not count as failing at its start."""
PATIENCE: Final = {True: 40.0, False: 180.0}
"""How long processes may fail one after the other before a person would act: on a damaged state, and
otherwise, where brokers may be away meanwhile."""
STOP_SECONDS: Final = HANG_SECONDS
"""Time-out of a stop in good order."""


@dataclass(slots=True)
class RoleExits:
    """How processes of roles ended by themselves."""

    codes: Counter[str] = field(default_factory=Counter)
    """Number of exits by role and exit code."""
    damaged: set[str] = field(default_factory=set)
    """Kinds of roles of which some state was damaged: perhaps a checkpoint was made of it."""
    cured: int = 0
    """Damaged states that were refused and moved away."""
    unexplained: list[str] = field(default_factory=list)
    """Refusals, or ends again and again, that no fault explains, and refusals to stop in good order."""


class Role:
    """One role; its state directory, where it has one, outlives its processes."""

    def __init__(
        self,
        name: str,
        environment: dict[str, str],
        logs: Path,
        ends: RoleExits,
        disk: Disk | None = None,
    ) -> None:
        self.name, self.disk = name, disk
        self._environment, self._ends = environment, ends
        self.log = logs / f"{name}.log"
        self.command = self.kind
        """The command that it runs, with its options."""
        self.process: Process | None = None
        self.killed: Process | None = None
        """The last process that was killed by a fault, rather than by itself at a failpoint."""
        self.damaged = False
        """Whether its state was damaged, so that a refusal is right."""
        self.excused = False
        """Whether a refusal is right for another reason, such as a full disk."""
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._using, self._starting = asyncio.Lock(), asyncio.Lock()
        self.failpoint: str | None = None
        """The failpoint at which its next process kills itself."""
        self._since = 0
        self._failing_since = time.monotonic()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def kind(self) -> str:
        """The kind of role, such as `judge` or `worker`."""
        return self.name.rstrip("0123456789-")

    @property
    def state(self) -> Path:
        """Its state directory."""
        assert self.disk is not None
        return self.disk.path / "state"

    @property
    def is_running(self) -> bool:
        """Whether it has a process, stopped or not."""
        return self.process is not None and self.process.returncode is None

    def has_logged(self, *events: str) -> bool:
        """Whether its present process has logged one of these events."""
        with self.log.open("rb") as log:
            log.seek(self._since)
            text = log.read().decode(errors="replace")
        return any(f'"event": "{event}"' in text for event in events)

    def count(self, event: str) -> int:
        """Return how often its processes have logged an event."""
        return self.log.read_text(errors="replace").count(f'"event": "{event}"')

    def begin(self) -> None:
        """Start the role, and restart it whenever it ends."""
        self._keeper = asyncio.create_task(self._keep())

    async def end(self) -> None:
        """End the role by SIGTERM, check its exit code, and leave no process of it."""
        self._may_run.clear()
        async with self._starting:
            terminated = self.signal(signal.SIGCONT) and self.signal(signal.SIGTERM)
        if terminated:
            assert self.process is not None
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    code = await self.process.wait()
                words = self._last_words() if code else ""
                if code == RESTART and "StaleError" in words:  # retention was faster than SIGTERM
                    self._ends.codes[f"{self.kind} {code}"] += 1
                elif code != 0:
                    self._ends.unexplained.append(f"{self.name}: SIGTERM ended it with {code}: {words}")
            except TimeoutError:
                self._ends.unexplained.append(f"{self.name}: did not end within {STOP_SECONDS} s of SIGTERM")
        await self.abandon()

    async def abandon(self) -> None:
        """Kill all processes of the role, including children."""
        self._may_run.clear()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._kill_group()

    def signal(self, number: int) -> bool:
        """Send a signal to its process; False when it has none now."""
        if not self.is_running:
            return False
        assert self.process is not None
        if number == signal.SIGKILL:
            self.killed = self.process
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return True

    def children(self) -> list[psutil.Process]:
        """Its child processes."""
        if not self.is_running:
            return []
        assert self.process is not None
        with contextlib.suppress(psutil.Error):
            return list(psutil.Process(self.process.pid).children(recursive=True))
        return []

    @contextlib.asynccontextmanager
    async def down(self, end: Callable[[], object] | None = None) -> AsyncIterator[None]:
        """Context manager within which the role has no process: it is ended by `end`, if given, and killed by
        SIGKILL with its children."""
        async with self._using:
            self._may_run.clear()
            try:
                if end is not None:
                    await asyncio.to_thread(end)
                await self._kill_group()
                yield
            finally:
                self._may_run.set()

    async def _kill_group(self) -> None:
        """SIGKILL to the process and its children."""
        async with self._starting:
            if self.process is not None:
                if self.is_running:
                    self.killed = self.process
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):  # one just forked has no group of its own yet
                    self.process.send_signal(signal.SIGKILL)
                await self.process.wait()

    async def _keep(self) -> None:
        while True:
            await self._may_run.wait()
            started = time.monotonic()
            async with self._starting:
                if not self._may_run.is_set():
                    continue
                await self._start()
            assert self.process is not None
            code = await self.process.wait()
            if code > 0 and self._may_run.is_set():
                self._ends.codes[f"{self.kind} {code}"] += 1
                if time.monotonic() - started > STEADY_SECONDS:
                    self._failing_since = time.monotonic()
                await self._attend(code, time.monotonic() - self._failing_since)
            else:
                self._failing_since = time.monotonic()
            await asyncio.sleep(PAUSE)

    async def _start(self) -> None:
        self.log.touch()
        self._since = self.log.stat().st_size
        environment = dict(self._environment)
        if self.failpoint is not None:
            environment["NEARDUP_FAILPOINT"], self.failpoint = self.failpoint, None
        command = self.command.split()
        if self.kind == "dashboard":  # Faust reads variables when it is imported
            self.process = await start(command, environment, self.log)
        else:
            self.process = await fork(command, environment, self.log, CONSTANTS)

    async def _attend(self, code: int, failing: float) -> None:
        """Handle an exit as a person would, who acts only if a start was refused or fails repeatedly."""
        damaged = self._may_be_damaged
        if self.excused or (code != REFUSED and failing < PATIENCE[damaged]):
            return
        if code != REFUSED or not damaged or "damaged: " not in self._last_words():
            state = "damaged, " if damaged else ""
            self._ends.unexplained.append(
                f"{self.name}: {state}ended with {code}, failing for {failing:.0f} s: {self._last_words()}"
            )
        if damaged:
            self._ends.cured += 1
            async with self._using:  # a fault may be about to damage it
                await asyncio.to_thread(self.delete_state)
        self._failing_since = time.monotonic()

    def note_damage(self) -> None:
        """Note that its state was damaged."""
        self.damaged = True
        self._ends.damaged.add(self.kind)

    @property
    def _may_be_damaged(self) -> bool:
        """Whether its state is damaged, or was restored from a checkpoint that may be of a damaged one."""
        return self.damaged or (self.kind in self._ends.damaged and bool(self.count("restored")))

    def delete_state(self) -> None:
        """Delete the state, so that it is rebuilt."""
        assert self.disk is not None
        shutil.rmtree(self.state, ignore_errors=True)
        self.disk.sync()  # or a power loss brings it back
        self.damaged = False
        self._failing_since = time.monotonic()

    def _last_words(self) -> str:
        """The last error in its log."""
        lines = self.log.read_text(errors="replace")[-20_000:].splitlines()
        for line in reversed(lines):
            with contextlib.suppress(ValueError):
                said: dict[str, Any] = json.loads(line)
                if said.get("level") in ("critical", "error"):
                    return " ".join(str(said.get(name, "")) for name in ("event", "error", "message"))[:400]
        return (lines or [""])[-1][:400]
