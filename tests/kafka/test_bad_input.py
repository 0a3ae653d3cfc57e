"""Bad input: every message gets one verdict, rejected ones also a dead letter, and good pages are
unaffected."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import zstandard
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from jsonschema import Draft202012Validator, FormatChecker

from stream.kafka.names import TopicNames
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import audited, page, text, verdicts
from tests.kafka.worker_helpers import ROOT, admin_of, create, read_all, running

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("children_find_the_tests")]

MIB = 1 << 20
URL = "http://bad.example/"
SCHEMA = json.loads((ROOT / "schemas" / "verdict.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=FormatChecker())


@dataclass(frozen=True)
class Case:
    name: str
    value: bytes | None
    verdict: str = "rejected"
    reason: str | None = None
    url: str | None = URL
    key: bytes | None = None


def message(**fields: Any) -> bytes:
    """A message of these fields; they may replace the URL."""
    return json.dumps({"url": URL, **fields}).encode()


def zstd_of_a_gigabyte() -> bytes:
    """About 30 kB: one frame."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    zeros = bytes(16 * MIB)
    return b"".join(compressor.compress(zeros) for _ in range(64)) + compressor.flush()


def legal(path: str, key: bytes | None = None, **fields: Any) -> Case:
    """A page that looks malformed but is valid."""
    return Case(path, message(url=URL + path, **fields), "unique", url=URL + path, key=key)


def cases() -> list[Case]:
    """One of each kind of what crawlers send, and what nobody should. `tests/unit/test_page_message.py` has
    all that is wrong with messages, `tests/unit/test_ways_in.py` all that is wrong with pages."""
    nested = "<div>" * 100_000
    return [
        Case("no JSON", b"{'url': 1", reason="malformed_json", url=None),
        Case(
            "closed JSON nested deeply",
            b'{"url": "u", "text": "x", "x": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
            reason="bad_url",
            url="u",
        ),
        Case("no value", None, reason="empty_message", url=None, key=b"deleted"),
        Case("an empty message", b"", reason="empty_message", url=None),
        Case("no URL", json.dumps({"text": text("own 2")}).encode(), reason="missing_field", url=None),
        Case("cut gzip", gzip.compress(message(text=text("own 3")))[:-9], reason="bad_compression", url=None),
        Case("a list", b"[1, 2]", reason="wrong_type", url=None),
        Case("a URL that is none", message(url="not a URL", text="x"), reason="bad_url", url="not a URL"),
        Case("a long URL", message(url=URL + "x" * 20_000, text="x"), reason="bad_url", url=None),
        Case("a long key", message(text=text("own 4")), reason="key_too_large", key=b"k" * 100_000),
        Case("20 MB", message(text="x" * 20_000_000), reason="too_large"),
        Case("a gigabyte in zstd", zstd_of_a_gigabyte(), reason="too_large", url=None),
        Case("an empty text", message(text=""), "insufficient"),
        Case("markup without text", message(html="<div><img></div>" * 5000), "insufficient"),
        legal("deep", html=nested + text("deep")),
        legal("nul", text=text("nul").replace(" ", " \0 ")),
        legal("surrogates", text="\ud800 " + text("surrogates") + " \udfff"),
        legal("unknown-fields", text=text("unknown"), x=[{"y": None}], html=None),
        legal("first-time-there-is", text=text("time"), fetched_at=-62_135_596_800_000),
        legal("key", b"\xff\0\xfe", text=text("key")),
        Case("lone surrogates in the URL", message(url=URL + "\ud800", text=text("URL")), "unique",
             url=URL + "\ufffd"),
    ]  # fmt: skip


async def send(settings: Settings, messages: Sequence[Case]) -> dict[tuple[int, int], Case]:
    """Publish one after the other onto all partitions in turn; where each stands."""
    async with AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, max_request_size=64 * MIB, compression_type="gzip"
    ) as producer:
        topic = TopicNames(settings.namespace).pages
        sent = [
            await producer.send(topic, each.value, key=each.key, partition=n % settings.partitions)
            for n, each in enumerate(messages)
        ]
        return {
            (stands.partition, stands.offset): each
            for stands, each in zip([await each for each in sent], messages, strict=True)
        }


def mixed(bad: Sequence[Case]) -> list[Case]:
    """Every case between good pages, so that each partition has many of both."""
    good = [
        Case(f"good {n}", page(f"http://good.example/{n}", n), "unique", url=f"http://good.example/{n}")
        for n in range(2 * len(bad) + 1)
    ]
    return [
        good[-1],
        *(each for n, case in enumerate(bad) for each in (case, good[2 * n], good[2 * n + 1])),
    ]


async def judge(settings: Settings, messages: Sequence[Case]) -> dict[tuple[int, int], Case]:
    """Run the pipeline until every message has its verdict. Fails for repeated or unexpected verdicts."""
    await create(settings)
    places = await send(settings, messages)
    worker = WorkerRole(settings, fingerprinter="tests.kafka.fingerprinters.Treacherous")
    async with running(worker), running(JudgeRole(settings)):
        found = await audited(settings, len(messages))
    assert found.clean, found
    given = await verdicts(settings)
    assert len(given) == len(messages)
    became, due = {}, {}
    for each in given:
        VALIDATOR.validate(each)
        case = places[each["source"]["partition"], each["source"]["offset"]]
        became[case.name] = (each["verdict"], each["reason"], each["url"])
        due[case.name] = (case.verdict, case.reason, case.url)
    assert became == due
    return places


async def letters(settings: Settings, places: dict[tuple[int, int], Case]) -> dict[str, Any]:
    """The dead letters by the names of their cases; fails unless exactly the rejected messages have one."""
    names = TopicNames(settings.namespace)
    found = {}
    topic_ids = {each["source"]["topic_id"] for each in await verdicts(settings)}
    for letter in await read_all(settings, names.rejected):
        headers = {name: value.decode() for name, value in letter.headers}
        case = places[int(headers["partition"]), int(headers["offset"])]
        assert case.name not in found
        assert headers["reason"] == case.reason
        assert headers["topic"] == names.pages
        assert {headers["topic_id"]} == topic_ids
        assert headers["cluster"]
        found[case.name] = letter
    assert set(found) == {case.name for case in places.values() if case.verdict == "rejected"}
    return found


async def test_every_message_ends_as_one_verdict_and_rejected_ones_as_a_dead_letter(
    settings: Settings,
) -> None:
    places = await judge(settings, mixed(cases()))
    buried = await letters(settings, places)
    for case in places.values():
        if case.verdict == "rejected":
            letter = buried[case.name]
            assert (letter.key, letter.value) == (case.key, case.value or b""), case.name
            assert "truncated" not in dict(letter.headers)


@pytest.mark.night
async def test_rule_5_pages_that_hang_or_kill_their_process_are_rejected_alone(settings: Settings) -> None:
    treacherous = [
        Case("hangs", message(text="HANG"), reason="crash", url=None),
        Case("kills", message(text="DIE"), reason="crash", url=None),
        Case("kills too", message(text="DIE"), reason="crash", url=None),
    ]
    short = settings.model_copy(update={"page_deadline": 1.0, "worker_processes": 2})
    places = await judge(short, mixed(treacherous))
    buried = await letters(short, places)
    details = {name: dict(letter.headers)["detail"].decode() for name, letter in buried.items()}
    assert details == {
        "hangs": "took longer than page_deadline (1 s)",
        "kills": "killed by SIGSEGV",
        "kills too": "killed by SIGSEGV",
    }
    assert {letter.value for letter in buried.values()} == {each.value for each in treacherous}


@pytest.mark.night
async def test_message_too_large_for_the_dead_letters_leaves_its_coordinates(settings: Settings) -> None:
    """Compressed, the message fits the pages topic, but dead letters are not compressed."""
    names = await create(settings)
    async with admin_of(settings) as admin:
        change = {"max.message.bytes": str(48 * MIB)}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names.pages, configs=change)])
    large = Case("large", message(text="x" * (33 * MIB)), reason="too_large", key=b"key")
    places = await judge(settings, mixed([large]))
    letter = (await letters(settings, places))["large"]
    assert (letter.key, letter.value, dict(letter.headers)["truncated"]) == (None, b"", b"1")
