"""Encodes the verdicts of a judged batch as record batches of Kafka, one or more per partition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Final

import numpy as np
from aiokafka import TopicPartition
from numpy.typing import NDArray

from stream.judge.judged_batch import JudgedBatch
from stream.judge.verdict_json_compiled import write
from stream.kafka.record_batches import RecordBatch, header_block, record_batches
from stream.kafka.verdict_values import AvroVerdicts
from stream.messages.byte_strings import Texts
from stream.messages.trace import TRACEPARENT
from stream.messages.verdict import Verdict

VERDICT_BATCH_BYTES: Final = 900_000
"""Maximum size of a record batch, below Kafka's default `max.message.bytes` of 1 MiB."""
FEW: Final = 256
"""Number of verdicts up to which the event loop encodes them itself, within 1 to 3 ms. Handing them to
threads would take longer."""
_THREADS: Final = 2
PartitionBatch = tuple[TopicPartition, RecordBatch]


class VerdictBatches:
    """Encodes record batches, in its own threads if there are many verdicts."""

    def __init__(self, scheme: str, topics: Mapping[str, Verdict | None], avro: AvroVerdicts | None) -> None:
        """`topics` maps each topic to the kind of verdict that it gets, or None for all."""
        self._scheme, self._topics, self._avro = scheme, topics, avro
        self._pool = ThreadPoolExecutor(_THREADS, "verdicts")

    def close(self) -> None:
        """Cancel waiting work, and wait for running threads."""
        self._pool.shutdown(cancel_futures=True)

    async def of(self, decided: JudgedBatch, widths: Mapping[str, int]) -> list[PartitionBatch]:
        """Encode record batches for all topics and partitions, in journal order within a partition.

        `widths` are the numbers of partitions of the topics. Batches are returned in the order to send them.
        """
        few = len(decided.batch) <= FEW
        of_batch = decided.columns() if few else await asyncio.to_thread(decided.columns)
        batch, verdict = decided.batch, decided.verdicts.columns.verdict
        headers, headers_of = self._headers(decided)
        partition = np.array([each.partition for each in batch.ranges], np.int64)[batch.source]

        def make(rows: NDArray[np.int64]) -> list[RecordBatch]:
            values = write(of_batch, rows)
            if self._avro is not None:
                values = Texts.of(self._avro.values(values.strings()))
            return record_batches(
                batch.key.take(rows), values, headers, headers_of[rows], VERDICT_BATCH_BYTES
            )

        places: list[TopicPartition] = []
        parts: list[NDArray[np.int64]] = []
        for topic, wanted in self._topics.items():
            rows = np.arange(len(batch)) if wanted is None else np.flatnonzero(verdict == wanted)
            place = partition[rows] % widths[topic]
            for each in np.unique(place).tolist():
                places.append(TopicPartition(topic, each))
                parts.append(rows[place == each])
        if few:
            made = [make(part) for part in parts]
        else:
            making = [asyncio.wrap_future(self._pool.submit(make, part)) for part in parts]
            made = await asyncio.gather(*making)
        # The first batch of each partition, then the second ones: a producer has one per partition in flight.
        turns = zip_longest(*made)
        return [(place, each) for turn in turns for place, each in zip(places, turn, strict=True) if each]

    def _headers(self, decided: JudgedBatch) -> tuple[Texts, NDArray[np.int64]]:
        """Return the distinct header blocks, and the index of each row's block."""
        traces, verdict = decided.batch.traceparent, decided.verdicts.columns.verdict
        blocks = [self._header_block(each) for each in Verdict]
        of = verdict.astype(np.int64) - Verdict.UNIQUE
        of[list(traces)] = np.arange(len(traces)) + len(blocks)
        blocks += [self._header_block(Verdict(verdict[row]), trace) for row, trace in traces.items()]
        return Texts.of(blocks), of

    def _header_block(self, verdict: Verdict, trace: str | None = None) -> bytes:
        # With these headers, a router need not parse the value.
        headers = [("verdict", verdict.name.lower().encode()), ("scheme", self._scheme.encode())]
        if trace is not None:
            headers.append((TRACEPARENT, trace.encode()))
        return header_block(headers)
