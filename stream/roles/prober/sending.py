"""Sends answers to the topic `candidates`, at least once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

import numpy as np

from stream.errors import RefusedError
from stream.failpoints import reach
from stream.futures import retrieved
from stream.judge.ids import INDEX_BITS
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run
from stream.judge.segments.answer_records import DIGEST_BYTES, PAIR_BYTES, SentAnswer, encode_answer
from stream.kafka import clients
from stream.kafka.client_owner import ClientOwner
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import ANSWERS_BYTES
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.settings import Settings

IN_FLIGHT: Final = 256
"""Answers that are not acknowledged yet, at most."""


class AnswerTooLargeError(RefusedError):
    """An answer about one page is larger than a record of the topic may be."""


class AnswerSender(ClientOwner):
    """Sends the answers of one prober."""

    def __init__(self, settings: Settings, genesis: Genesis, group: str, holder: str) -> None:
        self._settings, self._genesis = settings, genesis
        self._group, self._holder = group, holder
        self._topic = TopicNames(settings.namespace).candidates
        self._in_flight: set[asyncio.Future[object]] = set()
        self._error: BaseException | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        producer = clients.producer(
            self._settings,
            acks="all",
            linger_ms=0,
            compression_type="zstd",
            max_batch_size=ANSWERS_BYTES,
            max_request_size=2 * ANSWERS_BYTES,
        )
        self._producer = await stack.enter_async_context(
            clients.open_client(self._settings, producer, patiently=True)
        )

    def encode(self, segment: SegmentRecord, answer: Answer) -> list[bytes]:
        """Return the records of an answer: one, or several if it is large. Raises AnswerTooLargeError."""
        sent = SentAnswer(
            answer,
            self._genesis.journal,
            self._genesis.scheme_id,
            self._group,
            self._holder,
            bytes.fromhex(segment.digest)[:DIGEST_BYTES],
        )
        # It is divided without being encoded if its pairs alone take more.
        if len(answer.pairs.page) * PAIR_BYTES <= ANSWERS_BYTES:
            value = encode_answer(sent)
            if len(value) <= ANSWERS_BYTES:
                return [value]
        return [part for half in halves(answer) for part in self.encode(segment, half)]

    async def send(self, partition: int, values: list[bytes]) -> None:
        """Send records. Waits while too many are not acknowledged."""
        for value in values:
            async with clients.acknowledgement_limit(f"topic {self._topic}"):
                while len(self._in_flight) >= IN_FLIGHT:
                    await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
                future = await self._producer.send(self._topic, value, partition=partition)
            self._in_flight.add(retrieved(future))
            future.add_done_callback(self._note)

    def raise_failure(self) -> None:
        """Raise the first error of a record that was not acknowledged, if there was one."""
        if self._error is not None:
            raise self._error

    def _note(self, future: asyncio.Future[object]) -> None:
        self._in_flight.discard(future)
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._error = self._error or error
        else:
            reach("prober.answered")


def halves(answer: Answer) -> Iterator[Answer]:
    """Divide an answer between two of its records, of which about as many are before as behind; one about a
    single record, between two pages that it names."""
    first, until = answer.run.first, answer.run.until
    middle = (answer.run.start + answer.run.end) // 2 << INDEX_BITS
    if not first < middle < until:
        pages = np.union1d(answer.pairs.page, answer.counts.page)
        if len(pages) < 2:
            raise AnswerTooLargeError(
                f"{answer} lists {len(answer.pairs.page)} candidates of a page, more than a record of"
                f" {ANSWERS_BYTES} bytes has"
            )
        middle = int(pages[len(pages) // 2])
    pairs, counts = answer.pairs.page.searchsorted(middle), answer.counts.page.searchsorted(middle)
    cut = answer.cut.searchsorted(middle)
    for run, before in ((Run.between(first, middle), True), (Run.between(middle, until), False)):
        of_pairs, of_cut, of_counts = (
            slice(None, at) if before else slice(at, None) for at in (pairs, cut, counts)
        )
        yield Answer(
            answer.segment,
            run,
            answer.decided,
            answer.most,
            ListedPairs._make(column[of_pairs] for column in answer.pairs),
            answer.cut[of_cut],
            BucketCounts._make(column[of_counts] for column in answer.counts),
        )
