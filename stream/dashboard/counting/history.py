"""The table of verdicts by URL: compressed blocks of consecutive verdicts, and an index from URLs to blocks.

With a row per URL, nearly every verdict would read, write and send a row. A block is one row for hundreds of
verdicts and takes a tenth of the bytes. The index is only in RocksDB, and rebuilt when blocks are recovered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import cramjam
import msgspec
import numpy as np
import xxhash

from stream.dashboard.counting.faust_internals import database
from stream.dashboard.counting.row_tables import Rewritten, Rows, RowTable
from stream.dashboard.counting.rows import UrlRow
from stream.dashboard.counting.verdict_columns import VerdictColumns, digest_of_url, normal
from stream.messages.verdict import VerdictRecord

if TYPE_CHECKING:
    from stream.dashboard.counting.forgotten import ForgottenPages

KEPT: Final = 8
"""Maximum number of verdicts returned for a URL and partition."""
BLOCK_BYTES: Final = 256 << 10
"""Maximum size of a block's verdicts before compression, except for a single larger verdict."""
SLICE_BYTES: Final = 16 << 20
"""Bytes of RocksDB's files for which the index is compacted in one more piece."""
_INDEX: Final = b"\0"
"""Prefix of index keys. Keys of rows are JSON and never start with it."""
_PLACE_BYTES: Final = 8
_DIGEST_BYTES: Final = 8
_NEWEST: Final = (1 << 64) - 1


class Block(msgspec.Struct, array_like=True):
    """A block of consecutive verdicts of a partition."""

    offsets: bytes
    """Offsets of the verdicts, u64 LE each."""
    digests: bytes
    """Digests of the URL keys, 8 bytes each."""
    verdicts: bytes
    """The verdicts as one JSON array, compressed by zstd."""


class History(RowTable):
    """The table of verdicts by URL."""

    def index_slices(self, partition: int) -> list[tuple[bytes, bytes]]:
        """Return ranges of keys that are an index, together all, to compact one after the other."""
        size = self.assigned_database(partition).property_int_value("rocksdb.estimate-live-data-size")
        count = min(256, 1 + (size or 0) // SLICE_BYTES)
        edges = [_INDEX + bytes([256 * each // count]) for each in range(count)] + [b"\1"]
        return list(pairwise(edges))

    def apply_changelog_batch(self, batch: Iterable[Any]) -> None:
        """Recover rows as Faust does, but index the blocks before Faust records them as recovered."""
        events, before = list(batch), dict[tuple[int, bytes], bytes]()
        for event in events:
            partition, key, value = event.message.partition, event.message.key, event.message.value
            if value is not None and (first := _first(key)) is not None:
                index = dict(_index(first, _BLOCK.decode(value)))
                replaced = before.get((partition, key)) or database(self, partition).get(key)
                self.write(partition, index, self._gone(partition, first, replaced, index))
                before[partition, key] = value
        super().apply_changelog_batch(events)

    def keep(self, batches: Iterable[VerdictColumns]) -> dict[bytes, bytes]:
        """Write verdicts of a partition to RocksDB, and return the rows to send to the changelog.

        Redelivered verdicts overwrite themselves, and may say less of pages that were forgotten meanwhile.
        """
        rows: dict[bytes, bytes] = {}
        for batch in _parts(batches):
            first = int(batch.offsets[0])
            verdicts = bytes(cramjam.zstd.compress(batch.array(), level=1))
            digests = batch.digests.astype(">u8").tobytes()
            block = Block(batch.offsets.astype("<u8").tobytes(), digests, verdicts)
            key, index = _key(batch.partition, first), dict(_index(first, block))
            rows[key] = msgspec.msgpack.encode(block)
            replaced = database(self, batch.partition).get(key)
            gone = self._gone(batch.partition, first, replaced, index)
            self.write(batch.partition, {key: rows[key]} | index, gone)
        return rows

    def of(self, partition: int, url_key: str) -> list[VerdictRecord]:
        """Return the last verdicts of a URL in a partition, newest first."""
        encoded = url_key.encode(errors="replace")
        database = self.assigned_database(partition)
        if database is None:
            return []
        latest: list[VerdictRecord] = []
        begin = _INDEX + xxhash.xxh3_64_digest(encoded)
        entries = database.iter()
        entries.seek(begin)
        while entries.valid() and entries.key().startswith(begin) and len(latest) < KEPT:
            offset = _NEWEST - int.from_bytes(entries.key()[len(begin) :], "big")
            verdict = self._verdict(partition, int.from_bytes(entries.value(), "big"), offset)
            if verdict is not None and normal(verdict.url or "") == url_key:
                latest.append(verdict)
            entries.next()
        entries.status()  # a damaged block is not the end
        ids = {each.id for each in latest}
        (before,) = self.rows(partition, [f'"{partition}/{xxhash.xxh3_128_hexdigest(encoded)}"'.encode()])
        if before is not None:
            latest += [each for each in _BEFORE.decode(before).verdicts if each.id not in ids]
        return latest[:KEPT]

    def without(self, key: bytes, row: bytes, forgotten: ForgottenPages) -> Rewritten | None:
        """Return what takes the place of a block without what its verdicts say of forgotten pages, with its
        index; None if they say nothing of any."""
        if (first := _first(key)) is None:
            before = _BEFORE.decode(row)
            verdicts = [msgspec.json.encode(each) for each in before.verdicts]
            if not any(map(forgotten.forget, verdicts)):
                return None
            before.verdicts = [_VERDICT.decode(forgotten.forget(each) or each) for each in verdicts]
            return Rewritten(msgspec.msgpack.encode(before))
        block = _BLOCK.decode(row)
        raw: list[msgspec.Raw] = _ARRAY.decode(bytes(cramjam.zstd.decompress(block.verdicts)))
        verdicts = [bytes(each) for each in raw]
        changed = {
            place: new for place, each in enumerate(verdicts) if (new := forgotten.forget(each)) is not None
        }
        if not changed:
            return None
        digests = np.frombuffer(block.digests, ">u8").copy()
        for place, new in changed.items():
            verdicts[place] = new
            digests[place] = digest_of_url(_VERDICT.decode(new).url)
        array = b"[" + b",".join(verdicts) + b"]"
        replaced = Block(block.offsets, digests.tobytes(), bytes(cramjam.zstd.compress(array, level=1)))
        index = dict(_index(first, replaced))
        gone = [each for each, _ in _index(first, block) if each not in index]
        return Rewritten(msgspec.msgpack.encode(replaced), index, gone)

    def _gone(self, partition: int, first: int, replaced: bytes | None, index: Rows) -> list[bytes]:
        """Return which keys of the index go with the row of a block that is replaced, if there is one.
        `index` is that of the new block. Entries of other blocks stay."""
        if replaced is None:
            return []
        entries = {key: place for key, place in _index(first, _BLOCK.decode(replaced)) if key not in index}
        stored = database(self, partition).get(list(entries)) if entries else []
        return [key for key, now in zip(entries, stored, strict=True) if now == entries[key]]

    def _verdict(self, partition: int, first: int, offset: int) -> VerdictRecord | None:
        (row,) = self.rows(partition, [_key(partition, first)])
        if row is None:
            return None
        block = _BLOCK.decode(row)
        (place,) = np.flatnonzero(np.frombuffer(block.offsets, "<u8") == offset).tolist() or (None,)
        if place is None:  # the block was overwritten by a shorter one on redelivery
            return None
        verdicts: list[msgspec.Raw] = _ARRAY.decode(bytes(cramjam.zstd.decompress(block.verdicts)))
        return _VERDICT.decode(verdicts[place])


def _parts(batches: Iterable[VerdictColumns]) -> Iterator[VerdictColumns]:
    """Split batches of verdicts into parts of at most BLOCK_BYTES."""
    for batch in batches:
        first = 0
        while first < len(batch):
            most = batch.starts[first] + BLOCK_BYTES
            end = max(first + 1, int(np.searchsorted(batch.ends, most, side="right")))
            yield batch.rows(first, end)
            first = end


def _key(partition: int, first: int) -> bytes:
    return f'"{partition}/@{first}"'.encode()


def _first(key: bytes) -> int | None:
    """Return the offset of a block's first verdict, or None for the key of a `UrlRow` of an earlier
    version."""
    _, mark, offset = key.strip(b'"').partition(b"/@")
    return int(offset) if mark else None


def _index(first: int, block: Block) -> Iterator[tuple[bytes, bytes]]:
    place = first.to_bytes(_PLACE_BYTES, "big")
    offsets = np.frombuffer(block.offsets, "<u8")
    keys = np.empty((len(offsets), 2), ">u8")
    keys[:, 0] = np.frombuffer(block.digests, ">u8")
    keys[:, 1] = _NEWEST - offsets  # sorts the newest first
    written, size = keys.tobytes(), _DIGEST_BYTES + _PLACE_BYTES
    for at in range(0, len(written), size):
        yield _INDEX + written[at : at + size], place


_BLOCK = msgspec.msgpack.Decoder(Block)
_BEFORE = msgspec.msgpack.Decoder(UrlRow)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_VERDICT = msgspec.json.Decoder(VerdictRecord)
