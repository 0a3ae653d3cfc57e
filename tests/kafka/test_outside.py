"""An unavailable store or registry rejects no page: its pages wait, others go on, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream.fingerprint.row import Status
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import page
from tests.kafka.worker_helpers import create, journal, publish, running
from tests.unit.test_claims import record
from tests.unit.test_schema_registry import SCHEMA, Served, avro
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.night]

TEXT = "Order once, then decide deterministically, said the keeper of the old lighthouse. " * 3


async def test_pages_wait_for_an_absent_store_and_registry(settings: Settings, tmp_path: Path) -> None:
    """They wait longer than a page's deadline, without a crash."""
    await create(settings)
    root, registry = tmp_path / "archive", Served()
    registry.fail = 503
    number = registry.register(SCHEMA)
    settings = settings.model_copy(
        update={
            "claim_root": root,
            "schema_registry_url": registry.url,
            "page_deadline": 2.0,
            "worker_processes": 3,
        }
    )
    claim = json.dumps({"url": "http://a/claim", "warc_filename": "a.warc", "warc_offset": 0}).encode()
    framed = avro(number, SCHEMA, url="http://a/avro", text=TEXT)
    rows: dict[str | None, tuple[int, str | None]] = {}

    async def journalled(*urls: str) -> bool:
        for each in await journal(settings):
            rows.update(
                zip(
                    each.strings.columns().url.texts(),
                    zip(each.status.tolist(), map(each.reason.get, range(len(each))), strict=True),
                    strict=True,
                )
            )
        return rows.keys() >= set(urls)

    try:
        with capture_logs() as logs:
            async with running(WorkerRole(settings)) as worker:
                await publish(settings, [page("http://a/before", 1), claim], partition=0)
                await publish(settings, [framed], partition=1)

                def waited(what: str) -> int:
                    return sum(each["event"] == "page_waits" and what in each["error"] for each in logs)

                await until(lambda: journalled("http://a/before"))
                await until(lambda: min(waited("claim_root"), waited("schema_registry_url")) >= 5)
                await publish(settings, [page("http://a/other", 2)], partition=2)
                await until(lambda: journalled("http://a/other"))
                assert not rows.keys() & {"http://a/claim", "http://a/avro"}
                draft = tmp_path / "draft"
                draft.mkdir()
                (draft / "a.warc").write_bytes(record(f"<html><body><p>{TEXT}</p></body></html>".encode()))
                draft.rename(root)
                registry.fail = None
                await until(lambda: journalled("http://a/claim", "http://a/avro"))
                assert worker.stats.crashes == 0
    finally:
        registry.close()
    assert set(rows.values()) == {(int(Status.READY), None)}
