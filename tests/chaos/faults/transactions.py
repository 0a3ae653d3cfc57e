"""Transactions of another program, which stay open on a topic of the deployment."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException, Producer

from tests.chaos.kafka_cluster.admin import NoAnswerError, insist
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import ELECTOR, PlannedFault

TOPICS: Final = (
    "genesis", "pages", "journal", "decisions", "decisions", "requests", "verdicts", "clusters", "rejected",
)  # fmt: skip
SECONDS: Final = (2.0, 60.0)
"""Shortest and longest time for which one is open."""
ANSWER_SECONDS: Final = 20.0


async def foreign_transaction(scene: Scene, plan: PlannedFault) -> bool:
    """Begin a transaction, write a record, and abort it after a while; in some cases leave that to its
    time-out."""
    rng = plan.rng
    topic = rng.choice((*TOPICS, "best") if ELECTOR in scene.roles else TOPICS)
    ends, seconds = rng.random() < 0.8, rng.uniform(*SECONDS)
    producer = Producer(
        {
            "bootstrap.servers": scene.kafka.bootstrap_servers, "log_level": 0,
            "transactional.id": f"foreign-{scene.namespace}",
            "transaction.timeout.ms": 120_000 if ends else int(1000 * seconds),
        }
    )  # fmt: skip

    def begin() -> None:
        producer.init_transactions(ANSWER_SECONDS)
        producer.begin_transaction()
        producer.produce(f"{scene.namespace}.{topic}", b"never committed", b"key", partition=0)
        if producer.flush(ANSWER_SECONDS):
            raise NoAnswerError(f"{topic}: the record was not written")

    def abort() -> None:
        try:
            producer.abort_transaction(ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].retriable():
                raise NoAnswerError("abort_transaction") from error

    with suppress(KafkaException, NoAnswerError):
        await asyncio.to_thread(begin)
        await asyncio.sleep(seconds)
        if ends:
            await asyncio.to_thread(insist, abort)
        return True
    return False


FAULTS: Final[dict[str, Fault]] = {"foreign-transaction": foreign_transaction}
