"""Refusals: anything that could make verdicts wrong ends a role at start, with its name and without
writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from structlog.testing import capture_logs

from stream.errors import RecordError, RefusedError, SchemeMismatchError
from stream.fingerprint.scheme import Scheme
from stream.kafka import broker_metadata
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import plan
from stream.messages.decision import encode_decisions
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import (
    append,
    decided,
    decisions,
    part,
    record,
    recreate,
    verdicts,
)
from tests.kafka.judged_rounds import directory
from tests.kafka.worker_helpers import admin_of, create, error_of, get, publish, running, waits_for_genesis
from tests.waiting import until, until_answer, until_transactions_end

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


async def ends(settings: Settings) -> dict[Any, LogBounds]:
    """Where the logs of all topics that a role writes begin and end."""
    names = TopicNames(settings.namespace)
    written = [names.genesis, names.journal, names.decisions, names.verdicts, names.clusters, names.rejected]
    await until_transactions_end(settings, written)
    async with broker_metadata.connect(settings) as client:
        return await broker_metadata.log_bounds(client, written)


async def refusal(role: WorkerRole | JudgeRole) -> str:
    """Return why a role refuses to start. Fails if the role wrote anything."""
    before = await ends(role.settings)
    error = await error_of(role)
    assert isinstance(error, RefusedError), repr(error)
    assert await ends(role.settings) == before
    return str(error)


async def test_rule_9_decisions_of_another_history_are_refused(settings: Settings) -> None:
    """What is no decision, decisions that end before the state, and those about records that were applied.
    `tests/life_of_states.py` has states of another cluster or journal."""
    names = await create(settings)
    records = [record(part(0, 0, 2, opening=True)), record(part(0, 2, 4)), record(part(0, 4, 6))]
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, *records))
    repeated = encode_decisions((await decisions(settings))[0])
    state = f"state directory {directory(settings)}: "

    (stands,) = await append(settings, b"not ours", topic=names.decisions)
    error = await error_of(JudgeRole(settings))
    assert isinstance(error, RecordError)
    assert f"decisions offset {stands.offset}" in str(error)

    await recreate(settings, names.decisions)
    said = await refusal(JudgeRole(settings))
    assert f"{state}has applied topic {names.decisions} up to" in said
    assert "but it ends at 0" in said

    await append(settings, *[repeated] * 20, topic=names.decisions)
    said = await refusal(JudgeRole(settings))
    assert f"{state}topic {names.decisions} offset" in said
    assert "built from other decisions" in said


async def test_rule_14_journal_that_would_lose_records_is_refused_by_both_roles(settings: Settings) -> None:
    """It was created correctly, and its configuration was changed later; `test_topics` has the others."""
    names, config = await create(settings), {"retention.ms": "604800000"}
    await publish(settings, [b"page"])
    (planned,) = [each for each in plan(settings) if each.name == names.journal]
    async with admin_of(settings) as admin:
        changed = planned.create_config(dev=True) | config
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names.journal, configs=changed)])

    async with broker_metadata.connect(settings) as client:
        await until_answer(
            lambda: broker_metadata.topic_configs(client, [names.journal]),
            lambda found: config.items() <= found[names.journal].items(),
        )
    for role in (JudgeRole(settings), WorkerRole(settings)):
        assert f"{names.journal}: retention.ms is 604800000, must be -1" in await refusal(role)


@pytest.mark.parametrize("kind", [JudgeRole, WorkerRole])
async def test_rule_6_role_started_before_its_topics_waits_for_the_genesis(
    settings: Settings, kind: Callable[[Settings], JudgeRole | WorkerRole]
) -> None:
    """It is alive and not ready meanwhile, and hears a stop."""
    names = TopicNames(settings.namespace)

    async def joined() -> bool:
        async with admin_of(settings) as admin:
            groups = {name for name, *_ in await admin.list_consumer_groups()}
        return bool(groups & {names.workers, names.judge})

    for stopped in (True, False):
        with capture_logs() as logs:
            async with running(kind(settings)) as role:
                await until(lambda logs=logs, role=role: waits_for_genesis(logs) and role.ops_url)
                status, said = await get(role, "/livez")
                assert (status, said["live"], said["excused"]) == (200, True, "waiting for the genesis")
                status, said = await get(role, "/readyz")
                assert (status, said["ready"], said["checks"]) == (503, False, {})
                if not stopped:
                    await create(settings)
                    await until(joined)


@pytest.mark.night
async def test_journal_record_of_another_scheme_ends_the_judge_unjudged(settings: Settings) -> None:
    names = await create(settings)
    other = Scheme(segmenter="jieba")
    await append(settings, record(part(0, 0, 2, opening=True), scheme=other))
    error = await error_of(JudgeRole(settings))
    assert isinstance(error, SchemeMismatchError)
    assert f"topic {names.journal} offset 0" in str(error)
    assert other.id in str(error)
    assert await verdicts(settings) == []
