"""The dashboard's state in one RocksDB: counts of windows and clusters, the verdicts themselves, and up to
which offsets they are counted. The topic of verdicts is its write-ahead log.

| family | key | value |
|---|---|---|
| `totals` | size (u32) and start (u64) of a window | `Counts` |
| `hosts` | the same, and the host | `Counts` |
| `clusters` | cluster | `ClusterRow` |
| `blocks` | partition (u32), offset of the first verdict (u64) | `history.Content` |
| `urls` | digest of a URL key (u64), partition (u32), inverted offset (u64) | first offset of the block |
| `default` | `meta`; and what is forgotten (`stream.dashboard.counting.forgotten`) | `Meta` |

Integers are big-endian.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from stream.dashboard.counting.fold import by_window
from stream.dashboard.counting.history import Block, block_in, index_prefix, key_of_block, place_in_index
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.rows import ClusterRow, Counts
from stream.dashboard.counting.verdict_columns import VerdictColumns, normal
from stream.dashboard.counting.view import View
from stream.dashboard.counting.windows import HOSTS, TOTALS, Window
from stream.figures import LAYOUT, META_DECODER, Meta
from stream.messages.verdict import VerdictRecord
from stream.settings import MIB
from stream.tables.store.failures import TranslatedErrors, damage_error
from stream.tables.store.meta_record import META, begun
from stream.tables.store.rocks import CLUSTERS, DEFAULT, URLS, Store, Writes

_, WINDOWS, HOST_WINDOWS, _, BLOCKS, _ = LAYOUT.families
CACHE: Final = 16 * MIB
KEPT: Final = 8
"""Maximum number of verdicts returned for a URL and partition."""
ERASE_SECONDS: Final = 0.1
"""Time in which rows are searched for pages to erase, before others may write."""
_WINDOW: Final = struct.Struct(">IQ")
_LAST_OFFSET: Final = (1 << 64) - 1


class State:
    """A dashboard's state, open to be written."""

    def __init__(self, store: Store, meta: Meta) -> None:
        self.store: Final = store
        self.meta = meta
        self._lock = threading.Lock()
        """Held while the metadata are replaced."""

    @classmethod
    def open(cls, path: Path, fresh: Meta) -> Self:
        """Open a state, or create one that begins as `fresh`. Raises StateError for one of another journal or
        topic."""
        store = Store(path, CACHE, layout=LAYOUT)
        try:
            return cls(store, begun(store, META_DECODER, fresh, _OWNERS, LAYOUT.families, _CURE))
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Flush, and release the directory."""
        self.store.flush_and_close()

    # Reading.

    def show_in(self, view: View, turn: Callable[[], None]) -> None:
        """Let a view show all that is counted. `turn` is called for each row."""
        for family in (WINDOWS, HOST_WINDOWS):
            for key, value in self.store.scan(family):
                turn()
                size, start = _WINDOW.unpack_from(key)
                host = key[_WINDOW.size :].decode(errors="surrogatepass")
                view.show((start, size), host, _COUNTS.decode(value))
        for key, value in self.store.scan(CLUSTERS):
            turn()
            view.show_cluster(key.decode(), _CLUSTER.decode(value))

    def host_counts(self, window: Window, host: str) -> Counts:
        """Return the counts of a host and window."""
        (value,) = self.store.get(HOST_WINDOWS, [_key(window, host)])
        return Counts() if value is None else _COUNTS.decode(value)

    def cluster(self, cluster: str) -> ClusterRow:
        """Return what is known of a cluster. It has no members if it is unknown."""
        (value,) = self.store.get(CLUSTERS, [cluster.encode(errors="replace")])
        return ClusterRow() if value is None else _CLUSTER.decode(value)

    def history(self, url_key: str) -> list[VerdictRecord]:
        """Return the last verdicts of a URL, of each partition the last KEPT, newest first."""
        verdicts: list[VerdictRecord] = []
        for partition in self.meta.positions:
            prefix = index_prefix(partition, url_key)
            entries = self.store.some(URLS, prefix, KEPT)
            for key, place in takewhile(lambda entry: entry[0].startswith(prefix), entries):  # noqa: B023
                first, offset = place_in_index(key, place)
                block_key = key_of_block(partition, first)
                (row,) = self.store.get(BLOCKS, [block_key])
                if row is None:
                    raise damage_error(self.store.path, f"no block {first} of partition {partition}")
                verdict = block_in(block_key, row).verdict(offset)
                if normal(verdict.url or "") == url_key:
                    verdicts.append(verdict)
        return sorted(verdicts, key=lambda verdict: verdict.decided_at, reverse=True)

    def newest(self, verdicts: int) -> list[VerdictColumns]:
        """Return the newest verdicts of each partition, whole blocks with so many together, or all."""
        batches = list[VerdictColumns]()
        with TranslatedErrors(self.store.path):
            for partition in self.meta.positions:
                each, seen = self.store.iterator(BLOCKS), 0
                each.seek_for_prev(key_of_block(partition, _LAST_OFFSET))
                while each.valid() and seen < verdicts:
                    block = block_in(each.key(), each.value())
                    if block.partition != partition:
                        break
                    batches.append(block.columns())
                    seen += len(batches[-1])
                    each.prev()
                each.status()  # raises if a bad block ended the search
        return batches

    # Writing.

    def fold(self, pending: Pending, view: View, now: float) -> list[Callable[[], None]]:
        """Count pending verdicts, all of them or none. Returns what lets the view show them."""
        writes, shows = self.store.batch(), list[Callable[[], None]]()
        for block in pending.blocks:
            writes.put(BLOCKS, block.key, block.row)
            writes.put_many(URLS, block.entries())
        for family, kept in ((WINDOWS, TOTALS), (HOST_WINDOWS, HOSTS)):
            news = by_window(pending.sum, kept, now, of_hosts=family == HOST_WINDOWS)
            keys = [_key(*each) for each in news]
            for place, key, value in zip(news, keys, self.store.get(family, keys), strict=True):
                counts = news[place]
                if value is not None:
                    counts.add(_COUNTS.decode(value))
                writes.put(family, key, msgspec.msgpack.encode(counts))
                shows.append(partial(view.show, *place, counts))
        clusters = pending.sum.clusters
        rows = self.store.get(CLUSTERS, [each.encode() for each in clusters])
        for (cluster, joined), value in zip(clusters.items(), rows, strict=True):
            row = ClusterRow() if value is None else _CLUSTER.decode(value)
            row.add(joined)
            writes.put(CLUSTERS, cluster.encode(), msgspec.msgpack.encode(row))
            shows.append(partial(view.show_cluster, cluster, row))
        self.write(
            writes,
            positions=self.meta.positions | pending.ends,
            since=max(self.meta.since, pending.since),
            cleared=min(self.meta.cleared, pending.forgotten),
        )
        return shows

    def write(self, writes: Writes, **changes: Any) -> None:
        """Apply writes together with changes of the metadata."""
        with self._lock:
            meta = msgspec.structs.replace(self.meta, **changes)
            writes.put(DEFAULT, META, msgspec.msgpack.encode(meta))
            self.store.write(writes)
            self.meta = meta

    def expire(self, now: float) -> None:
        """Remove the windows whose time is over."""
        writes = self.store.batch()
        for family, kept in ((WINDOWS, TOTALS), (HOST_WINDOWS, HOSTS)):
            for size, retention in kept.items():
                end = max(0, int(now) - retention - size + 1)
                writes.delete_range(family, _key((0, size)), _key((end, size)))
        self.store.write(writes)

    # Erasing.

    @property
    def is_erased(self) -> bool:
        """Whether nothing is left of all that was forgotten."""
        return self.meta.cleared == self.meta.forgotten

    @property
    def erasable(self) -> int:
        """The offset before which decisions forgot what is gone once it is removed and compacted."""
        return self.meta.forgotten

    def erase_some(
        self,
        family: str,
        start: bytes,
        names: Callable[[str | None, str], bool],
        rewrite: Callable[[bytes], bytes | None],
    ) -> tuple[list[tuple[bytes, ClusterRow | Block]], bytes | None]:
        """Remove what blocks or clusters say of some pages, as `Block.rewritten` and `ClusterRow.erase` do,
        from a key on, for ERASE_SECONDS. Nobody else may write meanwhile. Returns the keys and what is left
        of the rows, and the key at which to go on; None at the end."""
        began, writes = time.monotonic(), self.store.batch()
        changed = list[tuple[bytes, ClusterRow | Block]]()
        after: bytes | None = None
        for key, value in self.store.scan(family, start):
            if family == CLUSTERS:
                row = _CLUSTER.decode(value)
                if row.erase(names, key.decode()):
                    writes.put(CLUSTERS, key, msgspec.msgpack.encode(row))
                    changed.append((key, row))
            elif (new := (block := block_in(key, value)).rewritten(rewrite)) is not None:
                writes.put(BLOCKS, key, new.row)
                writes.delete_many(URLS, (entry for entry, _ in block.entries()))
                writes.put_many(URLS, new.entries())
                changed.append((key, new))
            if time.monotonic() > began + ERASE_SECONDS:
                after = key + b"\0"
                break
        self.store.write(writes)
        return changed, after

    def compact(self) -> None:
        """Rewrite the files that may have what was removed. Takes minutes."""
        self.store.flush()
        for family in (BLOCKS, URLS, CLUSTERS):
            self.store.compact(family)

    def note_erased(self, erased: int) -> None:
        """Note that nothing is left of what decisions before an offset forgot."""
        self.write(self.store.batch(), cleared=erased)


def _key(window: Window, host: str = "") -> bytes:
    start, size = window
    return _WINDOW.pack(size, start) + host.encode(errors="surrogatepass")


_OWNERS: Final = {
    "cluster": "bootstrap_servers",
    "journal": "namespace",
    "topic": "the topic of verdicts",
}
_CURE: Final = ": what the topic of verdicts still has is counted again"
_COUNTS: Final = msgspec.msgpack.Decoder(Counts)
_CLUSTER: Final = msgspec.msgpack.Decoder(ClusterRow)
