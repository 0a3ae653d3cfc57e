"""Helpers for tests of the judge: roles in this process, hand-written journals, and their verdicts."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.client import AIOKafkaClient

from stream.errors import EXIT_REFUSED, NeardupError, StateError
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.kafka import broker_metadata
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import plan
from stream.messages.decision import Decisions, decode_decisions
from stream.messages.journal import Rows, SourceRange
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from stream.roles.auditor import audit
from stream.roles.elector.role import ElectorRole
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.worker_helpers import admin_of, error_of, read_all
from tests.waiting import until, until_answer

CLUSTER, TOPIC_ID = "a-cluster", "ab" * 16
WORDS = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "nrls"]
FINGERPRINTER = PageFingerprinter()


def text(seed: object, words: int = 80) -> str:
    """Return a distinct text for each seed. No two are similar."""
    chosen = random.Random(str(seed))
    return " ".join(chosen.choice(WORDS) for _ in range(words))


def page(url: str, seed: object) -> bytes:
    """Return a page message with `text(seed)`."""
    return json.dumps({"url": url, "text": text(seed)}).encode()


async def refusal_of(
    role: WorkerRole | JudgeRole | ElectorRole, kind: type[NeardupError] = StateError
) -> str:
    """Run a role until it refuses to go on with such an error, and return what that says."""
    error = await error_of(role)
    assert isinstance(error, kind), repr(error)
    assert error.exit_code == EXIT_REFUSED
    return str(error)


@dataclass(frozen=True)
class Part:
    """A source range of a journal record, with its rows."""

    range: SourceRange
    rows: list[Row]
    offsets: list[int]


def part(
    partition: int,
    start: int,
    end: int,
    *,
    opening: bool = False,
    lost: bool = False,
    topic_id: str = TOPIC_ID,
    reseed: object = None,
) -> Part:
    """Return the range of pages [start, end) of a partition, no two of which are similar. A declared gap has
    no rows."""
    offsets = [] if lost else list(range(start, end))
    rows = [
        FINGERPRINTER.page(
            Page(url=f"http://a/{partition}/{offset}", text=text((topic_id, partition, offset, reseed)))
        )
        for offset in offsets
    ]
    return Part(
        SourceRange(CLUSTER, "pages", topic_id, partition, start, end, len(rows), opening, lost),
        rows,
        offsets,
    )


def record(*parts: Part, scheme: Scheme = FINGERPRINTER.scheme) -> bytes:
    rows = [row for each in parts for row in each.rows]
    offsets = [offset for each in parts for offset in each.offsets]
    return Rows.of(scheme, [each.range for each in parts], rows, offsets, [None] * len(rows)).encode()


async def append(
    settings: Settings, *records: bytes | None, topic: str | None = None, partition: int = 0, **send: Any
) -> list[Any]:
    """Append records to the journal, as workers do, or to another topic, and return the metadata of each."""
    servers = settings.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all") as producer:
        topic = topic or TopicNames(settings.namespace).journal
        return [await producer.send_and_wait(topic, each, partition=partition, **send) for each in records]


async def decisions(settings: Settings) -> list[Decisions]:
    """Return all decisions about journal records so far."""
    return [each for each in (await decision_records(settings)).values() if each.has_rows]


async def ledgers(settings: Settings) -> dict[int, Decisions]:
    """Return offset -> ledger record, of all so far."""
    return {
        offset: each for offset, each in (await decision_records(settings)).items() if each.ledger is not None
    }


async def decision_records(settings: Settings) -> dict[int, Decisions]:
    """Return offset -> record, of all records of the decisions topic so far."""
    records = await read_all(settings, TopicNames(settings.namespace).decisions)
    return {each.offset: decode_decisions(each.value, each.offset) for each in records}


async def decided(settings: Settings, appended: list[Any]) -> None:
    """Wait until the judge has decided the last of these journal records."""

    end = appended[-1].offset
    await until_answer(lambda: decisions(settings), lambda found: any(each.end > end for each in found))


async def verdicts(settings: Settings) -> list[dict[str, Any]]:
    return [
        json.loads(each.value) for each in await read_all(settings, TopicNames(settings.namespace).verdicts)
    ]


def places(found: list[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
    """Count the verdicts of each page, given by topic id, partition and offset."""
    sources = [each["source"] for each in found]
    return Counter((each["topic_id"], each["partition"], each["offset"]) for each in sources)


def once(*parts: Part) -> Counter[tuple[str, int, int]]:
    """Return the result of `places` if each page of the parts has one verdict."""
    return Counter(
        (each.range.topic_id, each.range.partition, offset) for each in parts for offset in each.offsets
    )


async def recreate(settings: Settings, topic: str) -> None:
    """Delete one of our topics, and create it again as planned."""
    async with admin_of(settings) as admin, broker_metadata.connect(settings) as client:
        before = await broker_metadata.topic_id(client, topic)
        await admin.delete_topics([topic])
    await make(settings, topic, before)


async def make(settings: Settings, topic: str, before: str = "") -> None:
    """Create one of our topics as planned, once the topic with the id `before` is deleted."""
    (planned,) = [each for each in plan(settings) if each.name == topic]
    new = NewTopic(
        topic, planned.partitions or settings.partitions, 1, topic_configs=planned.create_config(dev=True)
    )
    async with admin_of(settings) as admin, broker_metadata.connect(settings) as client:

        async def created() -> bool:
            return bool((await admin.create_topics([new])).topic_errors[0][1] == 0)

        await until(created)
        await until(lambda: _has_leaders(client, topic, new.num_partitions, before))


async def _has_leaders(client: AIOKafkaClient, topic: str, partitions: int, before: str = "") -> bool:
    """Whether a topic, of another id than before, has so many partitions, and each has a leader."""
    found = (await broker_metadata.metadata(client, [topic])).topics.get(topic)
    if found is None or found.id == before:
        return False
    leaders = [each.leader for each in found.partitions.values()]
    return len(leaders) == partitions and min(leaders) >= 0


async def add_partitions(settings: Settings, topic: str, total: int) -> None:
    """Add partitions to one of our topics, and wait for their leaders."""
    async with admin_of(settings) as admin, broker_metadata.connect(settings) as client:
        await admin.create_partitions({topic: NewPartitions(total)})

        await until(lambda: _has_leaders(client, topic, total))


def meanwhile(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine to its end from within the code under test, which is blocked meanwhile."""
    acting = threading.Thread(target=lambda: asyncio.run(act()))
    acting.start()
    acting.join()


async def delete_records(settings: Settings, topic: str, before: int) -> None:
    """Move the log start of partition 0, as retention does."""
    async with admin_of(settings) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before)})


async def audited(settings: Settings, pages: int) -> audit.Findings:
    """Return the findings of an audit once at least this many pages have verdicts."""
    return await until_answer(
        lambda: audit.audit(settings),
        lambda found: found.pages >= pages and not (found.missing or found.hidden or found.waiting),
    )
