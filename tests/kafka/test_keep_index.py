"""Programs of docs/examples keep an index right with the topics of verdicts and of kept pages."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from stream.kafka.names import TopicNames
from stream.messages.best import BestRecord, encode_best
from stream.settings import Settings
from tests.commands import run_process
from tests.kafka.test_crawl_examples import EXAMPLES, abort
from tests.kafka.worker_helpers import admin_of, create
from tests.property.best_oracle import Judged, Topics, pauses, url_of, verdict_of

pytestmark = pytest.mark.broker


async def publish(settings: Settings, verdicts: Iterable[Judged], records: Iterable[BestRecord]) -> None:
    """Publish verdicts as a judge does, in transactions, and records as an elector."""
    names = TopicNames(settings.namespace)
    transactional = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{settings.namespace}.judge"
    )
    async with transactional as judge, judge.transaction():
        for each in verdicts:
            value, key = json.dumps(verdict_of(each)).encode(), str(each.key).encode()
            await judge.send_and_wait(names.verdicts, value, key=key)
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers) as elector:
        for record in records:
            await elector.send_and_wait(names.best(), encode_best(record), key=record.cluster.encode())


async def run(settings: Settings, program: str, path: Path) -> tuple[int, str, str]:
    command = (sys.executable, str(EXAMPLES / program), str(path))
    return await run_process(*command, environment=settings.environment())


def urls(program: str, path: Path) -> dict[str, str | None]:
    """Cluster -> URL in the index."""
    if program == "keep_index.py":
        return {cluster: url for cluster, (url, _) in json.loads(path.read_text())["clusters"].items()}
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed (extra `export`)")
    with duckdb.connect(str(path), read_only=True) as database:
        return dict(database.execute("SELECT cluster, url FROM index_pages").fetchall())


@pytest.mark.parametrize("program", ["keep_index.py", "keep_index_in_duckdb.py"])
async def test_examples_keep_an_index_right(settings: Settings, tmp_path: Path, program: str) -> None:
    """Called after each pause, and by a reader that starts late."""
    settings = settings.model_copy(update={"elect": "longest"})
    names = await create(settings)
    await abort(settings, json.dumps({"verdict": "unique", "cluster": "c", "id": "c.0.0"}).encode())
    topics, at, path = Topics("longest", random.Random(1)), 0, tmp_path / "index"
    for number, verdicts in enumerate(pauses(topics, 3, pages=150)):
        await publish(settings, verdicts, topics.records[at:])
        at = len(topics.records)
        if number % 2:
            continue
        for reader in (path, tmp_path / "late") if number == 2 else (path,):
            code, said, error = await run(settings, program, reader)
            assert code == 0, error
            of_url = {each.url: url_of(each) for each in topics.judged}
            found = {cluster: url and of_url[url] for cluster, url in urls(program, reader).items()}
            assert found == topics.wanted()
            assert said.splitlines()[-1].startswith(f"{sum(url is not None for url in found.values())} pages")

    assert (await run(settings, program, path))[0] == 0
    async with admin_of(settings) as admin:
        await admin.delete_records({TopicPartition(names.verdicts, 0): RecordsToDelete(before_offset=2)})
    assert (await run(settings, program, path))[0] == 0, "it had read these"
    code, _, error = await run(settings, program, tmp_path / "too late")
    assert code == 1
    assert "verdicts up to 2 are deleted; begin with an export" in error
