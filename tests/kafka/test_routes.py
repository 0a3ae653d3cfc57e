"""Verdicts routed to topics of their own: the same records, committed together. Traces of their pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream.errors import SettingsError, TopicError
from stream.kafka import topics
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings, load
from tests.kafka.judge_helpers import append, audited, page
from tests.kafka.worker_helpers import create, publish, read_all, running

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


TRACES = {f"http://a/{n}": f"00-{n + 1:032x}-{n + 1:016x}-01".encode() for n in range(0, 12, 3)}


async def test_routed_verdicts_are_the_same_records_on_their_own_topics(settings: Settings) -> None:
    """A page's `traceparent` header comes out with its verdict, and only with its own."""
    settings = settings.model_copy(update={"verdict_routes": "duplicate,rejected"})
    names = await create(settings)
    for n in range(12):
        url = f"http://a/{n}"
        headers = [("traceparent", TRACES[url])] if url in TRACES else None
        await append(settings, page(url, n % 4), topic=names.pages, partition=n % 3, headers=headers)
    await publish(settings, [b"no JSON"], partition=2)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 13)).clean

    async def records(topic: str) -> list[tuple[int, bytes, dict[str, Any], tuple[tuple[str, bytes], ...]]]:
        found = sorted(await read_all(settings, topic), key=lambda each: each.partition)
        return [(each.partition, each.key, json.loads(each.value), each.headers) for each in found]

    everything = await records(names.verdicts)
    for verdict, count in (("duplicate", 8), ("rejected", 1)):
        routed = await records(names.route_topic(verdict))
        assert len(routed) == count
        assert routed == [each for each in everything if each[2]["verdict"] == verdict]
    heads = {value["url"]: dict(headers) for _, _, value, headers in everything}
    assert {url: each["traceparent"] for url, each in heads.items() if "traceparent" in each} == TRACES
    assert all(each.keys() >= {"verdict", "scheme"} for each in heads.values())


async def test_a_route_without_its_topic_is_refused(settings: Settings) -> None:
    await create(settings)
    with pytest.raises(TopicError, match=r"verdicts\.unique"):
        await topics.check(settings.model_copy(update={"verdict_routes": "unique"}), "judge")


def test_an_unknown_verdict_is_no_route() -> None:
    with pytest.raises(SettingsError, match="--verdict-routes"):
        load(verdict_routes="duplicate,copies")
