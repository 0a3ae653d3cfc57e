"""Folds sums of verdicts into the tables and the view, in slices of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import structs

from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.row_tables import Rewritten, Rows, RowTable
from stream.dashboard.counting.rows import ClusterRow, Counts, WindowRow, fold_cluster, fold_window
from stream.dashboard.counting.verdict_columns import ClusterNews, Sum
from stream.dashboard.counting.view import View, Window
from stream.dashboard.counting.windows import HOSTS, TOTALS, expired

SLICE: Final = 500
"""Rows folded before other tasks run: some milliseconds."""
T = TypeVar("T")
TableT = TypeVar("TableT", bound="FoldTable")


class FoldTable(Protocol):
    """The methods of a table that folding uses; implemented by `RowTable`."""

    def rows(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def write(self, partition: int, rows: Rows) -> None: ...


class ClusterTable(RowTable):
    """The table of clusters."""

    def without(self, key: bytes, row: bytes, forgotten: ForgottenPages) -> Rewritten | None:
        """Return what takes the place of a row without what it says of forgotten pages; None if it says
        nothing of any."""
        stored, is_named = cluster_row(row), forgotten.names
        changed = structs.replace(
            stored,
            anchor="" if is_named(stored.anchor, cluster_of(key)) else stored.anchor,
            pages=[each for each in stored.pages if not is_named(each.url, each.id)],
        )
        return None if changed == stored else Rewritten(msgspec.msgpack.encode(changed))


class Folder(Generic[TableT]):
    """Folds sums into the tables and the view."""

    def __init__(self, totals: TableT, hosts: TableT, clusters: TableT, view: View) -> None:
        self._totals, self._hosts, self._clusters, self._view = totals, hosts, clusters, view

    def fold(self, partition: int, increment: Sum) -> Iterator[tuple[TableT, dict[bytes, bytes]]]:
        """Fold a sum slice by slice. After each slice, tables and view agree.

        Yields the table and the rows that were written, for its changelog. Rows are also yielded if they
        contain the sum already, because a crash may have kept them from the changelog.
        """
        now, last, view = time.time(), increment.last, self._view
        hosts = [
            (window_key(partition, window, host), news, partial(view.count_host, window, host))
            for (window, host), news in _by_host(increment, now).items()
        ]
        yield from _windows(self._hosts, partition, last, hosts)
        for group in _slices(list(increment.clusters.items())):
            yield self._clusters, self._fold_clusters(partition, last, group)
        totals = [
            (window_key(partition, window), news, partial(view.count_total, window))
            for window, news in _by_window(increment, now).items()
        ]
        yield from _windows(self._totals, partition, last, totals)

    def _fold_clusters(
        self, partition: int, last: int, group: list[tuple[str, ClusterNews]]
    ) -> dict[bytes, bytes]:
        keys = [cluster_key(partition, cluster) for cluster, _ in group]
        rows: dict[bytes, bytes] = {}
        grown: list[tuple[str, int, str]] = []
        for key, (cluster, news), value in zip(
            keys, group, self._clusters.rows(partition, keys), strict=True
        ):
            row = cluster_row(value)
            if fold_cluster(row, news, last):
                grown.append((cluster, news.members, row.anchor))
            rows[key] = msgspec.msgpack.encode(row)
        self._clusters.write(partition, rows)
        for cluster, members, anchor in grown:
            self._view.count_cluster(cluster, members, anchor)
        return rows


def _windows(
    table: TableT, partition: int, last: int, news: Sequence[tuple[bytes, Counts, Callable[[Counts], None]]]
) -> Iterator[tuple[TableT, dict[bytes, bytes]]]:
    for group in _slices(news):
        rows: dict[bytes, bytes] = {}
        grown = []
        values = table.rows(partition, [key for key, _, _ in group])
        for (key, counts, add), value in zip(group, values, strict=True):
            row = window_row(value)
            if fold_window(row, counts, last):
                grown.append((add, counts))
            rows[key] = msgspec.msgpack.encode(row)
        table.write(partition, rows)
        for add, counts in grown:
            add(counts)
        yield table, rows


def _by_window(increment: Sum, now: float) -> dict[Window, Counts]:
    windows: dict[Window, Counts] = {}
    for tick, shape, pages in increment.totals():
        seconds = tick * min(TOTALS)
        for size, retention in TOTALS.items():
            window = seconds // size * size, size
            if not expired(window, retention, now):
                windows.setdefault(window, Counts()).count(shape, pages)
    return windows


def _by_host(increment: Sum, now: float) -> dict[tuple[Window, str], Counts]:
    minutes: dict[tuple[int, str], Counts] = {}
    for minute, host, shape, pages in increment.hosts():
        minutes.setdefault((minute, host), Counts()).count(shape, pages)
    windows: dict[tuple[Window, str], Counts] = {}
    for (minute, host), counts in minutes.items():
        seconds = minute * min(HOSTS)
        for size, retention in HOSTS.items():
            window = seconds // size * size, size
            if not expired(window, retention, now):
                before = windows.get((window, host))
                windows[window, host] = counts if before is None else before + counts
    return windows


def _slices(each: Sequence[T]) -> Iterator[list[T]]:
    rest = iter(each)
    while group := list(islice(rest, SLICE)):
        yield group


def window_key(partition: int, window: Window, host: str = "") -> bytes:
    """Encode the key of a windowed table as Faust does."""
    start, size = window
    return f"[{_string(partition, host)},[{start}.0,{start + size}.0]]".encode()


def cluster_key(partition: int, cluster: str) -> bytes:
    """Encode the key of a table as Faust does."""
    return _string(partition, cluster).encode()


def cluster_of(key: bytes) -> str:
    """Return the cluster whose key this is."""
    name: str = msgspec.json.decode(key)
    return name.partition("/")[2]


def _string(partition: int, name: str) -> str:
    return encode_basestring_ascii(f"{partition}/{name}")


def window_row(value: bytes | None) -> WindowRow:
    """Decode a row, or return an empty one for None."""
    return _WINDOW.decode(value) if value else WindowRow()


def cluster_row(value: bytes | None) -> ClusterRow:
    """Decode a row, or return an empty one for None."""
    return _CLUSTER.decode(value) if value else ClusterRow()


_WINDOW = msgspec.msgpack.Decoder(WindowRow)
_CLUSTER = msgspec.msgpack.Decoder(ClusterRow)
