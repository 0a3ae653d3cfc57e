"""The audit tells missing verdicts from those that will come, and from those that were trimmed. It explains
verdicts on pages that compaction or retention took, and nothing else (rules 1, 17)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from stream.errors import TopicError
from stream.kafka.names import TopicNames
from stream.roles.auditor import audit as audits
from stream.roles.auditor.audit import audit
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.commands import neardup_process
from tests.kafka.judge_helpers import append, audited, delete_records, meanwhile, page, recreate, verdicts
from tests.kafka.worker_helpers import admin_of, create, publish, read_all, running
from tests.waiting import until_answer

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


async def judge_pages(settings: Settings, *counts: int) -> TopicNames:
    """Give some pages of each partition verdicts."""
    names = await create(settings)
    for partition, count in enumerate(counts):
        await publish(
            settings, [page(f"http://{partition}/{n}", (partition, n)) for n in range(count)], partition
        )
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, sum(counts))).clean
    return names


async def test_rule_17_pages_that_wait_are_not_missing(settings: Settings) -> None:
    await judge_pages(settings, 5)
    await publish(settings, [page(f"http://later/{n}", n) for n in range(4)])
    began = time.time()
    await publish(settings, [page("http://other/", "other")], 1)
    findings = await audit(settings)
    assert (findings.pages, findings.waiting, findings.missing, findings.clean) == (10, 5, 0, False)
    assert findings.waiting_since is not None
    assert findings.waiting_since / 1000 <= began
    code, out, _ = await neardup_process(settings, "audit")
    assert code == 1
    assert "5 pages not judged yet, the oldest published" in out
    assert "not clean" not in out
    code, out, _ = await neardup_process(settings, "audit", "--json")
    assert (code, json.loads(out)["waiting"], json.loads(out)["missing"]) == (1, 5, 0)


async def test_rule_17_a_verdict_that_is_gone_is_missing_and_a_trimmed_one_is_not(settings: Settings) -> None:
    names = await judge_pages(settings, 8, 3)
    published = [each for each in await read_all(settings, names.verdicts) if each.partition == 0]
    await recreate(settings, names.verdicts)
    # All of partition 0 but the fifth, none of partition 1.
    values = [each.value for each in published]
    await append(settings, *values[:4], *values[5:], topic=names.verdicts)
    findings = await audit(settings)
    assert (findings.missing, findings.trimmed, findings.waiting) == (4, 0, 0)
    assert findings.examples == [
        "missing: partition 0 offset 4",
        *(f"missing: partition 1 offset {n}" for n in range(3)),
    ]

    await delete_records(settings, names.verdicts, 2)
    findings = await audit(settings)
    assert (findings.missing, findings.trimmed, findings.waiting) == (4, 2, 0)
    # Everything: nothing tells the fifth page from the others.
    await delete_records(settings, names.verdicts, 7)
    findings = await audit(settings)
    assert (findings.missing, findings.trimmed) == (3, 8)


@pytest.mark.night
async def test_rule_17_verdicts_that_compaction_removed_are_not_missing(settings: Settings) -> None:
    """Compaction keeps the newest verdict of each key. That of a key without any is missing."""
    names = await create(settings)
    keys = [b"a", b"b", b"a", None, b"b", b"a", b"c"]
    for number, key in enumerate(keys):
        await append(settings, page(f"http://{number}/", number), topic=names.pages, key=key)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, len(keys))).clean
    judged = await read_all(settings, names.verdicts)
    kept = [each for each in judged if json.loads(each.value)["source"]["offset"] in (4, 5)]
    await recreate(settings, names.verdicts)
    for each in kept:
        await append(settings, each.value, topic=names.verdicts, key=each.key)
    findings = await audit(settings)
    assert (findings.missing, findings.superseded) == (5, 0)
    await configure(settings, {"cleanup.policy": "compact"}, names.verdicts)
    findings = await audit(settings)
    assert (findings.pages, findings.missing, findings.superseded) == (7, 1, 4)
    assert findings.examples == ["missing: partition 0 offset 6"]
    code, out, _ = await neardup_process(settings, "audit")
    assert code == 1
    assert f"{names.verdicts} is compacted, which keeps the newest verdict of each key" in out


@pytest.mark.night
async def test_an_audit_waits_for_the_judge_and_no_longer_than_told(settings: Settings) -> None:
    names = await create(settings)
    await publish(settings, [page(f"http://a/{n}", n) for n in range(9)])
    code, out, error = await neardup_process(settings, "audit", "--wait", "--timeout", "2", "--json")
    assert (code, json.loads(out)["waiting"]) == (1, 9), error
    waiting: list[int] = []
    auditing = asyncio.create_task(audit(settings, wait_seconds=600, report_waiting=waiting.append))
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        findings = await auditing
    assert (findings.pages, findings.clean) == (9, True)
    assert (waiting[0], waiting[-1]) == (9, 0)
    # Pages that retention deletes meanwhile are lost, not missing, once a worker has seen that.
    await publish(settings, [page(f"http://b/{n}", f"b{n}") for n in range(4)])
    auditing = asyncio.create_task(
        audit(settings, wait_seconds=600, report_waiting=lambda pages: reported.set() if pages == 4 else None)
    )
    reported = asyncio.Event()
    await reported.wait()
    await delete_records(settings, names.pages, 11)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        findings = await auditing
    assert (findings.missing, findings.waiting, findings.lost) == (0, 0, 2)


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
    for key, value in records:
        await append(settings, value, topic=topic, key=key)


async def taken(settings: Settings, offset: int) -> None:
    """Wait until compaction has taken the page at this offset."""
    topic = TopicNames(settings.namespace).pages
    await until_answer(
        lambda: read_all(settings, topic), lambda pages: offset not in {each.offset for each in pages}
    )


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
    found = await audit(settings)
    assert (found.waiting, found.unexplained, found.compacted, found.repeated) == (1, 1, 21, 0)
    assert found.examples == ["unexplained: partition 0 offset 0"]
    # Where nothing is compacted, no later version explains it.
    await send(settings, names.pages, [(b"aborted", page("http://aborted/", 1))])
    assert (await audit(settings)).unexplained == 0
    await configure(settings, {"cleanup.policy": "delete"})
    assert (await audit(settings)).unexplained == 22


@pytest.mark.night
async def test_rule_17_pages_that_retention_takes_during_an_audit_are_explained(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are deleted when the log start is known and before they are read. A topic that is recreated then
    is named."""
    names = await create(settings)
    await publish(settings, [page(f"http://a/{n}", n) for n in range(9)])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 9)).clean

    during_first_read(monkeypatch, names.pages, lambda: delete_records(settings, names.pages, 4))
    found = await audit(settings)
    assert (found.pages, found.verdicts.total(), found.earlier, found.unexplained) == (5, 9, 4, 0)
    assert found.clean
    monkeypatch.undo()
    during_first_read(monkeypatch, names.pages, lambda: recreate(settings, names.pages))
    with pytest.raises(TopicError, match=rf"{names.pages} was recreated"):
        await audit(settings)


def during_first_read(monkeypatch: pytest.MonkeyPatch, topic: str, act: Callable[[], Any]) -> None:
    """Do something when the audit knows the bounds of the topic and has not yet read it."""
    records, acts = audits.committed_records, [act]

    async def reading(settings: Settings, of: str, progress: Any, bounds: Any = lambda *_: None) -> Any:
        def with_bounds(*known: Any) -> None:
            bounds(*known)
            if of == topic and acts:
                meanwhile(acts.pop())

        async for record in records(settings, of, progress, with_bounds):
            yield record

    monkeypatch.setattr(audits, "committed_records", reading)
