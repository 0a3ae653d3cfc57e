"""Judges page messages without a broker, in order, with the same core as a deployment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from stream.children.chunk import CHUNK_BYTES, CHUNK_PAGES
from stream.children.memory import memory_limit, overcommitted
from stream.children.pool import ChildPool, configuration_of
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import BATCH_BYTES
from stream.judge.judged_batch import JudgedBatch
from stream.local.index import Index, RowsId
from stream.messages.verdict import Origin
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import labelled, with_columns_named
from stream.pages.columns import Columns
from stream.pages.outside.schema_registry import registry_of
from stream.settings import Settings
from stream.sources.feed import feed
from stream.sources.rows import RowsSource
from stream.sources.source import Message
from stream.text.surrogates import replace_surrogates

if TYPE_CHECKING:
    from stream.rows.arrow import PlacedRow

PAGES: Final = 512
"""Pages of a batch: they take the judge a third of the time that they take chunk by chunk. More would let
children wait for it."""
PAUSE_SECONDS: Final = 0.1
"""After a pause of the source, pages are judged without waiting for more."""
ROWS: Final = 2048
"""Rows of a batch that comes from a directory of rows: 22 us each; in batches of 512, 34 us."""

log = structlog.get_logger(__name__)


class ScannedBatch(NamedTuple):
    """A judged batch, with the row and the origin of each page, in the order of its verdicts."""

    decided: JudgedBatch
    rows: Sequence[Row]
    origins: Sequence[Origin]

    def json(self) -> list[bytes]:
        """Return the verdicts in JSON, with the origin of each page."""
        encode = msgspec.json.encode
        return [
            b'%b,"origin":%b}' % (verdict[:-1], encode(origin))
            for verdict, origin in zip(self.decided.json(), self.origins, strict=True)
        ]


async def scan(
    settings: Settings,
    messages: Iterable[Message],
    directory: Path,
    *,
    scheme: Scheme | None = None,
    options: VerdictOptions | None = None,
) -> AsyncGenerator[JudgedBatch, None]:
    """Judge `messages` as if they had come through a pages topic with one partition.

    Tables are stored in `directory`, which the caller removes. Yields the decided batches in order.
    """
    with index_in(directory, settings, scheme, options) as index:
        async with aclosing(judge_sources(settings, index, [messages])) as batches:
            async for decided in batches:
                yield decided


def index_in(
    directory: Path, settings: Settings, scheme: Scheme | None, options: VerdictOptions | None
) -> Index:
    """The index in a directory, with the memory that the settings name; logs a warning if children and tables
    could exceed what there is."""
    if wrong := overcommitted(settings, memory_limit(), "tables_memory"):
        log.warning("memory_overcommitted", error=wrong)
    return Index(
        directory,
        scheme=scheme,
        options=options,
        memory=settings.tables_memory,
        generation=settings.tables_generation,
        cache=settings.tables_cache,
    )


async def judge_sources(
    settings: Settings,
    index: Index,
    sources: Sequence[Iterable[Message]],
    before: Callable[[ScannedBatch], None] = lambda scanned: None,
    label: Callable[[str], str] = str,
) -> AsyncGenerator[JudgedBatch, None]:
    """Judge sources one after another with an index, which counts pages by their label, or else by `label` of
    their file. Of a source of rows, those that the index has judged before are skipped.

    `before` is called with each batch before the index stores it. The end of a batch of rows depends only on
    its beginning, so a batch that is judged again after a crash gets the same ids. Raises SchemeMismatchError
    and SettingsError for rows that do not fit the index.
    """
    for are_rows, some in groupby(sources, lambda each: isinstance(each, RowsSource)):
        if not are_rows:
            messages = MessagesWithOrigins(chain.from_iterable(some))
            chunks = fingerprint_messages(settings, index.scheme, index.seed, messages)
            async with aclosing(chunks), aclosing(_batches(chunks)) as batches:
                async for batch in batches:
                    rows, origins = messages.take(batch)
                    labels = _labels(rows, origins, label)
                    yield index.judge(rows, before=_with_origins(before, rows, origins), labels=labels)
            continue
        for source in some:
            if not isinstance(source, RowsSource):
                raise TypeError(source)
            identity = rows_id(source)
            coming = source.placed(index.scheme, index.judged(identity))
            while placed := _next_batch(coming):
                rows = [each.row for each in placed]
                origins = [Origin(place.source, f"page {place.position + 1}") for place, _, _ in placed]
                labels = _labels(rows, origins, label)
                yield index.judge(rows, identity, _with_origins(before, rows, origins), labels)


def _labels(rows: Sequence[Row], origins: Sequence[Origin], of_file: Callable[[str], str]) -> list[str]:
    return [
        of_file(origin.file) if row.label is None else row.label
        for row, origin in zip(rows, origins, strict=True)
    ]


def _with_origins(
    before: Callable[[ScannedBatch], None], rows: Sequence[Row], origins: Sequence[Origin]
) -> Callable[[JudgedBatch], None]:
    return lambda decided: before(ScannedBatch(decided, rows, origins))


class MessagesWithOrigins:
    """Messages whose origins are kept until their rows come: a thread reads the messages."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = messages
        self._origins: deque[tuple[Origin, Columns, str | None]] = deque()

    def __iter__(self) -> Iterator[Message]:
        for message in self._messages:
            origin = Origin(replace_surrogates(message.file), message.place)
            columns = message.columns
            self._origins.append((origin, columns, columns.label_of(message.value)))
            yield message

    def take(self, rows: Sequence[Row]) -> tuple[list[Row], list[Origin]]:
        """Return the rows of the next messages, whose details name the columns of the source, and their
        origins."""
        taken = [self._origins.popleft() for _ in rows]
        named = [
            labelled(with_columns_named(row, columns), label)
            for row, (_, columns, label) in zip(rows, taken, strict=True)
        ]
        return named, [origin for origin, _, _ in taken]


def _next_batch(rows: Iterator[PlacedRow]) -> list[PlacedRow]:
    """Return ROWS rows, or fewer that end with the one that brings them to BATCH_BYTES."""
    batch: list[PlacedRow] = []
    size = 0
    for placed in islice(rows, ROWS):
        batch.append(placed)
        size += _url_bytes(placed.row)
        if size >= BATCH_BYTES:
            break
    return batch


def _url_bytes(row: Row) -> int:
    """Bytes of a row's URL, which are nearly all bytes of a large row."""
    return len(row.url.encode()) if row.url else 0


async def _batches(chunks: AsyncGenerator[list[Row], None]) -> AsyncGenerator[list[Row], None]:
    """Yield rows in batches of at least PAGES or BATCH_BYTES, or of those that came before a pause or an
    error."""
    batch: list[Row] = []
    size = 0
    coming = asyncio.ensure_future(anext(chunks, None))
    try:
        while True:
            await asyncio.wait([coming], timeout=PAUSE_SECONDS if batch else None)
            ended = coming.done() and (coming.exception() is not None or coming.result() is None)
            if coming.done() and not ended:
                rows = coming.result() or []
                batch += rows
                size += sum(map(_url_bytes, rows))
                coming = asyncio.ensure_future(anext(chunks, None))
                if len(batch) < PAGES and size < BATCH_BYTES:
                    continue
            if not batch:
                await coming  # raises what the source raised
                return
            yield batch
            batch, size = [], 0
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def rows_id(source: RowsSource) -> RowsId:
    """The identity of rows in an index: their content, wherever they lie."""
    return RowsId("rows", source.digest)


async def fingerprint_messages(
    settings: Settings, scheme: Scheme, seed: bytes, messages: Iterable[Message]
) -> AsyncGenerator[list[Row], None]:
    """Fingerprint the messages in child processes, and yield their rows in order.

    At most `2 * worker_processes + 1` chunks are in flight. A single chunk starts a single process.
    """
    configuration = configuration_of(settings, scheme, seed)
    under_way: deque[asyncio.Task[list[Row]]] = deque()
    registry = registry_of(settings)
    async with ChildPool(settings.worker_processes, configuration, registry, at_once=False) as pool:
        try:
            async with aclosing(_chunks(messages)) as chunks:
                async for chunk in chunks:
                    under_way.append(asyncio.create_task(pool.fingerprint(chunk)))
                    if len(under_way) > 2 * settings.worker_processes:
                        yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:  # the consumer may have stopped early
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)


async def _chunks(messages: Iterable[Message]) -> AsyncGenerator[list[bytes | None], None]:
    chunk: list[bytes | None] = []
    size = 0
    async with aclosing(feed(messages)) as batches:
        async for batch in batches:
            for message in batch:
                chunk.append(message.value)
                size += len(message.value)
                if len(chunk) == CHUNK_PAGES or size >= CHUNK_BYTES:
                    yield chunk
                    chunk, size = [], 0
    if chunk:
        yield chunk
