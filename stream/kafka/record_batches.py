"""Encodes columns as Kafka record batches, for `AIOKafkaProducer.send_batch`.

aiokafka's own builder appends single records in Python, and compresses in the event loop. Here, a compiled
loop writes all records. It and the compression release the GIL, so both can run in threads.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import cramjam
import numpy as np
from aiokafka.record.util import calc_crc32c
from numpy.typing import NDArray

from stream.compiled import compiled, copy_bytes
from stream.messages.byte_strings import StringColumn, Texts

Headers = Sequence[tuple[str, bytes]]

_LEVEL: Final = 1
"""Level of zstd. On verdicts, Kafka's default of 3 takes a third longer and saves nothing."""
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10
# Format: https://kafka.apache.org/documentation/#recordbatch. Length and checksum cover what follows them.
_HEAD: Final = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC-32C
_BODY: Final = struct.Struct(">hiqqqhii")
"""Attributes, last offset, first and last timestamp, producer id and epoch, sequence, count."""
_LENGTH_END: Final = 12
_OVERHEAD: Final = 32
"""Upper bound for the bytes of a record besides its key, value and headers."""


class RecordBatch:
    """An encoded record batch with the interface of aiokafka's `BatchBuilder` that its producer uses."""

    def __init__(self, records: memoryview, count: int, *, transactional: bool = True) -> None:
        """`records` are encoded, but not compressed."""
        self._count, self._time = count, int(time.time() * 1000)
        small = bytes(cramjam.zstd.compress(records, level=_LEVEL))
        self._records, codec = (small, _ZSTD) if len(small) < len(records) else (bytes(records), 0)
        self._attributes = codec | (_TRANSACTIONAL if transactional else 0)
        self._producer: tuple[int, int, int] = -1, -1, 0
        self._built: bytes | None = None

    def append(self, **_: object) -> None:
        """Return None, which means that the batch is full."""

    def close(self) -> None:
        """Do nothing, since the batch is always closed."""

    def closed(self) -> bool:
        """Return True."""
        return True

    def record_count(self) -> int:
        """Return the number of records."""
        return self._count

    def size(self) -> int:
        """Return the size in bytes, including the header."""
        return _HEAD.size + _BODY.size + len(self._records)

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = producer_id, producer_epoch, base_sequence

    def _build(self) -> bytes:
        if self._built is None:
            last, now = self._count - 1, self._time
            checked = (
                _BODY.pack(self._attributes, last, now, now, *self._producer, self._count) + self._records
            )
            length = _HEAD.size - _LENGTH_END + len(checked)
            self._built = _HEAD.pack(0, length, -1, 2, calc_crc32c(checked)) + checked
        return self._built


def record_batches(
    keys: StringColumn,
    values: Texts,
    headers: Texts,
    headers_of: NDArray[np.int64],
    limit: int,
    *,
    transactional: bool = True,
) -> list[RecordBatch]:
    """Encode n records in batches of at most `limit` bytes before compression, unless a single record is
    larger.

    Record i has the i-th key and value, and the headers `headers[headers_of[i]]`, encoded by `header_block`.
    """
    count = len(keys.sizes)
    size = np.maximum(keys.sizes, 0).sum() + values.edges[-1] + np.diff(headers.edges)[headers_of].sum()
    out = np.empty(int(size) + _OVERHEAD * count, np.uint8)
    ends, counts = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    room = limit - _HEAD.size - _BODY.size
    made = _write(out, _Records(keys, values, headers, headers_of), room, ends, counts)
    edges, written = ends[: made + 1].tolist(), out.data
    return [
        RecordBatch(written[first:end], records, transactional=transactional)
        for (first, end), records in zip(pairwise(edges), counts[1 : made + 1].tolist(), strict=True)
    ]


def rehearse() -> None:
    """Compile the loops of `record_batches`."""
    record_batches(
        StringColumn.of([None]), Texts.of([b""]), Texts.of([header_block([])]), np.zeros(1, np.int64), 0
    )


def header_block(headers: Headers) -> bytes:
    """Encode the headers of a record."""
    strings = [each for name, value in headers for each in (name.encode(), value)]
    return _varint(len(headers)) + b"".join(_varint(len(each)) + each for each in strings)


def _varint(number: int) -> bytes:
    out = np.empty(10, np.uint8)
    return out[: _put_varint(out, 0, number)].tobytes()


class _Records(NamedTuple):
    keys: StringColumn
    values: Texts
    headers: Texts
    """Blocks of headers, shared by many records."""
    headers_of: NDArray[np.int64]
    """Which block each record has (n,)."""


@compiled
def _write(
    out: NDArray[np.uint8],
    records: _Records,
    room: int,
    ends: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> int:
    """Write records consecutively, and return the number of batches.

    From index 1 on, `ends` and `counts` receive the end and the number of records of each batch.
    """
    keys, values, headers, headers_of = records
    at, batch = 0, 1
    for row in range(len(keys.sizes)):
        head = headers_of[row]
        key, key_size = keys.starts[row], keys.sizes[row]
        value, value_size = values.edges[row], values.edges[row + 1] - values.edges[row]
        block, block_size = headers.edges[head], headers.edges[head + 1] - headers.edges[head]
        # A record starts with attributes and timestamp delta, both 0, and its offset in the batch.
        offset = counts[batch]
        size = 2 + _varint_size(offset) + _varint_size(value_size) + value_size + block_size
        size += _varint_size(key_size) + key_size if key_size >= 0 else 1
        if counts[batch] and at + _varint_size(size) + size - ends[batch - 1] > room:
            size += 1 - _varint_size(offset)
            batch, offset = batch + 1, 0
        at = _put_varint(out, at, size)
        out[at] = out[at + 1] = 0
        at = _put_varint(out, at + 2, offset)
        at = _put_varint(out, at, key_size)
        key_size = max(0, key_size)
        copy_bytes(out, at, keys.data, key, key_size)
        at = _put_varint(out, at + key_size, value_size)
        copy_bytes(out, at, values.data, value, value_size)
        copy_bytes(out, at + value_size, headers.data, block, block_size)
        at += value_size + block_size
        counts[batch] += 1
        ends[batch] = at
    return batch if len(keys.sizes) else 0


@compiled
def _varint_size(number: int) -> int:
    """Return the encoded size of a number >= 0."""
    size, rest = 1, number >> 6
    while rest:
        size, rest = size + 1, rest >> 7
    return size


@compiled
def _put_varint(out: NDArray[np.uint8], at: int, number: int) -> int:
    """Write a zigzag varint at position `at`, and return the position after it."""
    rest = number << 1 ^ number >> 63
    while rest >> 7:
        out[at] = rest & 0x7F | 0x80
        at, rest = at + 1, rest >> 7
    out[at] = rest
    return at + 1
