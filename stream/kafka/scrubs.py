"""A judge's state, read from disk now and then beside its work: what nobody reads may be damaged for long."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from stream.children.confine import environment
from stream.errors import DamagedStateError, OutputError
from stream.kafka.in_flight import in_thread
from stream.tables import scrub_child
from stream.tables.last_scrub import last_scrub, note_scrub
from stream.tables.scrub_child import Found

FIRST_SECONDS: Final = 600.0
"""After its start a judge is left alone for so long."""
END_SECONDS: Final = 5.0
"""How long a child that was killed is waited for: reading a disk that fails, it may not end for minutes."""

log = structlog.get_logger(__name__)


class Scrubs:
    """Scrubs of a state directory, every `hours`; 0 for none. `told` gets when the last one was, in seconds
    since the epoch, and how many files it found damaged; before the first, when waiting for it began."""

    def __init__(self, directory: Path, hours: float, told: Callable[[float, int], None]) -> None:
        self._directory, self._seconds, self._told = directory, 3600 * hours, told
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Scrub for as long as the context lasts; none outlives it."""
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
        """Raises DamagedStateError once a scrub has found any."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _run(self) -> None:
        last, now = await asyncio.to_thread(last_scrub, self._directory), time.time()
        ended = last.ended if last else now
        self._told(ended, int(bool(last and last.found.damage)))
        due = min(self._seconds, ended + self._seconds - now if last else 0)
        await asyncio.sleep(max(due, min(self._seconds, FIRST_SECONDS)))
        while True:
            await self._scrub()
            await asyncio.sleep(self._seconds)

    async def _scrub(self) -> None:
        began = time.monotonic()
        try:
            found = await self._child()
        except OSError as error:  # no process to be had
            log.warning("scrub_failed", error=str(error))
            return
        if found is None:
            return
        ended, seconds = time.time(), round(time.monotonic() - began, 1)
        try:
            await in_thread(note_scrub, self._directory, found, ended)
        except OutputError as error:
            log.warning("scrub_not_noted", error=str(error))
        self._told(ended, int(found.damage is not None))
        if found.damage is not None:
            log.error("scrubbed", damaged=found.file, error=found.damage, seconds=seconds)
            raise DamagedStateError(found.damage)
        log.info("scrubbed", damaged=None, bytes=found.bytes, seconds=seconds)

    async def _child(self) -> Found | None:
        """What a process of its own finds; None where it fails, which says nothing of the state."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", scrub_child.__name__, str(self._directory),
            env=environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches us, and we stop it
        )  # fmt: skip
        try:
            # Not `communicate`, which would close the pipe by whose end the child knows that we are gone.
            output, errors = await asyncio.gather(*(_all_of(each) for each in (child.stdout, child.stderr)))
            status = await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                with suppress(TimeoutError):
                    await asyncio.wait_for(child.wait(), END_SECONDS)
        if not status:
            return msgspec.json.decode(output, type=Found)
        said = errors.decode(errors="replace").strip()[-2000:]
        log.warning("scrub_failed", status=status, error=said)
        return None


async def _all_of(pipe: asyncio.StreamReader | None) -> bytes:
    return b"" if pipe is None else await pipe.read()
