"""Exported verdicts are in the target once each, and a second run adds only what is new."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from stream.errors import SettingsError, TopicError
from stream.messages.verdict import MessagePosition, NearestPage, Origin, VerdictRecord
from stream.roles.exporter import export
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from stream.sinks import parquet
from stream.sinks.base import COLUMNS, ExportError, values_of
from stream.sinks.duckdb import DuckSink
from stream.sinks.open import open_sink
from tests.commands import neardup_process
from tests.kafka.dashboard_helpers import VerdictMaker
from tests.kafka.judge_helpers import append, audited, delete_records, meanwhile, page, recreate
from tests.kafka.worker_helpers import create, publish, running

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]

COUNTS = "SELECT verdict, count(*), count(DISTINCT id) FROM verdicts GROUP BY verdict ORDER BY verdict"


async def test_nothing_is_made_before_the_verdicts_were_reached(settings: Settings, tmp_path: Path) -> None:
    for name in ("crawl.duckdb", "crawl.parquet"):
        code, _, error = await neardup_process(settings, "verdicts", "export", str(tmp_path / name))
        assert code == 2
        assert f"no such topic: {settings.namespace}.verdicts" in error
        away = settings.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
        code, _, error = await neardup_process(away, "verdicts", "export", str(tmp_path / name))
        assert code == 2
        assert "127.0.0.1:1" in error
    assert not os.listdir(tmp_path)


@pytest.fixture(params=["duckdb", "parquet", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param != "postgres":
        return str(tmp_path / f"crawl.{request.param}")
    url: str = request.getfixturevalue("postgres")
    return url


@contextmanager
def database_of(target: str) -> Iterator[Any]:
    """Context manager that opens what was exported as a database."""
    if target.startswith("postgresql://"):
        import psycopg

        with psycopg.connect(target) as connection:
            yield connection
    else:
        is_file = not target.endswith(".parquet")
        with duckdb.connect(target if is_file else ":memory:") as connection:
            if not is_file:
                connection.execute(f"CREATE VIEW verdicts AS FROM '{target}/*.parquet'")
            yield connection


def ask(target: str, question: str) -> list[tuple[Any, ...]]:
    with database_of(target) as database:
        return list(database.execute(question).fetchall())


async def exported(settings: Settings, target: str) -> int:
    with open_sink(target) as sink:
        return await export(settings, sink)


async def test_a_second_export_adds_only_what_is_new(settings: Settings, target: str) -> None:
    await create(settings)
    assert await exported(settings, target) == 0
    for partition in range(2):
        pages = [page(f"http://a/{partition}/{n}", n % 4) for n in range(6)]
        await publish(settings, [*pages, b"no JSON"], partition=partition)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 14)).clean
        assert await exported(settings, target) == 14
        assert await exported(settings, target) == 0
        assert ask(target, COUNTS) == [("duplicate", 8, 8), ("rejected", 2, 2), ("unique", 4, 4)]
        await publish(settings, [page("http://a/late", 1)], partition=2)
        assert (await audited(settings, 15)).clean
        assert await exported(settings, target) == 1
    assert ask(target, COUNTS) == [("duplicate", 9, 9), ("rejected", 2, 2), ("unique", 4, 4)]
    others = (
        "SELECT count(*) FROM verdicts a JOIN verdicts b ON a.duplicate_of_id = b.id WHERE b.change = 'new'"
    )
    assert ask(target, others) == [(9,)]


class SinkOfWhile(DuckSink):
    """A sink in memory. Something happens to the topic when its bounds are known, and before it is read."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(Path(":memory:"))
        self._act = act

    def offsets(self, topic_id: str) -> dict[int, int]:
        meanwhile(self._act)
        return super().offsets(topic_id)

    @property
    def count(self) -> int:
        ((count,),) = self._database.execute("SELECT count(*) FROM verdicts").fetchall()
        return int(count)


@pytest.mark.night
async def test_verdicts_that_retention_deletes_during_an_export_are_skipped(settings: Settings) -> None:
    """Those of a topic that is recreated meanwhile are refused."""
    names = await create(settings)
    await append(settings, *map(msgspec.json.encode, rows(0, 9)), topic=names.verdicts)
    with closing(SinkOfWhile(lambda: delete_records(settings, names.verdicts, 4))) as sink:
        assert await export(settings, sink) == sink.count == 5

    async def replace() -> None:
        await recreate(settings, names.verdicts)
        await append(settings, *map(msgspec.json.encode, rows(100, 12)), topic=names.verdicts)

    with closing(SinkOfWhile(replace)) as sink:
        with pytest.raises(TopicError, match=rf"{names.verdicts} was recreated"):
            await export(settings, sink)
        assert sink.count == 0


def rows(first: int, count: int) -> list[VerdictRecord]:
    made = VerdictMaker(seed=first)
    return [made.one(source=MessagePosition("pages", "ab" * 16, 0, first + n)) for n in range(count)]


OLDER = list(COLUMNS)[: list(COLUMNS).index("origin_file")]
"""Columns of tables that exports made before verdicts named the origins of their pages, and nearest pages."""


def make_older_table(target: str) -> None:
    columns = ", ".join(f"{name} {COLUMNS[name]}" for name in OLDER)
    values = values_of(rows(0, 1)[0])[: len(OLDER)]
    place = "%s" if target.startswith("postgresql://") else "?"
    with database_of(target) as database:
        database.execute(f"CREATE TABLE verdicts ({columns})")
        database.execute(f"INSERT INTO verdicts VALUES ({', '.join([place] * len(OLDER))})", values)  # noqa: S608


@pytest.mark.parametrize("older", [True, False], ids=["older", "fresh"])
@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_a_table_without_the_origins_gets_them(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, older: bool
) -> None:
    target = str(tmp_path / "a.duckdb") if database == "duckdb" else request.getfixturevalue("postgres")
    if older:
        make_older_table(target)
    origin, nearest = Origin("a.jsonl", "line 7"), NearestPage("http://a.example/", "abababab.2.0", 0.7241)
    scanned = [msgspec.structs.replace(each, origin=origin, nearest=nearest) for each in rows(10, 2)]
    for _ in range(2):  # opened again, it has them
        with open_sink(target) as sink:
            sink.append([*rows(5, 1), *scanned], "topic", {0: 12})
            assert sink.offsets("topic") == {0: 12}
    counted = "SELECT origin_file, origin_place, count(*) FROM verdicts GROUP BY 1, 2 ORDER BY 3"
    assert ask(target, counted) == [(None, None, 2 + older), ("a.jsonl", "line 7", 4)]
    columns = "nearest_url, nearest_id, nearest_similarity"
    near = f"SELECT {columns}, count(*) FROM verdicts GROUP BY {columns} ORDER BY 4"  # noqa: S608
    told = ("http://a.example/", "abababab.2.0", 0.7241, 4)
    assert ask(target, near) == [(None, None, None, 2 + older), told]
    assert [name for name, *_ in columns_of(target)] == list(COLUMNS)


def columns_of(target: str) -> list[tuple[Any, ...]]:
    return ask(
        target,
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_name = 'verdicts' ORDER BY ordinal_position",
    )


def test_parquet_files_are_whole_and_say_how_far_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROWS", 25)
    target = tmp_path / "crawl.parquet"
    with open_sink(str(target)) as sink:
        for first in range(0, 50, 10):
            sink.append(rows(first, 10), "topic", {0: first + 10})
        assert [file.name for file in target.glob("*.parquet")] == ["verdicts-000001.parquet"]
        sink.append([], "topic", {0: 51})
    with open_sink(str(target)) as sink:
        assert sink.offsets("topic") == {0: 51}
        with pytest.raises(ExportError, match="another process"), open_sink(str(target)):
            pass
        sink.append(rows(51, 5), "topic", {0: 56})
        with pytest.raises(ExportError, match=r"crawl\.parquet"):
            sink.append([msgspec.structs.replace(rows(56, 1)[0], id=None)], "topic", {0: 57})
    with open_sink(str(target)) as sink:
        assert sink.offsets("topic") == {0: 51}, "what failed took its file along, and nothing else"
        sink.append(rows(51, 6), "other", {1: 57})
    with open_sink(str(target)) as sink:
        assert (sink.offsets("topic"), sink.offsets("other")) == ({0: 51}, {1: 57})
    found = ask(
        str(target), "SELECT count(*), count(DISTINCT source_offset), max(decided_at) > now() FROM verdicts"
    )
    assert found == [(56, 56, False)]


@pytest.mark.parametrize("name", ["crawl.csv", "crawl", "crawl.parquett", "s3://bucket/crawl.parquet"])
def test_a_target_of_no_known_format_is_refused_and_the_formats_are_listed(name: str, tmp_path: Path) -> None:
    target = name if "://" in name else str(tmp_path / name)
    with pytest.raises(SettingsError, match=r"\.duckdb, NAME\.parquet .* postgresql://"), open_sink(target):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="mysql"), open_sink("mysql://host/base"):
        pass
    for file in ("x.duckdb", "x.parquet"):
        with pytest.raises(ExportError, match="nowhere"), open_sink(str(tmp_path / "nowhere" / file)):
            pass
