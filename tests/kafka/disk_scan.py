"""Looks for byte strings in everything that a deployment has on disk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cramjam
import numpy as np
from aiokafka.record.memory_records import MemoryRecords

from stream.dashboard.counting.history import block_in
from stream.dashboard.counting.state import BLOCKS, LAYOUT
from stream.messages.journal import Rows, decode_journal
from stream.tables.store.rocks import ELECTOR, Store

LOG: Final = ".log"
"""In the names of a topic's segments, also of those that Kafka is about to remove or to put in place."""
INDEX: Final = frozenset({".index", ".timeindex"})
"""In the names of files of offsets and times, which Kafka makes ten megabytes large."""


@dataclass
class DiskScan:
    """Reads all bytes, as they are and as they are once decompressed, and counts them."""

    size: int = 0

    def files(self, path: Path) -> Iterator[bytes]:
        """The files of a directory, or this one, as they are."""
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            try:
                content = each.read_bytes() if each.is_file() else b""
            except FileNotFoundError:
                continue  # removed just now
            self.size += len(content)
            yield content

    def entries(self, path: Path) -> bytes:
        """Keys and values of a judge's or elector's state directory that no process has open."""
        is_elector = path.name.startswith("elector")
        options = {"layout": ELECTOR} if is_elector else {}
        with Store(path, 1 << 20, read_only=True, **options) as store:
            return self._joined(pair for family in store.families for pair in store.scan(family))

    def dashboard_entries(self, path: Path) -> bytes:
        """Keys and values of a dashboard's figures that no process has open, blocks of verdicts also
        decompressed."""
        with Store(path, 1 << 20, read_only=True, layout=LAYOUT) as store:
            found = [pair for family in store.families for pair in store.scan(family)]
            blocks = [block_in(*each).content.verdicts for each in store.scan(BLOCKS)]
        found += [(bytes(cramjam.zstd.decompress(each)),) for each in blocks]
        return self._joined(found)

    def _joined(self, entries: Iterable[tuple[bytes, ...]]) -> bytes:
        content = b"\n".join(part for entry in entries for part in entry)
        self.size += len(content)
        return content

    def topics_with(self, home: Path, namespace: str, mark: bytes) -> set[str]:
        """The topics of a local broker whose directories have these bytes."""
        found = set[str]()
        for path in sorted((home / "data").glob(f"{namespace}.*-*/*")):
            if INDEX & set(path.suffixes):
                continue
            topic = path.parent.name.rpartition("-")[0]
            if any(mark in part for content in self.files(path) for part in self._parts(path, content)):
                found.add(topic)
        return found

    def _parts(self, path: Path, content: bytes) -> Iterator[bytes]:
        """A file of a topic, and what its batches have, also aborted records and those that later ones
        replace: they are compressed."""
        yield content
        if LOG not in path.suffixes:
            return
        batches = MemoryRecords(content)
        while (batch := batches.next_batch()) is not None:
            if batch.is_control_batch:
                continue
            for record in batch:
                values = [record.key, record.value, *(value for _, value in record.headers)]
                yield self._joined([tuple(each for each in values if each is not None)])
                if ".journal-" in path.parent.name:
                    rows = decode_journal(record.value, record.offset)
                    yield bytes(rows.strings.data) if isinstance(rows, Rows) else b""


def found_in(content: bytes, wanted: Collection[bytes]) -> set[bytes]:
    """Return which byte strings of one size, of at least 8 bytes, content has."""
    (size,) = {len(each) for each in wanted}
    heads = np.unique(np.frombuffer(b"".join(each[:8] for each in wanted), "<u8"))
    found = set[bytes]()
    for shift in range(min(8, len(content) - 7)):
        words = np.frombuffer(content, "<u8", (len(content) - shift) // 8, shift)
        places = np.minimum(np.searchsorted(heads, words), len(heads) - 1)
        for at in np.flatnonzero(heads[places] == words).tolist():
            found.add(content[8 * at + shift : 8 * at + shift + size])
    return found & set(wanted)
