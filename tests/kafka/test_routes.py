"""Verdicts routed to topics of their own: the same records, committed together."""

from __future__ import annotations

import json

import pytest

from stream.errors import SettingsError, TopicError
from stream.kafka import topics
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings, load
from tests.kafka.judge_helpers import audited, page
from tests.kafka.worker_helpers import create, publish, read_all, running

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


async def test_routed_verdicts_are_the_same_records_on_their_own_topics(settings: Settings) -> None:
    settings = settings.model_copy(update={"verdict_routes": "duplicate,rejected"})
    names = await create(settings)
    pages = [page(f"http://a/{n}", n % 4) for n in range(12)]
    await publish(settings, [*pages, b"no JSON"], partition=2)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, 13)).clean
    everything = [(r.partition, r.key, r.value, r.headers) for r in await read_all(settings, names.verdicts)]
    for verdict, count in (("duplicate", 8), ("rejected", 1)):
        routed = [
            (r.partition, r.key, r.value, r.headers)
            for r in await read_all(settings, names.route_topic(verdict))
        ]
        assert len(routed) == count
        assert routed == [each for each in everything if json.loads(each[2])["verdict"] == verdict]


async def test_a_route_without_its_topic_is_refused(settings: Settings) -> None:
    await create(settings)
    with pytest.raises(TopicError, match=r"verdicts\.unique"):
        await topics.check(settings.model_copy(update={"verdict_routes": "unique"}), "judge")


def test_an_unknown_verdict_is_no_route() -> None:
    with pytest.raises(SettingsError, match="--verdict-routes"):
        load(verdict_routes="duplicate,copies")
