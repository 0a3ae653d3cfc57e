"""Blocks of verdicts: compressed, with an index from URLs to blocks.

With a row per URL, nearly every verdict would read and write a row. A block is one row for hundreds of
verdicts and takes a tenth of the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import cramjam
import msgspec
import numpy as np
import xxhash

from stream.dashboard.counting.verdict_columns import VerdictColumns, batch_of, digest_of_url
from stream.messages.verdict import VerdictRecord

BLOCK_BYTES: Final = 256 << 10
"""Maximum size of a block's verdicts before compression, except for a single larger verdict."""
_KEY: Final = struct.Struct(">IQ")
_PLACE: Final = struct.Struct(">Q")
_INDEX: Final = np.dtype([("digest", ">u8"), ("partition", ">u4"), ("newest_first", ">u8")])
_NEWEST: Final = (1 << 64) - 1


class Content(msgspec.Struct, array_like=True):
    """The row of a block."""

    offsets: bytes
    """Offsets of the verdicts, u64 LE each."""
    digests: bytes
    """Digests of the URL keys, u64 LE each."""
    verdicts: bytes
    """The verdicts as one JSON array, compressed by zstd."""


class Block(NamedTuple):
    """Consecutive verdicts of a partition."""

    partition: int
    first: int
    """Offset of the first verdict."""
    content: Content

    @property
    def key(self) -> bytes:
        """Its key among blocks."""
        return key_of_block(self.partition, self.first)

    @property
    def row(self) -> bytes:
        """Its encoded content."""
        return msgspec.msgpack.encode(self.content)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield its entries of the index: keys that begin as `index_prefix` says, and the block's place."""
        offsets = np.frombuffer(self.content.offsets, "<u8")
        keys = np.empty(len(offsets), _INDEX)
        keys["digest"], keys["partition"] = np.frombuffer(self.content.digests, "<u8"), self.partition
        keys["newest_first"] = _NEWEST - offsets
        written, place, size = keys.tobytes(), _PLACE.pack(self.first), _INDEX.itemsize
        for at in range(0, len(written), size):
            yield written[at : at + size], place

    def verdict(self, offset: int) -> VerdictRecord:
        """Decode the verdict at an offset, which the block has."""
        (place,) = np.flatnonzero(np.frombuffer(self.content.offsets, "<u8") == offset).tolist()
        return _VERDICT.decode(self._verdicts()[place])

    def columns(self) -> VerdictColumns:
        """Decode all of its verdicts."""
        offsets = np.frombuffer(self.content.offsets, "<u8").tolist()
        return batch_of(self.partition, offsets, list(map(bytes, self._verdicts())))

    def _verdicts(self) -> list[msgspec.Raw]:
        return _ARRAY.decode(bytes(cramjam.zstd.decompress(self.content.verdicts)))

    def rewritten(self, rewrite: Callable[[bytes], bytes | None]) -> Block | None:
        """Return the block with what `rewrite` returns in place of its verdicts; None if that is None for
        all."""
        verdicts = [bytes(each) for each in self._verdicts()]
        changed = {at: new for at, each in enumerate(verdicts) if (new := rewrite(each)) is not None}
        if not changed:
            return None
        digests = np.frombuffer(self.content.digests, "<u8").copy()
        for at, new in changed.items():
            verdicts[at] = new
            digests[at] = digest_of_url(_VERDICT.decode(new).url)
        array = b"[" + b",".join(verdicts) + b"]"
        return self._replace(content=Content(self.content.offsets, digests.tobytes(), _compressed(array)))


def blocks_of(batch: VerdictColumns) -> Iterator[Block]:
    """Yield the verdicts of a batch in blocks of at most BLOCK_BYTES."""
    first = 0
    while first < len(batch):
        most = batch.starts[first] + BLOCK_BYTES
        end = max(first + 1, int(np.searchsorted(batch.ends, most, side="right")))
        part = batch.rows(first, end)
        offsets, digests = part.offsets.astype("<u8").tobytes(), part.digests.astype("<u8").tobytes()
        content = Content(offsets, digests, _compressed(part.array()))
        yield Block(batch.partition, int(part.offsets[0]), content)
        first = end


def block_in(key: bytes, row: bytes) -> Block:
    """The block with this key and row."""
    partition, first = _KEY.unpack(key)
    return Block(partition, first, _CONTENT.decode(row))


def key_of_block(partition: int, first: int) -> bytes:
    """The key of the block whose first verdict has this offset."""
    return _KEY.pack(partition, first)


def index_prefix(partition: int, url_key: str) -> bytes:
    """With what the keys of a URL's verdicts in a partition begin."""
    return xxhash.xxh3_64_digest(url_key.encode(errors="replace")) + partition.to_bytes(4, "big")


def place_in_index(key: bytes, place: bytes) -> tuple[int, int]:
    """The first offset of the block of a verdict, and that of the verdict, by an entry of the index."""
    return _PLACE.unpack(place)[0], _NEWEST - int.from_bytes(key[-_PLACE.size :], "big")


def _compressed(array: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(array, level=1))


_CONTENT = msgspec.msgpack.Decoder(Content)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_VERDICT = msgspec.json.Decoder(VerdictRecord)
