"""Encoded record batches equal those of aiokafka's own builder, and its producer accepts them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from aiokafka import TopicPartition
from aiokafka.producer import message_accumulator
from aiokafka.producer.message_accumulator import BatchBuilder, MessageBatch
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.kafka import record_batches as module
from stream.kafka.record_batches import RecordBatch, header_block, record_batches
from stream.messages.byte_strings import StringColumn, Texts

HEADERS: list[list[tuple[str, bytes]]] = [
    [], [("verdict", b"unique")], [("scheme", bytes(200)), ("ü", b"")],
]  # fmt: skip
SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 8190, 8191, 8192])
RECORDS = st.lists(st.tuples(st.none() | SIZES, SIZES, st.integers(0, 2)), min_size=1, max_size=130)
Records = list[tuple[int | None, int, int]]


def columns(records: Records) -> tuple[list[bytes | None], list[bytes], list[int]]:
    keys = [None if size is None else b"k" * size for size, _, _ in records]
    return keys, [b"v" * size for _, size, _ in records], [which for _, _, which in records]


def ours(records: Records, limit: int) -> list[RecordBatch]:
    keys, values, which = columns(records)
    blocks = Texts.of([header_block(headers) for headers in HEADERS])
    return record_batches(StringColumn.of(keys), Texts.of(values), blocks, np.array(which, np.int64), limit)


def theirs(records: Records, limit: int) -> list[BatchBuilder]:
    batches: list[BatchBuilder] = []
    for key, value, which in zip(*columns(records), strict=True):
        record: dict[str, Any] = {"timestamp": 7, "key": key, "value": value, "headers": HEADERS[which]}
        if not batches or batches[-1].append(**record) is None:
            batches.append(BatchBuilder(limit, 0, is_transactional=1))
            batches[-1].append(**record)
    return batches


def read(value: bytes) -> list[tuple[Any, ...]]:
    batch = MemoryRecords(bytes(value)).next_batch()
    assert batch.validate_crc()
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in batch]


@given(records=RECORDS, limit=st.sampled_from([1, 300, 8192, 20_000, 900_000]))
@settings(max_examples=60)
def test_batches_equal_those_of_the_builder(records: Records, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module.time, "time", lambda: 0.007)
        patched.setattr(module.cramjam.zstd, "compress", lambda data, level: bytes(data))
        made = ours(records, limit)
    wanted = theirs(records, limit)
    for one, other in zip(made, wanted, strict=True):
        one._set_producer_state(2**40, 3, 5)
        other._set_producer_state(2**40, 3, 5)
        assert one.record_count() == other.record_count()
        assert one.size() == other.size()
        assert one._build() == bytes(other._build())


async def test_the_producer_asks_a_batch_for_nothing_else() -> None:
    source = inspect.getsource(message_accumulator)
    asked = set(re.findall(r"\b_?builder\.(\w+)", source.partition("class MessageBatch")[2]))
    assert asked <= set(dir(RecordBatch))
    (built,) = ours([(1, 1, 0)], 300)
    batch = MessageBatch(TopicPartition("t", 0), built, 1.0, 1.0)
    assert batch.append(None, b"", 0) is None, "it is full"
    assert (batch.is_empty(), batch.record_count, batch.remaining_linger()) == (False, 1, None)
    batch.set_producer_state(1, 2, 3)
    assert read(batch.get_data_buffer())[0][2:4] == (b"k", b"v")
    assert batch.get_data_buffer() is batch.get_data_buffer(), "a retry sends the same bytes"
