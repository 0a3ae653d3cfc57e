"""The dashboard's blocks of verdicts: each URL's last ones are found, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import msgspec
import pytest
import xxhash
from faust.types import TP

from stream.dashboard.counting import history
from stream.dashboard.counting.history import KEPT, History
from stream.dashboard.counting.rows import UrlRow
from stream.dashboard.counting.verdict_columns import batch_of, normal
from stream.messages.verdict import VerdictRecord
from tests.kafka.dashboard_helpers import VerdictMaker

PARTITION = 2


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(history, "BLOCK_BYTES", 4000)
    return table_in(tmp_path / "first")


def table_in(path: Path) -> History:
    path.mkdir()
    app = faust.App("dashboard", store="rocksdb://?driver=rocksdict", datadir=str(path))
    return History(app, name="urls", partitions=4)


def crawled(times: int) -> list[VerdictRecord]:
    """URLs that come again and again, and one that comes once."""
    made = VerdictMaker()
    found = [made.one(url=f"http://a.example/{i % 5}") for i in range(5 * times)]
    return [*found, made.one(url="http://once.example/")]


def kept(table: History, verdicts: list[VerdictRecord], first: int = 0) -> dict[bytes, bytes]:
    values = [msgspec.json.encode(each) for each in verdicts]
    return table.keep([batch_of(PARTITION, range(first, first + len(values)), values)])


def ids(verdicts: list[VerdictRecord]) -> list[str]:
    return [each.id for each in verdicts]


def check(table: History, verdicts: list[VerdictRecord]) -> None:
    for url in {each.url or "" for each in verdicts}:
        its = [each for each in verdicts if each.url == url]
        assert table.of(PARTITION, normal(url)) == its[::-1][:KEPT]
    assert table.of(PARTITION, "http://never.example/") == []
    assert table.of(PARTITION + 1, normal("http://once.example/")) == [], "no RocksDB of that partition"


def test_the_last_verdicts_of_each_url_are_found(table: History) -> None:
    verdicts = crawled(2 * KEPT)
    assert len(kept(table, verdicts)) > 3, "in blocks"
    check(table, verdicts)


def test_verdicts_that_come_again_are_found_once_however_they_are_cut(table: History) -> None:
    verdicts = crawled(KEPT)
    for first, last in ((0, 30), (0, 7), (5, 31), (20, len(verdicts))):
        kept(table, verdicts[first:last], first)
    check(table, verdicts)


def test_blocks_recovered_from_the_changelog_are_found(table: History, tmp_path: Path) -> None:
    verdicts = crawled(KEPT)
    rows = kept(table, verdicts)
    changelog = TP("dashboard-urls-changelog", PARTITION)
    before = VerdictRecord(**{**msgspec.structs.asdict(verdicts[-1]), "id": "abcd1234.1.1"})
    digest = xxhash.xxh3_128_hexdigest(normal(before.url or "").encode())
    old = f'"{PARTITION}/{digest}"'.encode()
    rows[old] = msgspec.msgpack.encode(UrlRow(3, [verdicts[-1], before]))
    events: list[Any] = [
        SimpleNamespace(
            message=SimpleNamespace(tp=changelog, offset=i, partition=PARTITION, key=key, value=value)
        )
        for i, (key, value) in enumerate(rows.items())
    ]
    recovered = table_in(tmp_path / "second")
    recovered.apply_changelog_batch(events)
    check(recovered, verdicts[:-1])
    found = recovered.of(PARTITION, normal(before.url or ""))
    assert ids(found) == ids([verdicts[-1], before]), "also those that an earlier version kept"
