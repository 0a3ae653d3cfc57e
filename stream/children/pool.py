"""A pool of fingerprinting processes that survives pages which hang or kill them (rule 5).

`concurrent.futures` gives up the whole pool when one process dies, and cannot kill one that hangs. Here each
process has its own pipes, and records its position in shared memory. The pool therefore knows which page
killed it, rejects that page, and retries only the other unanswered ones.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar, cast

import msgspec
import structlog

from stream.children.child import (
    COMPILER,
    FINGERPRINTER,
    LENGTH,
    ChildConfiguration,
    CompareRequest,
    CompareResponse,
    Compiling,
    FingerprintRequest,
    Ready,
    SchemaRequest,
    Unavailable,
    frame,
)
from stream.children.confine import environment
from stream.children.deadline import CrashedHosts
from stream.children.guard import OUT_OF_MEMORY
from stream.children.position import Position
from stream.children.schema_server import SchemaServer
from stream.errors import ChildError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.futures import retrieved
from stream.pages.outside.schema_registry import Registry
from stream.settings import Settings

SLOW_START_SECONDS: Final = 120.0
"""Interval at which the log names a child that is not ready, and says nothing. Loading dictionaries takes a
second; a child that compiles says so. The pool waits while the child lives."""
EXIT_SECONDS: Final = 5.0
"""Longest wait for the exit of a process that has closed its pipe."""

T = TypeVar("T")

log = structlog.get_logger(__name__, role="worker")


def configuration_of(
    settings: Settings, scheme: Scheme, seed: bytes, fingerprinter: str = FINGERPRINTER
) -> ChildConfiguration:
    """The configuration of children by the deployment's settings."""
    return ChildConfiguration(
        scheme=scheme,
        seed=seed,
        page_bytes=settings.page_bytes,
        memory=settings.child_memory,
        deadline=settings.page_deadline,
        claim_root=str(settings.claim_root) if settings.claim_root else None,
        fingerprinter=fingerprinter,
    )


class ChildPool:
    """A pool of `processes` fingerprinting children. As an asynchronous context manager, it ends them all."""

    def __init__(
        self,
        processes: int,
        configuration: ChildConfiguration,
        registry: Registry | None = None,
        *,
        at_once: bool = True,
    ) -> None:
        """`registry` holds the schemas of framed messages. Children ask the pool for schemas, and have no
        access to the registry. Unless `at_once`, each child is started when a request needs it."""
        self._processes = processes
        self._at_once = at_once
        self._warned = False
        self._schemas = SchemaServer(registry)
        self._configuration = configuration
        self._free: asyncio.Queue[_Child | None] = asyncio.Queue()  # None: a process still to be started
        self._gathering = asyncio.Lock()
        self._conversations: set[asyncio.Task[Any]] = set()
        self._ended = False
        self._hosts = CrashedHosts()
        self.crashes = 0
        """Processes that died while working on a request."""
        self.waiting = 0
        """Chunks that wait for a free child."""

    async def __aenter__(self) -> Self:
        """Start all children, unless they are started when needed. Raises ChildError if one cannot work."""
        if not self._at_once:
            for _ in range(self._processes):
                self._free.put_nowait(None)
            return self
        starting = [asyncio.create_task(self._start()) for _ in range(self._processes)]
        started = await _all_of(starting)
        for child in started:
            if isinstance(child, _Child):
                self._free.put_nowait(child)
        for failure in started:
            if isinstance(failure, BaseException):
                await self._end()
                raise failure
        return self

    async def _start(self) -> _Child:
        child = await _Child.start(self._configuration)
        if child.unconfined and not self._warned:
            self._warned = True
            log.warning("children_not_confined", error=child.unconfined)
        return child

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
        """The rows of `values`, in order. Waits for a free child.

        `answered` is called with rows as soon as they are known; the caller may then set their values in
        `values` to None to free memory. `busy` tells that more pages are queued, so that larger batches are
        preferred. If the caller is cancelled, the child still finishes the request, since that is cheaper
        than starting another child. Raises ChildError.
        """
        child = await self._free_child()
        return await asyncio.shield(self._begin(self._converse(child, values, answered, busy)))

    async def compare(self, anchor: bytes, page: bytes) -> bytes | Row:
        """The comparison of two page messages by a fingerprinter that is a `PageComparer`, or a row that
        rejects them. Waits for a free child. Raises ChildError."""
        child = await self._free_child()
        return await asyncio.shield(self._begin(self._compare(child, CompareRequest(anchor, page))))

    async def _free_child(self) -> _Child | None:
        """Wait for a free child, or one still to be started. Raises ChildError."""
        self.waiting += 1
        try:
            child = await self._free.get()
        finally:
            self.waiting -= 1
        if self._ended:
            self._free.put_nowait(child)
            raise ChildError("the pool of fingerprinting processes has ended")
        return child

    async def fingerprint_alone(
        self, value: bytes | None, before: Callable[[], Awaitable[bool]], after: Callable[[], Awaitable[None]]
    ) -> Row | None:
        """The row of a page that is processed while all other children are idle.

        `before` is awaited once all children are idle, even those with requests of cancelled callers; if it
        returns False, the result is None. `after` is awaited once the row is known, or the page waits for a
        store or registry. Other pages are processed only after that. Raises ChildError.
        """
        over = asyncio.Event()
        async with self._all_free() as children:
            if not await before():
                return None
            conversation = self._begin(self._converse(children.pop(), [value], waits=over.set))
            conversation.add_done_callback(lambda _: over.set())
            await over.wait()
            await after()
        (row,) = await asyncio.shield(conversation)
        return row

    @asynccontextmanager
    async def _all_free(self) -> AsyncIterator[list[_Child | None]]:
        """Wait until all children are free, and hold them. Those left in the list are released at the end."""
        async with self._gathering:  # two at once would deadlock
            children: list[_Child | None] = []
            try:
                while len(children) < self._processes:
                    children.append(await self._free.get())
                yield children
            finally:
                for child in children:
                    self._free.put_nowait(child)

    def _begin(self, conversing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that has a child process a request and then releases the child. The task goes on if
        the caller is cancelled."""
        conversation = retrieved(asyncio.create_task(conversing))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)
        return conversation

    async def _converse(
        self,
        child: _Child | None,
        values: list[bytes | None],
        answered: Callable[[list[Row]], None] | None = None,
        busy: bool = False,
        waits: Callable[[], None] | None = None,
    ) -> list[Row]:
        rows: list[Row] = []
        unfinished = _Unfinished(len(values))
        async with self._released(child) as slot:
            while len(rows) < len(values):
                if crashed := unfinished.crashed.pop(len(rows), None):
                    rows.append(crashed)
                    if answered:
                        answered([crashed])
                    continue
                child = slot.child = slot.child or await self._start()
                end, careful = unfinished.next(len(rows))
                request = FingerprintRequest(
                    values[len(rows) : end], careful, busy or self.waiting > 0, dict(self._hosts.crashes)
                )
                first = len(rows)
                async for more in child.rows(request, self._schemas, waits):
                    rows += more
                    if answered:
                        answered(more)
                if child.stalled:
                    await child.kill()
                    slot.child = None
                elif len(rows) < end:
                    death = await self._post_mortem(slot, child)
                    self._hosts.note(death.host)
                    at = unfinished.note(first, len(rows), end, death)
                    log.warning(
                        "child_died",
                        how=death.how,
                        host=death.host or None,
                        rejected=at is not None,
                        unanswered=len(values) - len(rows),
                    )
        return rows

    async def _compare(self, child: _Child | None, request: CompareRequest) -> bytes | Row:
        async with self._released(child) as slot:
            child = slot.child = slot.child or await self._start()
            answer = await child.compared(request)
            if answer is None:
                death = await self._post_mortem(slot, child)
                log.warning("child_died", how=death.how, host=None, rejected=True, unanswered=1)
                answer = death.row
        return answer

    @asynccontextmanager
    async def _released(self, child: _Child | None) -> AsyncIterator[_Slot]:
        """Release a child at the end of a conversation, or its slot if it died. A conversation that fails
        kills it."""
        slot = _Slot(child)
        try:
            yield slot
        except BaseException:
            if slot.child:
                await slot.child.kill()
            slot.child = None
            raise
        finally:
            self._free.put_nowait(slot.child)

    async def _post_mortem(self, slot: _Slot, child: _Child) -> _Death:
        """Find out how a child died during a request, and empty its slot."""
        death = await child.post_mortem()
        slot.child = None
        self.crashes += 1
        return death


@dataclass(slots=True)
class _Slot:
    """A slot of the pool, for a running child or one still to be started."""

    child: _Child | None


@dataclass(frozen=True, slots=True)
class _Death:
    """How a child died."""

    how: str
    """The cause, for logs."""
    pages: range
    """Pages of its request that were in progress."""
    host: str
    """The host of the page in progress; empty if unknown, or for several pages."""
    by_itself: bool
    """Whether only the page can have caused it. A process may also be killed because of other processes'
    memory, and wall-clock time passes while other processes run."""

    @property
    def row(self) -> Row:
        """The row of the page that caused it."""
        return Row(Status.REJECTED, None, None, reason="crash", detail=self.how)


class _Unfinished:
    """Decides which pages of a request are retried, and how, after a child died."""

    def __init__(self, count: int) -> None:
        self.crashed: dict[int, Row] = {}
        """Rows of pages that killed a child and are not retried, by index in the request."""
        self._count = count
        self._again = range(0)
        """Pages that are retried one by one, since one of them may have killed a child."""
        self._tried: set[int] = set()
        """Pages in progress when a child died of a cause that may not be the page."""

    def next(self, first: int) -> tuple[int, bool]:
        """The end of the next request, which begins at `first`, and whether it is careful."""
        careful = first in self._again
        ends = [self._again.stop] if careful else [each for each in (self._again.start,) if each > first]
        return min([self._count, *ends, *self.crashed]), careful

    def note(self, first: int, answered: int, end: int, death: _Death) -> int | None:
        """Record that a child with the pages `first` to `end` died when those before `answered` were done.
        Returns the page that is rejected for it, if any."""
        at = range(max(answered, first + death.pages.start), min(end, first + death.pages.stop))
        guilty = None
        if len(at) == 1 and (death.by_itself or at.start in self._tried):
            guilty = at.start
        elif len(at) == 1:
            self._tried.add(at.start)
            self._again = at
        elif answered in self._again:  # in a careful request, all before it are done, so this is the page
            guilty = answered
        else:
            self._again = at or range(answered, end)
        if guilty is not None:
            self.crashed[guilty] = death.row
        return guilty


class _Child:
    """A child process with its pipes and its position."""

    def __init__(self, process: Process, position: Position, configuration: ChildConfiguration) -> None:
        self._process = process
        self._position = position
        self._stdin = cast(asyncio.StreamWriter, process.stdin)
        self._stdout = cast(asyncio.StreamReader, process.stdout)
        self._configuration = configuration
        self.unconfined: str | None = None
        """Restrictions that the kernel refused to apply to the process."""
        self.stalled = False
        """Whether it exited because a store did not answer. No page is at fault."""

    @classmethod
    async def start(cls, configuration: ChildConfiguration) -> Self:
        """Start a child and wait until it is ready. Raises ChildError."""
        position = Position()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "stream.children.child",
                stdin=PIPE,
                stdout=PIPE,
                env=environment(),
                pass_fds=(position.file,),
            )
        except BaseException:
            position.close()
            raise
        configuration = msgspec.structs.replace(configuration, position=position.file)
        child = cls(process, position, configuration)
        try:
            child._stdin.write(frame(configuration))
            while isinstance(ready := _FIRST.decode(await child._first_frame()), Compiling):
                logging.getLogger(COMPILER).warning(ready.line)
        except _DIED as error:
            death = await child.post_mortem()
            raise ChildError(f"a fingerprinting process died before it was ready: {death.how}") from error
        except BaseException:
            await child.kill()
            raise
        if ready.error:
            await child.kill()
            raise ChildError(f"a fingerprinting process cannot work: {ready.error}")
        child.unconfined = ready.unconfined
        return child

    async def rows(
        self, request: FingerprintRequest, schemas: SchemaServer, waits: Callable[[], None] | None
    ) -> AsyncIterator[list[Row]]:
        """Yield the rows of the request as they arrive; stops early if the process dies. `waits` is called
        each time a page waits for a store or registry."""
        missing = len(request.values)
        self._position.leave()
        with suppress(*_DIED):
            self._stdin.write(frame(request))
            await self._stdin.drain()
            while missing:
                more = _ROWS.decode(await self._read())
                if isinstance(more, Unavailable):
                    log.warning("page_waits", error=more.error)
                    if waits:
                        waits()
                    if more.stalled:
                        self.stalled = True
                        return
                    continue
                if isinstance(more, SchemaRequest):
                    self._stdin.write(frame(await schemas.answer(more)))
                    continue
                missing -= len(more)
                yield more

    async def compared(self, request: CompareRequest) -> bytes | Row | None:
        """The comparison, or the row that rejects the pages; None if the process dies."""
        self._position.leave()
        with suppress(*_DIED):
            self._stdin.write(frame(request))
            await self._stdin.drain()
            answer = _COMPARED.decode(await self._read())
            return answer.content if isinstance(answer, CompareResponse) else answer[0]
        return None

    async def _first_frame(self) -> bytes:
        """The child's next frame before it is ready. Waits for as long as the child lives, and logs a slow
        start."""
        reading, began = retrieved(asyncio.ensure_future(self._read())), time.monotonic()
        try:
            while not (await asyncio.wait([reading], timeout=SLOW_START_SECONDS))[0]:
                waited = round(time.monotonic() - began)
                log.warning("child_starts_slowly", pid=self._process.pid, seconds=waited)
            return reading.result()
        finally:
            reading.cancel()

    async def _read(self) -> bytes:
        length = await self._stdout.readexactly(LENGTH)
        return await self._stdout.readexactly(int.from_bytes(length, "big"))

    async def post_mortem(self) -> _Death:
        """Reap the process and find out how, and at which page, it died."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await self._process.wait()
        code = self._process.returncode
        pages, host = self._position.pages, self._position.host
        await self.kill()
        return _Death(self._how(code), pages, host, code not in _PERHAPS_BY_OTHERS)

    def _how(self, code: int | None) -> str:
        if code is None:
            return "closed its pipes but did not exit"
        if code == -signal.SIGPROF:
            return (
                "took more processor time than page_deadline "
                f"({self._configuration.deadline:g} s) allows a page of its size"
            )
        if code == -signal.SIGALRM:
            return f"took longer than page_deadline ({self._configuration.deadline:g} s)"
        if code == OUT_OF_MEMORY:
            return f"needed more memory than child_memory ({self._configuration.memory} bytes)"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    async def kill(self) -> None:
        """Kill the process and reap it."""
        with suppress(ProcessLookupError):
            self._process.kill()
        with suppress(TimeoutError):  # a process blocked by a store in the kernel is reaped later
            async with asyncio.timeout(EXIT_SECONDS):
                await asyncio.shield(self._process.wait())
        # wait() does not close pipes with unread bytes, and there is no public way to close them.
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        self._position.close()


async def _all_of(tasks: Sequence[asyncio.Task[_Child]]) -> list[_Child | BaseException]:
    """The result of each task. If the caller is cancelled, all children are killed."""
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        for child in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(child, _Child):
                await child.kill()
        raise


_PERHAPS_BY_OTHERS: Final = (None, -signal.SIGALRM, -signal.SIGKILL)
_DIED = (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError)
_FIRST = msgspec.msgpack.Decoder(Ready | Compiling)
_COMPARED = msgspec.msgpack.Decoder(CompareResponse | list[Row])
_ROWS = msgspec.msgpack.Decoder(list[Row] | Unavailable | SchemaRequest)
