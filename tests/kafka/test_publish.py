"""What is published is on the topic, once and in order by key; what cannot be is named."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream.errors import BrokerError, PageError, TopicError
from stream.kafka.names import TopicNames
from stream.roles.publisher import key_of, publish
from stream.settings import Settings, load
from stream.sources.jsonl import JsonlSource
from stream.sources.rejections import Rejections
from stream.sources.source import Message
from tests.kafka.worker_helpers import read_all

pytestmark = pytest.mark.broker

LIMIT = 1_000_000


@pytest.fixture
async def topic(settings: Settings, admin: AIOKafkaAdminClient) -> AsyncIterator[str]:
    name = TopicNames(settings.namespace).pages
    configs = {"max.message.bytes": str(LIMIT)}
    await admin.create_topics([NewTopic(name, settings.partitions, 1, topic_configs=configs)])
    yield name
    await admin.delete_topics([name])


async def published(settings: Settings, topic: str) -> list[list[tuple[bytes | None, bytes]]]:
    """(key, value) of every record, partition by partition."""
    records: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(settings.partitions)]
    for each in await read_all(settings, topic):
        records[each.partition].append((each.key, each.value))
    return records


def by_key(records: Iterable[tuple[bytes | None, bytes]]) -> dict[bytes | None, list[bytes]]:
    values: dict[bytes | None, list[bytes]] = {}
    for key, value in records:
        values.setdefault(key, []).append(value)
    return values


def jsonl(path: Path, lines: list[bytes]) -> JsonlSource:
    path.write_bytes(b"\n".join(lines))
    return JsonlSource(str(path))


def line(url: str, text: str) -> bytes:
    return json.dumps({"url": url, "text": text}).encode()


async def test_every_message_is_published_once_and_a_url_stays_in_order(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    lines = [line(f"http://h{n % 7}.example/{n % 50}", f"visit {n} " + "x" * 500) for n in range(3000)]
    sources = [jsonl(tmp_path / "a.jsonl", lines[:2000]), jsonl(tmp_path / "b.jsonl", lines[2000:])]
    seen: list[tuple[int, int]] = []
    assert await publish(settings, sources, progress=lambda *told: seen.append(told)) == 3000
    assert seen[-1] == (3000, sum(source.total_bytes or 0 for source in sources))
    assert seen == sorted(seen)
    records = await published(settings, topic)
    assert sorted(value for part in records for _, value in part) == sorted(lines)
    assert all(part for part in records)
    assert by_key(record for part in records for record in part) == by_key(
        (json.loads(value)["url"].encode(), value) for value in lines
    )
    assert sum(len(by_key(part)) for part in records) == 350, "a URL stays on one partition"


async def test_a_page_that_the_topic_does_not_take_is_named(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    noise = random.Random(1).randbytes(2 * LIMIT).hex()  # half its size compressed: still too large
    lines = [line("http://a.example/1", "x"), line("http://a.example/2", noise)]
    with pytest.raises(PageError, match=r"too_large: .*a\.jsonl line 2.*max\.message\.bytes"):
        await publish(settings, [jsonl(tmp_path / "a.jsonl", lines)])


async def test_a_damaged_source_is_named_and_what_was_read_is_published(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    class Damaged(JsonlSource):
        def _read(self) -> Iterator[Message]:
            yield from super()._read()
            raise PageError("damaged_source", "here")

    (tmp_path / "a.jsonl").write_bytes(line("http://a.example/1", "x"))
    with pytest.raises(PageError, match="here"):
        await publish(settings, [Damaged(str(tmp_path / "a.jsonl"))])
    assert sum(map(len, await published(settings, topic))) == 1


async def test_a_missing_topic_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(TopicError, match=TopicNames(settings.namespace).pages):
        await publish(settings, [jsonl(tmp_path / "a.jsonl", [b"{}"])])


async def test_a_missing_broker_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
        await publish(load(bootstrap_servers="127.0.0.1:1"), [jsonl(tmp_path / "a.jsonl", [b"{}"])])


@pytest.mark.parametrize(
    ("url", "key", "expected"),
    [
        ("http://A.example:80/x", "url", b"http://a.example/x"),
        ("http://A.example:80/x", "host", b"a.example"),
        ("http://A.example:80/x", "none", b"own"),
        ("http://[broken", "host", b"own"),
        (None, "url", b"own"),
    ],
)
def test_the_key_is_the_url_or_its_host(url: str | None, key: str, expected: bytes) -> None:
    assert key_of(Message(b"{}", url, "here", key=b"own"), key) == expected  # type: ignore[arg-type]


@pytest.mark.night
async def test_pages_are_published_as_they_are_and_those_that_workers_will_reject_are_named(
    settings: Settings, topic: str, tmp_path: Path
) -> None:
    """What has no URL has no key. A page is as large as the topic takes it compressed. The rate is kept."""
    urls = {f"http://a.example/{n}": "x" for n in range(45)} | {"http://a.example/large": "x" * 3 * LIMIT}
    lines = [
        b'{"doc_id": 7, "text": "x"}',
        b"\xff",
        b'{"url": "nowhere", "text": "x"}',
        b'{"url": "http://b.example/", "warc_filename": "a.warc", "warc_offset": 0}',
        *(line(*each) for each in urls.items()),
    ]
    source, rejections, started = jsonl(tmp_path / "a.jsonl", lines), Rejections(), time.monotonic()
    assert await publish(settings, [source], rate=100, rejections=rejections) == len(lines) == 50
    assert time.monotonic() - started >= 49 / 100
    assert rejections.counts == {"missing_field": 1, "malformed_json": 1, "bad_url": 1}
    assert rejections.examples["missing_field"] == (
        f"{tmp_path}/a.jsonl line 1: `url` is missing; the page has `doc_id`, `text`"
    )
    records = [record for part in await published(settings, topic) for record in part]
    assert sorted(value for _, value in records) == sorted(lines)
    assert {*lines[:2]} <= {value for key, value in records if key is None}
