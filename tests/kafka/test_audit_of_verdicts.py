"""The audit tells missing verdicts from those that will come, and from those that were trimmed (rule 17)."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from stream.kafka.names import TopicNames
from stream.roles.auditor.audit import audit
from stream.roles.judge.role import JudgeRole
from stream.roles.loader.load import load
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from stream.sources.rows import RowsSource
from tests.commands import neardup_process, succeeded
from tests.kafka.judge_helpers import add_partitions, append, audited, delete_records, page, recreate
from tests.kafka.test_audit_of_holes import configure
from tests.kafka.worker_helpers import create, publish, read_all, running
from tests.unit.test_rows import directory, fingerprint_batch, table

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
async def test_rule_17_trimmed_verdicts_leave_the_audit_clean(settings: Settings) -> None:
    """Also if partitions were added to the verdicts before, so that later verdicts are elsewhere."""
    names = await create(settings)
    async with running(WorkerRole(settings)):
        async with running(JudgeRole(settings)):
            await publish(settings, [page(f"http://a/{n}", n) for n in range(6)])
            await audited(settings, 6)
        await add_partitions(settings, names.verdicts, 4)
        async with running(JudgeRole(settings)):
            await publish(settings, [page(f"http://b/{n}", f"b{n}") for n in range(3)])
            await audited(settings, 9)
    await delete_records(settings, names.verdicts, 4)
    findings = await audit(settings)
    assert (findings.trimmed, findings.missing, findings.clean) == (4, 0, True)
    out, _ = await succeeded(settings, "audit")
    assert "every page has exactly one verdict that retention has not deleted" in out


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


@pytest.mark.night
async def test_rows_that_were_loaded_are_counted_as_rows(settings: Settings, tmp_path: Path) -> None:
    await create(settings)
    rows = RowsSource(str(directory(tmp_path / "rows", fingerprint_batch(table(1_100)))))
    findings = await audit(settings, rows={rows.digest: rows.count})
    assert (findings.rows, findings.waiting, findings.missing) == (1_100, 1_100, 0)
    async with running(JudgeRole(settings)):
        await load(settings, rows)
    out, _ = await succeeded(settings, "audit", "--rows", str(tmp_path / "rows"), "--wait")
    assert "loaded rows that" not in out
    assert re.search(r"│ rows +│ +1,100 │", out)
    out, _ = await succeeded(settings, "audit")
    assert "--rows DIRECTORY checks them too" in out

    names = TopicNames(settings.namespace)
    await recreate(settings, names.verdicts)
    findings = await audit(settings, rows={rows.digest: rows.count})
    assert (findings.missing, findings.waiting) == (1_100, 0)
