"""Kafka record batches written by a compiled loop: another reader finds the same records."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import msgspec
import numpy as np
from aiokafka.record.memory_records import MemoryRecords

from stream.kafka import record_batches
from stream.kafka.record_batches import header_block
from stream.messages.byte_strings import StringColumn, Texts
from tests.fuzz.decoder import Decoder

SIZES = (0, 1, 63, 64, 127, 128, 300, 8191, 8192, 9000)


class RecordBatches(Decoder):
    """`record_batches` against aiokafka's reader."""

    name: ClassVar = "record batches"
    bytes_alone: ClassVar = False

    def make(self, rng: random.Random) -> bytes:
        def some() -> bytes:
            return rng.randbytes(rng.choice(SIZES[: rng.choice((3, 8, 10))]))

        count = rng.choice((1, 2, 9))
        blocks = [
            [[f"h{n}", some()[:99]] for n in range(rng.randrange(3))] for _ in range(rng.choice((1, 3)))
        ]
        made: dict[str, Any] = {
            "keys": [some() if rng.random() < 0.7 else None for _ in range(count)],
            "values": [some() for _ in range(count)],
            "headers": blocks,
            "of": [rng.randrange(len(blocks)) for _ in range(count)],
            "limit": rng.choice((0, 61, 100, 1000, 100_000)),
        }
        return msgspec.msgpack.encode(made)

    def check(self, data: bytes) -> str:
        made = msgspec.msgpack.decode(data)
        blocks = [[(name, value) for name, value in block] for block in made["headers"]]
        batches = record_batches.record_batches(
            StringColumn.of(made["keys"]),
            Texts.of(made["values"]),
            Texts.of([header_block(block) for block in blocks]),
            np.array(made["of"], np.int64),
            made["limit"],
        )
        found = []
        for batch in batches:
            batch._set_producer_state(7, 0, 0)
            records = MemoryRecords(bytes(batch._build()))
            read = records.next_batch()
            assert read is not None
            assert read.validate_crc()
            inside = [(each.key, each.value, list(each.headers)) for each in read]
            assert len(inside) == batch.record_count()
            found += inside
        expected = [
            (key, value, blocks[of])
            for key, value, of in zip(made["keys"], made["values"], made["of"], strict=True)
        ]
        assert found == expected
        return f"{len(batches)} batches"
