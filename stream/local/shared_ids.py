"""Ids that an index has with other texts. Of another dump, they would take the place of its pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from stream.errors import SettingsError
from stream.fingerprint.row import Row
from stream.local.index import Index
from stream.local.scan import ROWS, MessagesWithOrigins, fingerprint_messages, rows_id
from stream.messages.verdict import Origin
from stream.pages.columns import ID_URL
from stream.settings import Settings
from stream.sources.compressed import is_read_once
from stream.sources.rows import RowsSource
from stream.sources.source import Message, Source


async def refuse_other_pages(
    settings: Settings, index: Index, directory: Path, sources: Sequence[Source]
) -> None:
    """Raise SettingsError if pages of the sources have ids that the index in a directory has with other
    texts. Nothing is added. It reads the ids of all pages, and fingerprints those of known ids."""
    count, first = 0, ""
    for source in sources if len(index) else ():
        async with aclosing(_read_shared(settings, index, source)) as batches:
            async for rows, origins in batches:
                for row, origin, changed in zip(rows, origins, index.are_changed(rows), strict=True):
                    if changed:
                        count += 1
                        first = first or f"{unquote((row.url or '')[len(ID_URL) :])} ({origin})"
    if count:
        raise SettingsError(
            f"index {directory}: has {count:,} of these ids with other texts, first {first}; other pages need"
            " other ids, such as --id-prefix 2026-02-; if they are the same pages in new versions, add"
            " --same-pages"
        )


async def _read_shared(
    settings: Settings, index: Index, source: Source
) -> AsyncGenerator[tuple[Sequence[Row], Sequence[Origin]], None]:
    """Yield rows and origins of the pages whose ids the index has."""
    if isinstance(source, RowsSource):
        if index.judged(rows_id(source)):
            return  # a run was killed, which had found none
        coming = source.placed(index.scheme)
        while some := list(islice(coming, ROWS)):
            shared = index.find_ids([each.row.url for each in some])
            places = [each for each in some if each.row.url in shared]
            yield (
                [each.row for each in places],
                [Origin(place.source, f"row {place.position + 1}") for place, _, _ in places],
            )
    elif source.columns.has_ids:
        if is_read_once(source.name):
            raise SettingsError(
                f"source {source.name}: cannot be read twice, as its ids are looked up in the index before"
                " its pages are judged; name a file, or add --same-pages if its ids name the same pages"
            )
        messages = MessagesWithOrigins(_with_shared_ids(index, source))
        async with aclosing(fingerprint_messages(settings, index.scheme, index.seed, messages)) as chunks:
            async for chunk in chunks:
                yield messages.take(chunk)


def _with_shared_ids(index: Index, messages: Iterable[Message]) -> Iterator[Message]:
    coming = iter(messages)
    while some := list(islice(coming, ROWS)):
        shared = index.find_ids([each.url_hint for each in some])
        yield from (each for each in some if each.url_hint in shared)
