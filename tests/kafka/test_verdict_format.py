"""Verdicts in Avro equal those in JSON for all readers, also on a topic with both formats."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import fastavro
import pytest

from stream.errors import EXIT_REFUSED, RecordError, RefusedError
from stream.kafka import topics
from stream.pages.outside.errors import UnavailableError
from stream.roles.auditor.audit import audit
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.commands import neardup_process, succeeded
from tests.kafka.dashboard_helpers import dashboard
from tests.kafka.judge_helpers import audited, page
from tests.kafka.worker_helpers import create, error_of, publish, read_all, running
from tests.unit.test_schema_registry import Served

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]
SCHEMA = fastavro.schema.load_schema(str(Path(__file__).parents[2] / "schemas" / "verdict.avsc"))
SHORT = b'{"url": "http://c/", "text": "x"}'
PAGES = [page("http://a/", 1), page("http://b/", 1), page("http://a/", 2), SHORT, b"{"]
"""Unique, duplicate, changed, insufficient, rejected."""
AGAIN = [page("http://a/", 2), *PAGES[1:]]


@pytest.fixture
def url(registry: Served) -> str:
    """Of a registry, see `tests.unit.test_schema_registry`."""
    return registry.url


def in_avro(settings: Settings, url: str, routes: str = "duplicate") -> Settings:
    given = {"verdict_format": "avro", "schema_registry_url": url, "verdict_routes": routes}
    return settings.model_copy(update=given)


async def ask(url: str, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{url}{path}") as answer:
        return await answer.json(content_type=None)


async def read(value: bytes, url: str) -> dict[str, Any]:
    """As any other consumer reads it: by the registry's schema, without code of ours."""
    schema = json.loads((await ask(url, f"/schemas/ids/{int.from_bytes(value[1:5], 'big')}"))["schema"])
    found = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, SCHEMA)
    assert isinstance(found, dict)
    return found


async def test_verdicts_in_avro_are_read_by_all_who_read_verdicts(
    settings: Settings, url: str, tmp_path: Path
) -> None:
    settings = in_avro(settings, url)
    names = await create(settings)
    assert set(await ask(url, "/subjects")) >= {
        f"{names.verdicts}-value",
        f"{names.route_topic('duplicate')}-value",
    }
    async with running(WorkerRole(settings)):
        await publish(settings, PAGES, partition=1)
        async with running(JudgeRole(settings.model_copy(update={"verdict_format": "json"}))):
            assert (await audited(settings, len(PAGES))).clean
        await publish(settings, AGAIN, partition=1)
        async with running(JudgeRole(settings)):
            findings = await audited(settings, 2 * len(PAGES))
    assert findings.clean
    records = await read_all(settings, names.verdicts)
    assert [each.value[:1] for each in records] == [b"{"] * len(PAGES) + [b"\0"] * len(AGAIN)
    plain = [await read(each.value, url) for each in records[len(PAGES) :]]
    assert [each["verdict"] for each in plain] == [
        "recrawl", "recrawl", "recrawl", "insufficient", "rejected",
    ]  # fmt: skip
    assert [dict(each.headers)["verdict"].decode() for each in records[len(PAGES) :]] == [
        each["verdict"] for each in plain
    ]
    assert plain[0]["decided_at"].year >= 2026

    tail = ["tail", "--from-beginning", "--json", "--limit", str(len(records))]
    out, _ = await succeeded(settings, *tail)
    shown = [json.loads(line) for line in out.splitlines()]
    assert [each["id"] for each in shown[len(PAGES) :]] == [each["id"] for each in plain]
    assert shown[len(PAGES)].keys() == shown[0].keys()

    target = tmp_path / "crawl.duckdb"
    code, out, error = await neardup_process(settings, "verdicts", "export", str(target))
    assert (code, out.split()[0]) == (0, str(len(records))), error
    own = {"state_dir": tmp_path / "dashboard"}
    async with dashboard(settings.model_copy(update=own)) as client:
        figures = await client.counted(len(records))
        assert figures["verdicts"]["rejected"] == 2
        latest = (await client.get("/api/v1/verdicts?verdict=recrawl"))["verdicts"]
        assert sorted(each["verdict"]["url"] for each in latest) == ["http://a/", "http://a/", "http://b/"]

    with pytest.raises(RecordError, match=rf"{names.verdicts}\[1\] offset \d+: .*no schema_registry_url"):
        await audit(settings.model_copy(update={"schema_registry_url": None}))


@pytest.mark.night
async def test_a_judge_waits_for_no_registry_and_decides_nothing_without_it(
    settings: Settings, registry: Served
) -> None:
    """It ends with an exit code that asks for a restart, or says that a restart would not help."""
    await create(settings)
    settings = in_avro(settings, registry.url, routes="")
    async with running(WorkerRole(settings)):
        await publish(settings, PAGES)
        registry.fail = 503
        away = await error_of(JudgeRole(settings))
        assert isinstance(away, UnavailableError)
        assert away.exit_code != EXIT_REFUSED
        registry.fail = 409
        refused = await error_of(JudgeRole(settings))
        assert isinstance(refused, RefusedError)
        assert refused.exit_code == EXIT_REFUSED
        genesis = await topics.wait_for_genesis(settings)
        with pytest.raises(RefusedError, match="409"):
            await topics.create(settings, genesis.scheme, genesis.options)
        assert not (await audit(settings)).verdicts
        registry.fail = None
        async with running(JudgeRole(settings)):
            assert (await audited(settings, len(PAGES))).clean
