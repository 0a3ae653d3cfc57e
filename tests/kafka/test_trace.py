"""A page's `traceparent` header comes out with its verdict, and only with its own."""

from __future__ import annotations

import json

import pytest
from aiokafka import AIOKafkaProducer

from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import audited, page
from tests.kafka.worker_helpers import create, read_all, running

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]

TRACES = {f"http://a/{n}": f"00-{n + 1:032x}-{n + 1:016x}-01".encode() for n in range(0, 12, 3)}


async def test_trace_of_a_page_is_that_of_its_verdict(settings: Settings) -> None:
    names = await create(settings)
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers) as producer:
        for n in range(12):
            url = f"http://a/{n}"
            headers = [("traceparent", TRACES[url])] if url in TRACES else None
            await producer.send_and_wait(names.pages, page(url, n % 4), partition=n % 3, headers=headers)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 12)).clean
    found = {
        json.loads(each.value)["url"]: dict(each.headers) for each in await read_all(settings, names.verdicts)
    }
    assert {url: heads["traceparent"] for url, heads in found.items() if "traceparent" in heads} == TRACES
    assert all(heads.keys() >= {"verdict", "scheme"} for heads in found.values())
