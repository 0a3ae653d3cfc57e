"""The fingerprinting process: reads requests with page messages from stdin and writes rows to stdout.

A page can hang or kill it, so it keeps no state of value, and `stream.children.pool` starts a replacement.
The page in progress is recorded in shared memory that outlives the process. It does not import Kafka.

Each message is a frame: a 4-byte big-endian length, then msgpack. The parent sends a `ChildConfiguration`,
which is answered by `Ready`, after any number of `Compiling`. Then it sends `FingerprintRequest`s, each
answered by lists of `Row`, in the order of the pages, or `CompareRequest`s, each answered by
`CompareResponse` or by the row of what failed.

Rows travel one by one, not as columns, since answers are small and a worker sorts their rows by partition. To
decode them in chunks of 64 and make a journal record of them takes the parent 0.6 us a row. With journal
columns in the answers it takes 1.0 us, and to decode answers of four pages 5 us a row instead of 0.2.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, cast, runtime_checkable

import msgspec

from stream.children.confine import confine, start_no_more
from stream.children.guard import OUT_OF_MEMORY, STORE_SECONDS, Guard
from stream.children.position import Position
from stream.fingerprint.row import Row, failed_row
from stream.fingerprint.scheme import Scheme
from stream.pages.outside.errors import FetchNeededError, UnavailableError
from stream.pages.outside.schema import Registered

if TYPE_CHECKING:  # the parent imports this file, too, but does not need the fingerprinting code
    from stream.page_rows.page_fingerprinter import ReadPage
    from stream.pages.outside.outside import Outside
    from stream.pages.page import Page

FINGERPRINTER: Final = "stream.page_rows.page_fingerprinter.PageFingerprinter"

TOGETHER_CHARACTERS: Final = 65_536
"""Characters of text after which a batch of pages is fingerprinted. A larger batch would not fit the
cache."""
CHILD_BATCHING_SECONDS: Final = 0.02
"""Batching delay. Pages are collected until reading them has taken this much processor time (HTML takes some
milliseconds a page); measured in processor time, a loaded machine still fills its batches. Rows then wait as
long before they are sent, because a write and the parent's wake-up cost as much as a small page."""
QUEUED_BATCHING_SECONDS: Final = 0.1
"""Batching delay while other requests are queued: under load, prefer throughput to latency."""
MOST_SECONDS: Final = 0.25
"""Longest batching delay by the wall clock."""
PIPE_BYTES: Final = 1 << 20
"""Requested capacity of the pipes, so that a request is written at once instead of in pieces of 64 KiB."""
ORPHAN_SECONDS: Final = 1.0
"""Interval at which a child, idle or busy, checks that its parent is alive."""
NICENESS: Final = 1
"""Added niceness, so that the parent's event loop, which keeps the group membership alive, has precedence. At
5, children starved beside a broker on busy processors: pages waited 4 times as long as at 1."""
RETRY_SECONDS: Final = 0.25
MOST_RETRY_SECONDS: Final = 10.0
"""Backoff for an unavailable store or registry: the first pause, which doubles, and the longest."""
COMPILER: Final = "stream.compiled.code_cache"
"""Name of the logger that says what is compiled."""
STALLED: Final = 75
"""Exit code after a read from a store exceeded `store_seconds`."""
LENGTH: Final = 4


class ChildConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame that a child receives."""

    scheme: Scheme
    seed: bytes
    """The seed of the scheme. Sent through the pipe, since other users can read arguments."""
    page_bytes: int
    """Largest page, after decompression."""
    memory: int
    """Address space of the process in bytes."""
    deadline: float
    """Seconds allowed for a page of `page_bytes`; see `stream.children.deadline`."""
    claim_root: str | None = None
    """Directory of the web archives that messages refer to."""
    fingerprinter: str = FINGERPRINTER
    """Dotted name of the class that fingerprints; tests substitute another."""
    store_seconds: float = STORE_SECONDS
    """Seconds allowed for one read of an archive."""
    position: int | None = None
    """File descriptor of the `Position` shared with the parent."""

    def __repr__(self) -> str:
        """Without the seed, so that no log shows it."""
        return f"ChildConfiguration(scheme={self.scheme.id!r}, fingerprinter={self.fingerprinter!r})"


class Compiling(msgspec.Struct, frozen=True, tag=True):
    """Sent before `Ready` while loops are compiled."""

    line: str
    """For the log of the parent, which has a format."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The child is ready, or cannot work because of `error`."""

    error: str | None = None
    unconfined: str | None = None
    """Restrictions (`stream.children.confine`) that the kernel refused to apply."""


class Unavailable(msgspec.Struct, frozen=True, tag=True):
    """Sent between rows: a page waits for an unavailable store or registry, and the child keeps retrying."""

    error: str
    stalled: bool = False
    """The store neither answers nor fails. The process exits, as a blocked read cannot be interrupted."""


class SchemaRequest(msgspec.Struct, frozen=True, tag=True):
    """Sent between rows: a request for the schema with that id. The next frame to the child is
    `SchemaResponse`."""

    number: int


class SchemaResponse(msgspec.Struct, frozen=True):
    """The answer to `SchemaRequest`."""

    schema: Registered | None = None
    unavailable: str | None = None
    """Why the schema is not available now. The child asks again later."""


class FingerprintRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Page messages to fingerprint."""

    values: list[bytes | None]
    careful: bool
    """Fingerprint each page alone, because this request has killed a process before."""
    busy: bool = False
    """Other requests are queued, so larger batches are preferred."""
    crashes: Mapping[str, int] = {}
    """Number of processes killed by pages, by host."""


class CompareRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Two page messages to compare, by a fingerprinter that is a `PageComparer`."""

    anchor: bytes
    page: bytes


class CompareResponse(msgspec.Struct, frozen=True, tag=True):
    """The answer to `CompareRequest`."""

    content: bytes
    """As the fingerprinter returned it."""


class MessageFingerprinter(Protocol):
    """The interface of the class that `ChildConfiguration.fingerprinter` names; constructed with the
    scheme and its seed."""

    def warm(self) -> None:
        """Load dictionaries ahead of the first page."""

    def message(self, value: bytes | None, page_bytes: int) -> Row:
        """The row of one page message."""
        ...


@runtime_checkable
class BatchFingerprinter(Protocol):
    """A fingerprinter that reads pages one by one and fingerprints a batch of them at once."""

    def decode(self, value: bytes | None, page_bytes: int, outside: Outside) -> Page | Row:
        """The page of one message, or the row that rejects it. Raises FetchNeededError."""
        ...

    def read_page(self, page: Page) -> ReadPage | Row:
        """The text of a page, or the row that rejects it."""
        ...

    def rows(self, pages: Sequence[ReadPage]) -> list[Row]:
        """Fingerprint a batch of pages."""
        ...


class PageComparer(Protocol):
    """A fingerprinter that compares pages, too."""

    def compare(self, anchor: bytes, page: bytes, page_bytes: int) -> bytes | Row:
        """The comparison of two page messages, or the row that rejects one of them."""
        ...


def main() -> None:
    """Fingerprint until stdin ends."""
    from stream.pages.outside.outside import Outside

    rows_out, requests_in = _take_pipes()
    _set_signals()
    configuration = _CONFIGURATION.decode(_read(requests_in) or b"")
    try:
        _set_limits(configuration.memory)
        unconfined = confine()
        with _progress_to(rows_out):
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
        outbox.say(SchemaRequest(number))
        answer = _read(requests_in)
        if answer is None:  # the parent is gone
            os._exit(0)
        response = _SCHEMA_RESPONSE.decode(answer)
        if response.schema is None:
            raise UnavailableError(response.unavailable)
        return response.schema

    outside = Outside(claim_root=configuration.claim_root, ask=ask)
    while (frame := _read(requests_in)) is not None:
        request = _REQUEST.decode(frame)
        if isinstance(request, CompareRequest):
            _compare(request, cast("PageComparer", fingerprinter), guard, outbox)
            continue
        outbox.pause = QUEUED_BATCHING_SECONDS if request.busy else CHILD_BATCHING_SECONDS
        _answer(request, fingerprinter, guard, outbox, outside)


def _answer(
    request: FingerprintRequest,
    fingerprinter: MessageFingerprinter,
    guard: Guard,
    outbox: _Outbox,
    outside: Outside,
) -> None:
    guard.crashes = request.crashes
    if isinstance(fingerprinter, BatchFingerprinter):
        _answer_together(request, fingerprinter, guard, outbox, outside)
    else:
        for index, value in enumerate(request.values):
            guard.enter(index, index + 1, len(value or b""))
            outbox.add(guard.run(fingerprinter.message, value, guard.page_bytes))
            if request.careful:
                outbox.flush()
    guard.rest()
    outbox.flush()


def _compare(request: CompareRequest, comparer: PageComparer, guard: Guard, outbox: _Outbox) -> None:
    # Two pages and all their shingles take longer than one page, so the largest page's time is allowed.
    guard.enter(0, 2, guard.page_bytes)
    comparison = guard.run(comparer.compare, request.anchor, request.page, guard.page_bytes)
    guard.rest()
    if isinstance(comparison, Row):
        outbox.add(comparison)
        outbox.flush()
    else:
        outbox.say(CompareResponse(comparison))


def _answer_together(
    request: FingerprintRequest,
    fingerprinter: BatchFingerprinter,
    guard: Guard,
    outbox: _Outbox,
    outside: Outside,
) -> None:
    """Read pages one by one and fingerprint them in batches, at half the cost. If a batch kills the process,
    the parent sends its pages again in a careful request, one at a time."""
    read: list[ReadPage | Row] = []
    first, size, began, since = 0, 0, time.process_time(), time.monotonic()

    def finish() -> None:
        nonlocal read, first, size, began, since
        _finish(read, first, fingerprinter, guard, outbox)
        first += len(read)
        read, size, began, since = [], 0, time.process_time(), time.monotonic()

    def report(error: UnavailableError) -> None:
        finish()  # earlier pages need not wait for this one
        outbox.flush()
        outbox.say(Unavailable(str(error)))

    for index, value in enumerate(request.values):
        one = _read_page(index, value, fingerprinter, guard, outside, report)
        read.append(one)
        size += 0 if isinstance(one, Row) else len(one.text)
        late = time.process_time() - began > outbox.pause or time.monotonic() - since > MOST_SECONDS
        if request.careful or late or size >= TOGETHER_CHARACTERS:
            finish()
            if request.careful:
                outbox.flush()
    finish()


def _read_page(
    index: int,
    value: bytes | None,
    fingerprinter: BatchFingerprinter,
    guard: Guard,
    outside: Outside,
    report: Callable[[UnavailableError], None],
) -> ReadPage | Row:
    """Read one page, fetching first what it refers to. Fetching is retried without a deadline: an unavailable
    store rejects no page."""
    pause = RETRY_SECONDS
    while True:
        try:
            guard.enter(index, index + 1, len(value or b""))
            page = guard.run(fingerprinter.decode, value, guard.page_bytes, outside)
            if isinstance(page, Row):
                return page
            guard.host(page.url, len(page.html or page.text or page.body or b""))
            return guard.run(fingerprinter.read_page, page)
        except FetchNeededError as wanted:
            try:
                guard.fetch(wanted)
            except UnavailableError as error:
                report(error)
                time.sleep(pause)
                pause = min(2 * pause, MOST_RETRY_SECONDS)
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except Exception as error:
                return failed_row(error)


def _finish(
    read: list[ReadPage | Row],
    first: int,
    fingerprinter: BatchFingerprinter,
    guard: Guard,
    outbox: _Outbox,
) -> None:
    """Fingerprint the pages `read`, the first of which has the index `first` in the request, and queue their
    rows."""
    pages = [(index, one) for index, one in enumerate(read, first) if not isinstance(one, Row)]

    def rows(some: Sequence[tuple[int, ReadPage]]) -> list[Row] | Row:
        size = sum(len(page.text) for _, page in some)
        guard.enter(some[0][0], some[-1][0] + 1, size)
        if len(some) == 1:
            guard.host(some[0][1].url, size)
        return guard.run(fingerprinter.rows, [page for _, page in some])

    made = rows(pages) if pages else []
    if isinstance(made, Row):  # one page of the batch failed: find out which
        alone = [rows([page]) for page in pages]
        made = [one if isinstance(one, Row) else one[0] for one in alone]
    made_rows = iter(made)
    for one in read:
        outbox.add(one if isinstance(one, Row) else next(made_rows))


class _Outbox:
    """Sends rows to the parent, from a thread, so that a slow page does not delay the rows before it."""

    def __init__(self, pipe: BinaryIO, guard: Guard) -> None:
        self._guard = guard
        self.pause = CHILD_BATCHING_SECONDS
        """Batching delay in seconds, of pages and then of rows."""
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

    def say(self, message: Unavailable | SchemaRequest | CompareResponse) -> None:
        """Send a message other than rows at once."""
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
                except BaseException:  # rows would be lost silently with this thread
                    os._exit(OUT_OF_MEMORY)
            elif stalled := self._guard.stalled:
                self.say(Unavailable(stalled, stalled=True))
                os._exit(STALLED)
            elif os.getppid() != parent:
                os._exit(0)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes for rows and for requests. Redirects stdout to stderr, so that a library's output cannot
    corrupt frames."""
    rows_out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for pipe in (rows_out, sys.stdin):
        with suppress(OSError):  # the user's limit for pipes is reached, or it is not a pipe
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return rows_out, sys.stdin.buffer


def _set_signals() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the parent handles them and then closes stdin
        signal.signal(ignored, signal.SIG_IGN)
    ending = {signal.SIGALRM, signal.SIGPROF}
    for each in ending:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)


@contextmanager
def _progress_to(pipe: BinaryIO) -> Iterator[None]:
    """Context manager that sends lines about compiling to the parent."""
    compiler, handler = logging.getLogger(COMPILER), logging.Handler()
    handler.emit = lambda record: _write(pipe, Compiling(record.getMessage()))  # type: ignore[method-assign]
    compiler.addHandler(handler)
    compiler.propagate = False
    try:
        yield
    finally:
        compiler.removeHandler(handler)
        compiler.propagate = True


def _set_limits(memory: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)


def _make(configuration: ChildConfiguration) -> MessageFingerprinter:
    module, _, name = configuration.fingerprinter.rpartition(".")
    made: MessageFingerprinter = getattr(importlib.import_module(module), name)(
        configuration.scheme, configuration.seed
    )
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
    """A message encoded as a frame."""
    content = _ENCODER.encode(message)
    return len(content).to_bytes(LENGTH, "big") + content


_ENCODER = msgspec.msgpack.Encoder()
_CONFIGURATION = msgspec.msgpack.Decoder(ChildConfiguration)
_REQUEST = msgspec.msgpack.Decoder(FingerprintRequest | CompareRequest)
_SCHEMA_RESPONSE = msgspec.msgpack.Decoder(SchemaResponse)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the parent is gone
        os._exit(0)
