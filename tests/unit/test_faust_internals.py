"""The private parts of Faust that we use or override are there: a version without one fails here."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.stores.rocksdb import Store
from faust.streams import current_event
from faust.transport.consumer import ThreadDelegateConsumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Producer, Transport
from faust.types import TP

from stream.dashboard.counting import committed, faust_internals
from stream.dashboard.counting.row_tables import RowTable
from stream.dashboard.counting.windows import TOTALS, Calendar

SOURCES = [file.read_text("utf-8") for file in Path(faust.__file__).parent.rglob("*.py")]


@pytest.fixture
def table(tmp_path: Path) -> RowTable:
    app = faust.App("dashboard", store="rocksdb://?driver=rocksdict", datadir=str(tmp_path))
    app.conf.tabledir.mkdir(parents=True)
    return RowTable(app, name="urls", partitions=4)


async def test_a_table_has_a_database_for_each_partition(table: RowTable) -> None:
    assert isinstance(table.data, Store)
    assert faust_internals.open_database(table, 2) is None
    opened = faust_internals.database(table, 2)
    assert faust_internals.open_database(table, 2) is opened
    assert faust_internals.open_database(table, 3) is None
    opened.close()


def spoil(directory: Path) -> Path:
    """Flip a bit in the middle of the only data file."""
    (file,) = directory.rglob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return file


async def test_a_damaged_block_is_no_end_of_a_table(
    table: RowTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust's own iteration ends there, and figures were too small without a word."""
    rows = {b'"%06d"' % number: random.Random(number).randbytes(100) for number in range(2000)}
    table.write(1, {table.data.offset_key: b"1999", **rows})
    faust_internals.database(table, 1).flush()
    monkeypatch.setattr(table.data, "_dbs_for_actives", lambda: table.data._dbs.values())
    assert dict(faust_internals.items(table)) == {
        f"{number:06d}": row for number, row in enumerate(rows.values())
    }
    await table.data.stop()
    file = await asyncio.to_thread(spoil, tmp_path)
    faust_internals.database(table, 1)
    with pytest.raises(Exception, match=f"Corruption: .*{file.name}"):
        list(faust_internals.items(table))
    await table.data.stop()


async def test_rows_of_other_dashboards_are_written_before_there_are_a_thousand(table: RowTable) -> None:
    app: Any = table.app
    changelog, recovery = TP("dashboard-urls-changelog", 2), app.tables.recovery
    message = SimpleNamespace(tp=changelog, partition=2, offset=5, key=b'"2/x"', value=b"row")
    recovery.buffers[table].append(SimpleNamespace(message=message))
    assert table.rows(2, [b'"2/x"']) == [None]
    faust_internals.write_standbys(app)
    assert table.rows(2, [b'"2/x"']) == [b"row"]
    assert not recovery.buffers[table]
    await table.data.stop()


def test_changelogs_go_through_a_producer_of_aiokafka(table: RowTable) -> None:
    table.app.producer = SimpleNamespace(_producer="producer")  # type: ignore[assignment]
    assert faust_internals.producer_of(table.app) == "producer"
    assert Producer._producer is None
    assert "self._producer = " in inspect.getsource(Producer)


def test_changelogs_are_created_as_faust_would(table: RowTable) -> None:
    assert faust_internals.changelog_config(table.app, table) == {"cleanup.policy": "compact"}
    table.using_window(Calendar(TOTALS))
    table.extra_topic_configs = {"segment.ms": "1"}
    assert faust_internals.changelog_config(table.app, table) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(round(Calendar(TOTALS).expires * 1000)),
        "segment.ms": "1",
    }
    assert "self._topic_config(retention, compacting, deleting)" in inspect.getsource(
        Transport._really_create_topic
    )


def test_a_consumer_tells_changelogs_apart(table: RowTable) -> None:
    table.app.tables.add(table)
    asked = SimpleNamespace(app=table.app)
    asked._is_changelog_tp = lambda tp: Consumer._is_changelog_tp(asked, tp)
    assert faust_internals.is_changelog(asked, TP(table.changelog_topic_name, 0))
    assert not faust_internals.is_changelog(asked, TP("verdicts", 0))


def test_an_event_is_current_while_it_is_in_scope() -> None:
    class Event:
        pass

    event = Event()
    with faust_internals.in_scope_of(event):
        assert current_event() is event
    assert current_event() is not event


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        (committed._Thread, "_create_worker_consumer"),
        (committed._Thread, "_fetch_records"),
        (committed._Consumer, "_new_consumer_thread"),
        (committed._Consumer, "perform_seek"),
        (committed._Consumer, "seek_to_committed"),
        (committed._Consumer, "_to_message"),
        (committed._Consumer, "ack"),
        (committed._Consumer, "_new_offset"),
        (committed._Consumer, "_add_gap"),
        (RowTable, "_verify_source_topic_partitions"),
        (RowTable, "_to_value"),
    ],
)
def test_what_we_override_is_there(ours: type, name: str) -> None:
    theirs = getattr(super(ours, ours), name)
    overriding = vars(ours)[name]
    assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(overriding)
    assert takes(overriding) <= takes(theirs)
    assert any(f".{name}" in source for source in SOURCES)


def takes(function: Callable[..., Any]) -> int:
    """How many arguments it needs."""
    empty = inspect.Parameter.empty
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(function).parameters.values()
    return sum(each.default is empty and each.kind not in kinds for each in given)


def test_what_our_subclasses_call_is_there() -> None:
    assert Transport.Consumer is Consumer
    assert issubclass(Consumer, ThreadDelegateConsumer)
    for name in ("stop_flow", "_is_changelog_tp"):
        assert callable(getattr(Consumer, name))
    assert inspect.iscoroutinefunction(AIOKafkaConsumerThread.seek_to_beginning)
    assert "self._thread = self._new_consumer_thread()" in inspect.getsource(ThreadDelegateConsumer)
    assert callable(Store.set_persisted_offset)
