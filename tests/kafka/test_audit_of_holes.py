"""The audit explains verdicts on pages that compaction or retention took, and nothing else (rules 1, 17)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from stream.errors import TopicError
from stream.kafka.names import TopicNames
from stream.roles.auditor import audit
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import audited, delete_records, meanwhile, page, recreate, verdicts
from tests.kafka.worker_helpers import admin_of, create, publish, read_all, running
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]

COMPACTED = {
    "cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}  # fmt: skip
"""Every record but the newest may be compacted, as soon as another one comes."""


async def configure(settings: Settings, config: dict[str, str], topic: str | None = None) -> None:
    """Give a topic a configuration, by default that of pages."""
    topic = topic or TopicNames(settings.namespace).pages
    async with admin_of(settings) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)])


async def send(settings: Settings, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Send records, of key and value, to partition 0, each in a batch of its own."""
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers) as producer:
        for key, value in records:
            await producer.send_and_wait(topic, value, key=key, partition=0)


async def taken(settings: Settings, offset: int) -> None:
    """Wait until compaction has taken the page at this offset."""
    topic = TopicNames(settings.namespace).pages

    async def gone() -> bool:
        return offset not in {each.offset for each in await read_all(settings, topic)}

    await until(gone)


async def test_rule_17_pages_that_compaction_took_are_explained(settings: Settings) -> None:
    names = await create(settings)
    async with AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{names.namespace}.crawler"
    ) as crawler:
        await crawler.begin_transaction()
        await crawler.send_and_wait(names.pages, page("http://aborted/", 0), key=b"aborted", partition=0)
        await crawler.abort_transaction()
    keyless = [(None, page(f"http://keyless/{n}", n)) for n in range(3)]
    versions = [(b"%d" % (n % 4), page(f"http://a/{n % 4}", n)) for n in range(20)]
    deleted = [(b"deleted", page("http://deleted/", 1)), (b"deleted", None)]
    await send(settings, names.pages, keyless + versions + deleted)  # at the offsets 2 to 26
    await configure(settings, COMPACTED)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 25)).clean
        # Compaction leaves a tombstone in place the first time.
        for n, offset in enumerate((2, 26)):
            await send(settings, names.pages, [(b"last %d" % n, page(f"http://last/{n}", n))])
            await taken(settings, offset)
        found = await audited(settings, 6)
    assert (found.pages, found.verdicts.total(), found.compacted) == (6, 27, 21)
    assert (found.unexplained, found.earlier, found.missing, found.repeated) == (0, 0, 0, 0)
    assert found.clean

    # A page that nobody judges, and a verdict on an offset where no page with a later version was.
    await send(settings, names.pages, [(b"next", page("http://next/", 1))])
    invented = (await verdicts(settings))[0]
    invented["source"]["offset"] = 0
    await send(settings, names.verdicts, [(b"aborted", json.dumps(invented).encode())])
    found = await audit.audit(settings)
    assert (found.waiting, found.unexplained, found.compacted, found.repeated) == (1, 1, 21, 0)
    assert found.examples == ["unexplained: partition 0 offset 0"]
    # Where nothing is compacted, no later version explains it.
    await send(settings, names.pages, [(b"aborted", page("http://aborted/", 1))])
    assert (await audit.audit(settings)).unexplained == 0
    await configure(settings, {"cleanup.policy": "delete"})
    assert (await audit.audit(settings)).unexplained == 22


@pytest.mark.night
async def test_rule_17_pages_that_retention_takes_during_an_audit_are_explained(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are deleted when the log start is known and before they are read."""
    names = await create(settings)
    await publish(settings, [page(f"http://a/{n}", n) for n in range(9)])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 9)).clean

    during_first_read(monkeypatch, names.pages, lambda: delete_records(settings, names.pages, 4))
    found = await audit.audit(settings)
    assert (found.pages, found.verdicts.total(), found.earlier, found.unexplained) == (5, 9, 4, 0)
    assert found.clean


@pytest.mark.night
async def test_a_topic_that_is_recreated_during_an_audit_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await create(settings)
    await publish(settings, [page(f"http://a/{n}", n) for n in range(9)])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 9)).clean
    during_first_read(monkeypatch, names.pages, lambda: recreate(settings, names.pages))
    with pytest.raises(TopicError, match=rf"{names.pages} was recreated"):
        await audit.audit(settings)


def during_first_read(monkeypatch: pytest.MonkeyPatch, topic: str, act: Callable[[], Any]) -> None:
    """Do something when the audit knows the bounds of the topic and has not yet read it."""
    records, acts = audit.committed_records, [act]

    async def reading(settings: Settings, of: str, progress: Any, bounds: Any = lambda *_: None) -> Any:
        def with_bounds(*known: Any) -> None:
            bounds(*known)
            if of == topic and acts:
                meanwhile(acts.pop())

        async for record in records(settings, of, progress, with_bounds):
            yield record

    monkeypatch.setattr(audit, "committed_records", reading)
