"""Programs of docs/examples keep an index right with kept pages, and stop a crawler at copies."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from stream.brokers import embedded, embedded_jars
from stream.kafka.names import TopicNames
from stream.messages.best import BestRecord, KeptPage, encode_best
from stream.messages.verdict import PageRef
from stream.settings import Settings
from tests.commands import run_process
from tests.kafka.judge_helpers import delete_records
from tests.kafka.test_scrapy import EXAMPLES, abort, connect
from tests.kafka.worker_helpers import ROOT, create
from tests.night import cases
from tests.property.best_oracle import Judged, Topics, pauses, url_of, verdict_of
from tests.property.test_kept_pages import obey
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


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
    with duckdb.connect(str(path), read_only=True) as database:
        return dict(database.execute("SELECT cluster, url FROM index_pages").fetchall())


@pytest.mark.parametrize(
    "program", cases(["keep_index.py", "keep_index_in_duckdb.py"], by_day=["keep_index.py"])
)
async def test_examples_keep_an_index_right(settings: Settings, tmp_path: Path, program: str) -> None:
    """Called after each pause, and by a reader that starts late."""
    settings = settings.model_copy(update={"elect": "longest"})
    names = await create(settings)
    await abort(settings, json.dumps({"verdict": "unique", "cluster": "c", "id": "c.0.0"}).encode())
    topics, at, path = Topics("longest", random.Random(1)), 0, tmp_path / "index"
    pages: dict[Path, set[str]] = defaultdict(set)
    for number, verdicts in enumerate(pauses(topics, 3, pages=150)):
        await publish(settings, verdicts, topics.records[at:])
        at = len(topics.records)
        if number % 2:
            continue
        for reader in (path, tmp_path / "late") if number == 2 else (path,):
            code, said, error = await run(settings, program, reader)
            assert code == 0, error
            of_url = {each.url: url_of(each) for each in topics.judged}
            kept = urls(program, reader)
            assert {cluster: url and of_url[url] for cluster, url in kept.items()} == topics.wanted()
            *actions, count = said.splitlines()
            assert count.startswith(f"{len({*kept.values()} - {None})} pages")
            if program == "keep_index.py":
                obey(pages[reader], actions)
                assert pages[reader] == {*kept.values()} - {None}
                assert {of_url[url] for url in pages[reader]} == {*topics.wanted().values()} - {None}

    assert (await run(settings, program, path))[0] == 0
    await delete_records(settings, names.verdicts, 2)
    assert (await run(settings, program, path))[0] == 0, "it had read these"
    code, _, error = await run(settings, program, tmp_path / "too late")
    assert code == 1
    assert "verdicts up to 2 are deleted; begin with an export" in error


@pytest.mark.night
async def test_an_example_says_where_a_crawler_finds_nothing_but_copies(settings: Settings) -> None:
    def verdict(url: str, kind: str, change: str = "new") -> dict[str, object]:
        like = {"url": "http://a.example/", "id": "c.1.0"} if kind == "duplicate" else None
        cluster = "c.1.0" if like else f"of {url}"
        return {"url": url, "verdict": kind, "change": change, "cluster": cluster, "duplicate_of": like}

    names = await create(settings)
    verdicts = [verdict("http://a.example/", "unique"), verdict("http://a.example/", "recrawl", "unchanged")]
    verdicts += [verdict(f"http://mirror.example/day/{n}?view={n}", "duplicate") for n in range(120)]
    verdicts += [verdict(f"http://mirror.example/article/{n}", "unique") for n in range(120)]
    verdicts += [verdict(f"http://mirror.example/day/1{n}?view=0", "unique") for n in range(60)]
    many = [verdict(f"http://{number}.example/", "duplicate") for number in range(1000)]
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=20)
    async with producer:
        sent = [
            await producer.send(names.verdicts, json.dumps(each).encode(), partition=0)
            for each in (*verdicts, *many)
        ]
        for each in sent:
            await each
    command = (sys.executable, str(EXAMPLES / "stop_exploring.py"), str(len(sent)))
    code, said, error = await run_process(*command, environment=settings.environment())
    assert code == 0, error
    assert said.splitlines() == [
        "stop at mirror.example/day/#?view: 100 of its last 100 new URLs are copies",
        "go on at mirror.example/day/#?view",
        "stop at copies of http://a.example/, such as http://879.example/: there are 1000",
    ]


@pytest.mark.night
async def test_kafka_connect_keeps_a_table_right(settings: Settings, tmp_path: Path, postgres: str) -> None:
    """By the JDBC sink that the example names. Rows are made, replaced, and written again."""
    from psycopg import connect as database_of
    from psycopg.errors import UndefinedTable
    from psycopg.rows import dict_row

    if embedded.missing() is not None:
        pytest.skip("no Java and Maven for Kafka Connect")
    pom = Path(__file__).parent / "connect_jdbc.pom.xml"
    (plugin,) = (await asyncio.to_thread(embedded_jars.jars, print, pom)).iterdir()
    settings = settings.model_copy(update={"elect": "longest"})
    await create(settings)
    topics = Topics("longest", random.Random(1))
    for _ in pauses(topics, 3, pages=150):
        pass
    text, url = (EXAMPLES / "connect_best.properties").read_text(), "jdbc:postgresql://127.0.0.1:5432/crawl"
    assert text.count(url) == text.count("connection.username=crawl\n") == 1
    text = text.replace(url, f"jdbc:postgresql://{postgres.partition('@')[2]}")
    (tmp_path / "best.properties").write_text(text.replace("username=crawl", "username=postgres"))

    def rows() -> dict[str, dict[str, Any]]:
        with database_of(postgres, row_factory=dict_row) as database:
            try:
                return {row["cluster"]: row for row in database.execute("SELECT * FROM best").fetchall()}
            except UndefinedTable:
                return {}

    with connect(tmp_path, settings, str(tmp_path / "best.properties"), plugin=plugin) as refuse_failure:
        half = len(topics.records) // 2
        for records, told in ((topics.records[:half],) * 2, (topics.records[half:], topics.records)):
            await publish(settings, [], records)
            wanted = {each.cluster: row_of(each) for each in told}

            def are_right(wanted: dict[str, Any] = wanted) -> bool:
                refuse_failure("best")
                return rows() == wanted

            await until(are_right)
    assert any(row["best_url"] is None for row in rows().values())
    guide = (ROOT / "docs" / "integrations" / "kafka-connect.md").read_text()
    (joined,) = re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)
    with database_of(postgres) as database, database.cursor() as cursor:
        cursor.execute("CREATE TABLE verdicts (id text, cluster text, url text)")
        cursor.executemany(
            "INSERT INTO verdicts VALUES (%(id)s, %(cluster)s, %(url)s)", map(verdict_of, topics.judged)
        )
        of_url = {each.url: url_of(each) for each in topics.judged}
        kept = [of_url[url] for (url,) in cursor.execute(joined).fetchall()]
    assert len(kept) == len({*kept})
    assert {*kept} == {*topics.wanted().values()} - {None}


def row_of(record: BestRecord) -> dict[str, Any]:
    """A record as the row that the sink writes."""
    row = msgspec.to_builtins(record)
    for name, fields in (("best", KeptPage.__struct_fields__), ("was", PageRef.__struct_fields__)):
        nested = row.pop(name) or {}
        row |= {f"{name}_{field}": nested.get(field) for field in fields}
    return row
