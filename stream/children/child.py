"""The process that fingerprints: chunks of page messages on stdin, rows on stdout. It imports no Kafka.

A page can hang or kill it, so it holds nothing that matters: `stream.children.pool` starts another. Which
page it is at stands in memory that outlives it.
Frames are a 4-byte big-endian length and msgpack: `Configuration` first, answered by `Ready`; then `Chunk`s,
each answered by lists of `Row`, in order, as they come.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, runtime_checkable

import msgspec

from stream.children.confine import confine, start_no_more
from stream.children.guard import OUT_OF_MEMORY, STORE_SECONDS, Guard, failed
from stream.children.position import Position
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.pages.outside.errors import AwayError, WantedError
from stream.pages.outside.schema import Registered

if TYPE_CHECKING:  # the parent imports this file, and need not load what fingerprints
    from stream.fingerprint.fingerprinter import ReadPage
    from stream.pages.outside.outside import Outside
    from stream.pages.page import Page

FINGERPRINTER: Final = "stream.fingerprint.fingerprinter.Fingerprinter"

TOGETHER_CHARACTERS: Final = 65_536
"""Pages are fingerprinted together when they have so much text; more would leave the cache."""
COMPANY_SECONDS: Final = 0.02
"""Pages that were read wait for company while so much processor time goes into reading others (some
milliseconds each, for HTML), so that a busy machine does not cut batches to single pages. Then rows wait as
long: a write and the parent's wake-up cost as much as a small page."""
BUSY_SECONDS: Final = 0.1
"""The same while other pages wait for a child: who is behind saves work rather than a moment."""
MOST_SECONDS: Final = 0.25
"""Pages that were read wait no longer, whatever the others wait for."""
PIPE_BYTES: Final = 1 << 20
"""What a pipe holds, where the system allows it: a chunk is written in one go, not 64 KiB a wake-up."""
ORPHAN_SECONDS: Final = 1.0
"""How soon an idle child, or one in the middle of a long page, notices that its parent is gone."""
NICENESS: Final = 1
"""The parent's event loop keeps the group membership alive; it goes first when processors are short. At 5,
children starved beside a broker on full processors: pages waited 4 times as long as at 1."""
AWAY_SECONDS: Final = 0.25
MOST_AWAY_SECONDS: Final = 10.0
"""Pauses before a store or registry that was away is asked again: the first, doubled up to the longest."""
STALLED: Final = 75
"""Exit code after a store took too long."""
LENGTH: Final = 4


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What a child needs to know; the first frame."""

    scheme: Scheme
    page_bytes: int
    """Largest page, after decompression."""
    memory: int
    """Address space of the process in bytes."""
    deadline: float
    """Seconds that a page of `page_bytes` may take; see `stream.children.deadline`."""
    claim_root: str | None = None
    """Directory of the web archives that messages refer to."""
    fingerprinter: str = FINGERPRINTER
    """Dotted name of a class; tests put another in its place."""
    store_seconds: float = STORE_SECONDS
    """How long one read of an archive may take."""
    position: int | None = None
    """File descriptor of the `Position` shared with the parent."""


class Ready(msgspec.Struct, frozen=True):
    """The child's first frame; `error` tells why it cannot work."""

    error: str | None = None
    unconfined: str | None = None
    """What the kernel refused to take from the process."""


class Away(msgspec.Struct, frozen=True, tag=True):
    """Sent between rows: a page waits for a store or registry, which is asked again and again."""

    error: str
    stalled: bool = False
    """The store neither answers nor fails: this process ends, as nothing else ends what it waits for."""


class Wanted(msgspec.Struct, frozen=True, tag=True):
    """Sent between rows: the child asks for the schema of that id, and reads `Told` before anything else."""

    number: int


class Told(msgspec.Struct, frozen=True):
    """The answer to `Wanted`."""

    schema: Registered | None = None
    away: str | None = None
    """Why there is none: the child asks again later."""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Page messages to be fingerprinted."""

    values: list[bytes | None]
    careful: bool
    """Do every page alone: together they have ended a process before."""
    busy: bool = False
    """Other chunks wait for a child: rows go back in larger lots."""
    crashes: Mapping[str, int] = {}
    """By host, how many of its pages have ended processes."""


class MessageFingerprinter(Protocol):
    """What `Configuration.fingerprinter` names, made with the scheme."""

    def warm(self) -> None:
        """Load dictionaries, so that the first page does not pay for them."""

    def message(self, value: bytes | None, page_bytes: int) -> Row:
        """The row of one page message."""
        ...


@runtime_checkable
class BatchFingerprinter(Protocol):
    """One that can also read pages first and fingerprint them together."""

    def decode(self, value: bytes | None, page_bytes: int, outside: Outside) -> Page | Row:
        """The page of one message, or the row that refuses it. Raises WantedError."""
        ...

    def read_page(self, page: Page) -> ReadPage | Row:
        """The text of a page, or the row that refuses it."""
        ...

    def rows(self, pages: Sequence[ReadPage]) -> list[Row]:
        """The rows of pages that were read."""
        ...


def main() -> None:
    """Fingerprint until stdin ends."""
    from stream.pages.outside.outside import Outside

    rows_out, chunks_in = _take_pipes()
    _set_signals()
    configuration = _CONFIGURATION.decode(_read(chunks_in) or b"")
    try:
        _set_limits(configuration.memory)
        unconfined = confine()
        fingerprinter = _make(configuration)
    except Exception as error:
        _write(rows_out, Ready(f"{type(error).__name__}: {error}"))
        raise
    _write(rows_out, Ready(unconfined=unconfined))
    guard = Guard(
        configuration.deadline,
        configuration.page_bytes,
        Position(configuration.position),
        configuration.store_seconds,
    )
    outbox = _Outbox(rows_out, guard)
    start_no_more()

    def ask(number: int) -> Registered:
        outbox.flush()
        outbox.say(Wanted(number))
        answer = _read(chunks_in)
        if answer is None:  # the parent is gone
            os._exit(0)
        told = _TOLD.decode(answer)
        if told.schema is None:
            raise AwayError(told.away)
        return told.schema

    outside = Outside(claim_root=configuration.claim_root, ask=ask)
    while (frame := _read(chunks_in)) is not None:
        chunk = _CHUNK.decode(frame)
        outbox.pause = BUSY_SECONDS if chunk.busy else COMPANY_SECONDS
        _answer(chunk, fingerprinter, guard, outbox, outside)


def _answer(
    chunk: Chunk, fingerprinter: MessageFingerprinter, guard: Guard, outbox: _Outbox, outside: Outside
) -> None:
    guard.crashes = chunk.crashes
    if isinstance(fingerprinter, BatchFingerprinter):
        _answer_together(chunk, fingerprinter, guard, outbox, outside)
    else:
        for index, value in enumerate(chunk.values):
            guard.enter(index, index + 1, len(value or b""))
            outbox.add(guard.run(fingerprinter.message, value, guard.page_bytes))
            if chunk.careful:
                outbox.flush()
    guard.rest()
    outbox.flush()


def _answer_together(
    chunk: Chunk, fingerprinter: BatchFingerprinter, guard: Guard, outbox: _Outbox, outside: Outside
) -> None:
    """Reads pages one by one and fingerprints a handful at once, at half the cost. When that ends the
    process, they come again in a careful chunk, where each page is done alone."""
    read: list[ReadPage | Row] = []
    first, size, began, since = 0, 0, time.process_time(), time.monotonic()

    def finish() -> None:
        nonlocal read, first, size, began, since
        _finish(read, first, fingerprinter, guard, outbox)
        first += len(read)
        read, size, began, since = [], 0, time.process_time(), time.monotonic()

    def away(error: AwayError) -> None:
        finish()  # what is before the page need not wait
        outbox.flush()
        outbox.say(Away(str(error)))

    for index, value in enumerate(chunk.values):
        one = _read_page(index, value, fingerprinter, guard, outside, away)
        read.append(one)
        size += 0 if isinstance(one, Row) else len(one.text)
        late = time.process_time() - began > outbox.pause or time.monotonic() - since > MOST_SECONDS
        if chunk.careful or late or size >= TOGETHER_CHARACTERS:
            finish()
            if chunk.careful:
                outbox.flush()
    finish()


def _read_page(
    index: int,
    value: bytes | None,
    fingerprinter: BatchFingerprinter,
    guard: Guard,
    outside: Outside,
    away: Callable[[AwayError], None],
) -> ReadPage | Row:
    """One page, and first whatever it refers to: that has no deadline, and its absence rejects no page."""
    pause = AWAY_SECONDS
    while True:
        try:
            guard.enter(index, index + 1, len(value or b""))
            page = guard.run(fingerprinter.decode, value, guard.page_bytes, outside)
            if isinstance(page, Row):
                return page
            guard.host(page.url, len(page.html or page.text or page.body or b""))
            return guard.run(fingerprinter.read_page, page)
        except WantedError as wanted:
            try:
                guard.fetch(wanted)
            except AwayError as error:
                away(error)
                time.sleep(pause)
                pause = min(2 * pause, MOST_AWAY_SECONDS)
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except Exception as error:
                return failed(error)


def _finish(
    read: list[ReadPage | Row],
    first: int,
    fingerprinter: BatchFingerprinter,
    guard: Guard,
    outbox: _Outbox,
) -> None:
    """The rows of pages of the chunk, from `first` on."""
    pages = [(index, one) for index, one in enumerate(read, first) if not isinstance(one, Row)]

    def rows(some: Sequence[tuple[int, ReadPage]]) -> list[Row] | Row:
        size = sum(len(page.text) for _, page in some)
        guard.enter(some[0][0], some[-1][0] + 1, size)
        if len(some) == 1:
            guard.host(some[0][1].url, size)
        return guard.run(fingerprinter.rows, [page for _, page in some])

    made = rows(pages) if pages else []
    if isinstance(made, Row):  # one of them failed: which?
        alone = [rows([page]) for page in pages]
        made = [one if isinstance(one, Row) else one[0] for one in alone]
    made_rows = iter(made)
    for one in read:
        outbox.add(one if isinstance(one, Row) else next(made_rows))


class _Outbox:
    """Rows on their way to the parent. A thread sends them, so a long page keeps back none before it."""

    def __init__(self, pipe: BinaryIO, guard: Guard) -> None:
        self._guard = guard
        self.pause = COMPANY_SECONDS
        """Seconds that pages, then rows, wait for company."""
        self._pipe = pipe
        self._rows: list[Row] = []
        self._lock = threading.Lock()
        self._waiting = threading.Event()
        threading.Thread(target=self._send, args=(os.getppid(),), daemon=True).start()

    def add(self, row: Row) -> None:
        with self._lock:
            self._rows.append(row)
        self._waiting.set()

    def flush(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
            if rows:
                _write(self._pipe, rows)

    def say(self, message: Away | Wanted) -> None:
        """Tell the parent something that is no row."""
        with self._lock:
            _write(self._pipe, message)

    def _send(self, parent: int) -> None:
        while True:
            if self._waiting.wait(ORPHAN_SECONDS):
                self._waiting.clear()
                time.sleep(self.pause)
                try:
                    self.flush()
                except OSError:  # the parent is gone
                    os._exit(0)
                except BaseException:  # rows are lost with this thread: the parent must hear of it
                    os._exit(OUT_OF_MEMORY)
            elif stalled := self._guard.stalled:
                self.say(Away(stalled, stalled=True))
                os._exit(STALLED)
            elif os.getppid() != parent:
                os._exit(0)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes; whatever a library prints goes to stderr and cannot garble a frame."""
    rows_out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for pipe in (rows_out, sys.stdin):
        with suppress(OSError):  # a system's bound for one user, or no pipe
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return rows_out, sys.stdin.buffer


def _set_signals() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the parent decides; it closes stdin
        signal.signal(ignored, signal.SIG_IGN)
    ending = {signal.SIGALRM, signal.SIGPROF}
    for each in ending:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)


def _set_limits(memory: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)


def _make(configuration: Configuration) -> MessageFingerprinter:
    module, _, name = configuration.fingerprinter.rpartition(".")
    made: MessageFingerprinter = getattr(importlib.import_module(module), name)(configuration.scheme)
    made.warm()
    return made


def _read(pipe: BinaryIO) -> bytes | None:
    """The next frame, or None at the end."""
    length = pipe.read(LENGTH)
    return pipe.read(int.from_bytes(length, "big")) if len(length) == LENGTH else None


def _write(pipe: BinaryIO, message: object) -> None:
    pipe.write(frame(message))
    pipe.flush()


def frame(message: object) -> bytes:
    """A message as it travels in a pipe."""
    content = _ENCODER.encode(message)
    return len(content).to_bytes(LENGTH, "big") + content


_ENCODER = msgspec.msgpack.Encoder()
_CONFIGURATION = msgspec.msgpack.Decoder(Configuration)
_CHUNK = msgspec.msgpack.Decoder(Chunk)
_TOLD = msgspec.msgpack.Decoder(Told)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the parent is gone
        os._exit(0)
