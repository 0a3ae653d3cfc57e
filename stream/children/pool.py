"""Fingerprinting off the event loop, in processes that a page may hang or kill (rule 5).

`concurrent.futures` gives a whole pool up when one process dies, and cannot end one that hangs. Here each
process talks through its own pipes, so it is known which pages are unanswered, and only those are done again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final, Self, cast

import msgspec
import structlog

from stream.children.child import (
    FINGERPRINTER,
    LENGTH,
    OUT_OF_MEMORY,
    Away,
    Chunk,
    Configuration,
    Ready,
    frame,
)
from stream.errors import ChildError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.outside.options import OutsideOptions
from stream.settings import Settings

START_SECONDS: Final = 60.0
"""A child loads dictionaries for about a second; beyond this the machine is broken, not slow."""
EXIT_SECONDS: Final = 5.0
"""How long a process that closed its pipe may take to be gone."""
ONE_THREAD: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
"""Children are the parallelism; threads of a BLAS under them would only compete."""

log = structlog.get_logger(__name__, role="worker")


def configuration_of(settings: Settings, scheme: Scheme, fingerprinter: str = FINGERPRINTER) -> Configuration:
    """What children are told by a deployment's settings."""
    password = settings.schema_registry_password
    return Configuration(
        scheme=scheme,
        page_bytes=settings.page_bytes,
        memory=settings.child_memory,
        deadline=settings.page_deadline,
        outside=OutsideOptions(
            claim_root=str(settings.claim_root) if settings.claim_root else None,
            schema_registry_url=settings.schema_registry_url,
            schema_registry_user=settings.schema_registry_user,
            schema_registry_password=password.get_secret_value() if password else None,
        ),
        fingerprinter=fingerprinter,
    )


class ChildPool:
    """`processes` children that fingerprint; an asynchronous context manager that leaves none behind."""

    def __init__(self, processes: int, configuration: Configuration) -> None:
        self._processes = processes
        self._configuration = configuration
        self._free: asyncio.Queue[_Child | None] = asyncio.Queue()  # None: a place without a process
        self._conversations: set[asyncio.Task[list[Row]]] = set()
        self._ended = False
        self.crashes = 0
        """Processes that died at work."""
        self.waiting = 0
        """Chunks that wait for a child."""

    async def __aenter__(self) -> Self:
        """Start all children. Raises ChildError when one cannot work."""
        starting = [asyncio.create_task(_Child.start(self._configuration)) for _ in range(self._processes)]
        started = await _all_of(starting)
        children = [child for child in started if isinstance(child, _Child)]
        for child in children:
            self._free.put_nowait(child)
        for failure in started:
            if isinstance(failure, BaseException):
                await self._end()
                raise failure
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        self._ended = True
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        while not self._free.empty():
            child = self._free.get_nowait()
            if child is not None:
                await child.kill()

    async def fingerprint(
        self,
        values: list[bytes | None],
        answered: Callable[[list[Row]], None] | None = None,
        *,
        busy: bool = False,
    ) -> list[Row]:
        """The rows of `values`, in order; waits for a free child.

        `answered` is called with rows as soon as they are known; a value may be dropped from `values` (set
        to None) once its row was answered. `busy` pages wait elsewhere, so that rows may come in larger lots.
        When the caller is cancelled, the child finishes the chunk for nobody and then is free again: starting
        another costs more. Raises ChildError.
        """
        self.waiting += 1
        try:
            child = await self._free.get()
        finally:
            self.waiting -= 1
        if self._ended:
            self._free.put_nowait(child)
            raise ChildError("the pool of fingerprinting processes has ended")
        conversation = asyncio.create_task(self._converse(child, values, answered, busy))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)
        conversation.add_done_callback(_retrieve)
        return await asyncio.shield(conversation)

    async def _converse(
        self,
        child: _Child | None,
        values: list[bytes | None],
        answered: Callable[[list[Row]], None] | None,
        busy: bool,
    ) -> list[Row]:
        rows: list[Row] = []
        careful = False
        try:
            while len(rows) < len(values):
                child = child or await _Child.start(self._configuration)
                chunk = Chunk(values[len(rows) :], careful, busy or self.waiting > 0)
                async for more in child.rows(chunk):
                    rows += more
                    if answered:
                        answered(more)
                if len(rows) < len(values):
                    how = await child.post_mortem()
                    child = None
                    self.crashes += 1
                    log.warning("child_died", how=how, careful=careful, unanswered=len(values) - len(rows))
                    if careful:
                        # Every finished page was answered, so this one did it, and for the second time.
                        crashed = Row(Status.REJECTED, None, None, None, reason="crash", detail=how)
                        rows.append(crashed)
                        if answered:
                            answered([crashed])
                    careful = not careful
        except BaseException:
            if child:
                await child.kill()
            child = None
            raise
        finally:
            self._free.put_nowait(child)
        return rows


class _Child:
    """One process and its pipes."""

    def __init__(self, process: Process, configuration: Configuration) -> None:
        self._process = process
        self._stdin = cast(asyncio.StreamWriter, process.stdin)
        self._stdout = cast(asyncio.StreamReader, process.stdout)
        self._configuration = configuration

    @classmethod
    async def start(cls, configuration: Configuration) -> Self:
        """A child that is ready to work. Raises ChildError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "stream.children.child",
            stdin=PIPE,
            stdout=PIPE,
            env=os.environ | ONE_THREAD,
        )
        child = cls(process, configuration)
        try:
            async with asyncio.timeout(START_SECONDS):
                child._stdin.write(frame(configuration))
                ready = _READY.decode(await child._read())
        except (*_DIED, TimeoutError) as error:
            how = await child.post_mortem()
            raise ChildError(f"a fingerprinting process ended before it was ready: {how}") from error
        except BaseException:
            await child.kill()
            raise
        if ready.error:
            await child.kill()
            raise ChildError(f"a fingerprinting process cannot work: {ready.error}")
        return child

    async def rows(self, chunk: Chunk) -> AsyncIterator[list[Row]]:
        """Rows of the chunk as they come; ends early when the process dies."""
        missing = len(chunk.values)
        with suppress(*_DIED):
            self._stdin.write(frame(chunk))
            await self._stdin.drain()
            while missing:
                more = _ROWS.decode(await self._read())
                if isinstance(more, Away):
                    log.warning("page_waits", error=more.error)
                    continue
                missing -= len(more)
                yield more

    async def _read(self) -> bytes:
        length = await self._stdout.readexactly(LENGTH)
        return await self._stdout.readexactly(int.from_bytes(length, "big"))

    async def post_mortem(self) -> str:
        """How the process ended, for a person."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await self._process.wait()
        code = self._process.returncode
        await self.kill()
        if code is None:
            return "closed its pipes and did not end"
        if code == -signal.SIGALRM:
            return f"took longer than page_deadline ({self._configuration.deadline:g} s)"
        if code == OUT_OF_MEMORY:
            return f"needed more memory than child_memory ({self._configuration.memory} bytes)"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    async def kill(self) -> None:
        """End the process at once and reap it."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await asyncio.shield(self._process.wait())
        # wait() leaves pipes open whose last bytes nobody read; there is no public way to close them.
        self._process._transport.close()  # type: ignore[attr-defined]


async def _all_of(tasks: Sequence[asyncio.Task[_Child]]) -> list[_Child | BaseException]:
    """What each became; all are ended when the caller is cancelled."""
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        for child in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(child, _Child):
                await child.kill()
        raise


def _retrieve(conversation: asyncio.Task[list[Row]]) -> None:
    """Note its error as seen: the caller may be gone, and the next one will meet the same."""
    if not conversation.cancelled():
        conversation.exception()


_DIED = (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError)
_READY = msgspec.msgpack.Decoder(Ready)
_ROWS = msgspec.msgpack.Decoder(list[Row] | Away)
