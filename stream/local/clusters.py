"""The clusters of an index: how many pages each has, and from which sources.

Members are the newest pages of their URLs, as the index has them: what was removed, or replaced by a later
page of its URL, does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from stream.errors import StateError
from stream.judge.ids import show
from stream.judge.state.labels import Labels
from stream.judge.state.page_log import URL_DIGEST, PageLog
from stream.judge.state.reader import StateReader
from stream.judge.state.references import ANCHOR, DUPLICATE, references_to
from stream.local.index import read_genesis
from stream.sinks.report import format_of, write_rows, writing_report
from stream.stores.objects import AnyPath
from stream.tables.arrays import I64
from stream.tables.store.rocks import INDEX, Store

CHUNK: Final = 1 << 12
"""Pages read at once."""
_CACHE: Final = 8 << 20


class Cluster(NamedTuple):
    """A cluster that has at least one page."""

    id: str
    url: str | None
    """That of its anchor; None if it was removed."""
    size: int
    """Pages, each the newest of its URL."""
    sources: dict[str, int]
    """Source -> its pages."""


SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("url", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("sources", pa.map_(pa.string(), pa.int64())),
    ]
)
"""Types of the fields of a Cluster in a table."""


def clusters_of(directory: Path) -> Iterator[Cluster]:
    """Yield the clusters of an index as of its last flush, in the order of their anchors. It takes 50 bytes
    of memory for each page. Raises StateError."""
    genesis = read_genesis(directory)
    path = directory / INDEX
    with Store(path, _CACHE, read_only=True) as store:
        state, labels = StateReader(store, genesis.scheme), Labels(store)
        anchors, duplicates = state.page_logs
        cluster, label = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for kind, log in ((ANCHOR, anchors), (DUPLICATE, duplicates)):
            for first in range(log.first, log.count, CHUNK):
                pages, members = _newest(state, log, kind, np.arange(first, min(first + CHUNK, log.count)))
                cluster.append(members)
                label.append(labels.of(pages))
        clusters, of_label = np.concatenate(cluster), np.concatenate(label)
        order = np.lexsort((of_label, clusters))
        clusters, of_label = clusters[order], of_label[order]
        starts = np.flatnonzero(np.diff(clusters, prepend=-1))
        urls = _urls(anchors, clusters[starts])
        for start, end in zip(starts.tolist(), np.append(starts, len(clusters))[1:].tolist(), strict=True):
            named, counts = np.unique(of_label[start:end], return_counts=True)
            sources = dict(zip(map(labels.name, named.tolist()), counts.tolist(), strict=True))
            anchor = int(clusters[start])
            yield Cluster(show(genesis.journal, anchor), next(urls), end - start, sources)


def write_clusters(directory: Path, output: AnyPath) -> None:
    """Write a line or row for each cluster of an index, in the format that the name of the output tells.
    Raises StateError and OutputError."""
    with writing_report(output) as file:
        write_rows(file, format_of(output), (each._asdict() for each in clusters_of(directory)), SCHEMA)


def _newest(state: StateReader, log: PageLog, kind: int, numbers: I64) -> tuple[I64, I64]:
    """Return ids and clusters of those pages that are the newest of their URLs."""
    pages = log.pages(numbers)
    digests = pages.url_digests()
    newest = {url: references[0] for url, references in state.references(digests).items()}
    own = references_to(kind, numbers)
    kept = np.flatnonzero(
        np.array([newest.get(url) == each for url, each in zip(digests, own, strict=True)], bool)
    )
    words = pages.words[kept].astype(np.int64)
    return words[:, 0], words[:, 0 if kind == ANCHOR else 1]


def _urls(anchors: PageLog, wanted: I64) -> Iterator[str | None]:
    """Yield the URL of each of these anchors, which are page ids in order."""
    place = 0
    for first in range(anchors.first, anchors.count, CHUNK):
        pages = anchors.pages(np.arange(first, min(first + CHUNK, anchors.count)), keep_urls=True)
        ids = pages.words[:, 0].astype(np.int64)
        end = place + int(np.searchsorted(wanted[place:], ids[-1], "right"))
        there = np.searchsorted(ids, wanted[place:end])
        for at, url in zip(there.tolist(), pages.urls(there).texts(), strict=True):
            yield url if pages.words[at, URL_DIGEST].any() else None
        place = end
    if place < len(wanted):
        raise StateError("index: clusters without anchors")
