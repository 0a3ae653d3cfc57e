"""Background scrubs of a role's state, which find damage in parts that are rarely read.

The last one is recorded in a file beside the directory: so a role that starts again does not scrub again at
once, and does not open a directory that was found damaged, in a block that may be read rarely.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from stream.checkpoints.known_damage import drop_restored
from stream.children.confine import environment
from stream.errors import DamagedStateError, OutputError
from stream.kafka.in_flight import in_thread
from stream.output import writing
from stream.private import tighten
from stream.tables.store import scrub_child
from stream.tables.store.scrub_child import ScrubResult

FIRST_SECONDS: Final = 600.0
"""Minimum time from the start of a role to its first scrub."""
END_SECONDS: Final = 5.0
"""How long to wait for a killed child, which may hang for minutes while it reads a failing disk."""

log = structlog.get_logger(__name__)


class Scrubs:
    """Scrubs a state directory every `hours`; 0 disables it.

    `report` is called with the time of the last scrub, in seconds since the epoch, and the number of damaged
    files. Before the first scrub, the time is that of the start.
    """

    def __init__(self, directory: Path, hours: float, report: Callable[[float, int], None]) -> None:
        self._directory, self._seconds, self._report = directory, 3600 * hours, report
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Scrub periodically while entered."""
        if not self._seconds:
            yield
            return
        self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def refuse_damage(self) -> None:
        """Raise DamagedStateError if a scrub has found damage."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _run(self) -> None:
        last, now = await asyncio.to_thread(last_scrub, self._directory), time.time()
        ended = last.ended if last else now
        self._report(ended, int(bool(last and last.found.damage)))
        due = min(self._seconds, ended + self._seconds - now if last else 0)
        await asyncio.sleep(max(due, min(self._seconds, FIRST_SECONDS)))
        while True:
            await self._scrub()
            await asyncio.sleep(self._seconds)

    async def _scrub(self) -> None:
        began = time.monotonic()
        try:
            result = await self._child()
        except OSError as error:  # out of processes
            log.warning("scrub_failed", error=str(error))
            return
        if result is None:
            return
        ended, seconds = time.time(), round(time.monotonic() - began, 1)
        try:
            await in_thread(note_scrub, self._directory, result, ended)
        except OutputError as error:
            log.warning("scrub_not_noted", error=str(error))
        self._report(ended, int(result.damage is not None))
        if result.damage is not None:
            log.error("scrubbed", damaged=result.file, error=result.damage, seconds=seconds)
            raise DamagedStateError(result.damage)
        await in_thread(drop_restored, self._directory)
        log.info("scrubbed", damaged=None, bytes=result.bytes, seconds=seconds)

    async def _child(self) -> ScrubResult | None:
        """Scrub in a child process. Returns None if the child fails, which does not imply damage."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", scrub_child.__name__, str(self._directory),
            env=environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only us; we stop the child
        )  # fmt: skip
        try:
            # `communicate` would close stdin, which the child watches to notice our death.
            output, errors = await asyncio.gather(*(_all_of(each) for each in (child.stdout, child.stderr)))
            status = await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                with suppress(TimeoutError):
                    await asyncio.wait_for(child.wait(), END_SECONDS)
        if not status:
            return msgspec.json.decode(output, type=ScrubResult)
        message = errors.decode(errors="replace").strip()[-2000:]
        log.warning("scrub_failed", status=status, error=message)
        return None


async def _all_of(pipe: asyncio.StreamReader | None) -> bytes:
    return b"" if pipe is None else await pipe.read()


class Scrub(msgspec.Struct, frozen=True, kw_only=True):
    """A completed scrub, as recorded."""

    ended: float
    """Seconds since the epoch."""
    found: ScrubResult
    inode: int | None = None
    """Inode of the damaged file."""
    changed: int | None = None
    """Modification time of the damaged file, in nanoseconds since the epoch. Tells it from a later file of
    the same name."""


def last_scrub(directory: Path) -> Scrub | None:
    """The last scrub of a state directory; None if there is no readable record."""
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(_path(directory).read_bytes(), type=Scrub)
    return None


def note_scrub(directory: Path, result: ScrubResult, ended: float) -> None:
    """Record the result of a scrub. Raises OutputError."""
    there = _stat(directory, result.file)
    scrub = Scrub(
        ended=ended,
        found=result,
        inode=there and there.st_ino,
        changed=there and there.st_mtime_ns,
    )
    with writing(_path(directory)) as file:
        file.write(msgspec.json.encode(scrub))
    tighten(_path(directory))


def refuse_known_damage(directory: Path) -> None:
    """Raise DamagedStateError if the last scrub found a damaged file that still exists."""
    last = last_scrub(directory)
    if last is None or last.found.damage is None:
        return
    there = _stat(directory, last.found.file)
    if there is not None and (there.st_ino, there.st_mtime_ns) == (last.inode, last.changed):
        raise DamagedStateError(last.found.damage)


def _path(directory: Path) -> Path:
    return directory.with_suffix(".scrub")


def _stat(directory: Path, name: str | None) -> os.stat_result | None:
    with suppress(OSError):
        return (directory / name).stat() if name else None
    return None
