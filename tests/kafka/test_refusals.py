"""Refusals: anything that could make verdicts wrong ends a role at start, with its name and without
writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from structlog.testing import capture_logs

from stream.errors import RecordError, RefusedError, SchemeMismatchError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.state.state import State
from stream.kafka import broker_metadata, topics
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import plan
from stream.messages.decision import encode_decisions
from stream.messages.journal import Genesis
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import (
    append,
    decided,
    decisions,
    error_of,
    ledgers,
    part,
    record,
    recreate,
    verdicts,
)
from tests.kafka.worker_helpers import admin_of, create, publish, running, waits_for_genesis
from tests.waiting import until, until_transactions_end

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]

PAGES = 6


@dataclass(frozen=True)
class StoppedDeployment:
    """A deployment that judged a few pages and was stopped."""

    settings: Settings
    genesis: Genesis
    records: list[bytes]
    """The journal's records."""

    @property
    def directory(self) -> Any:
        """The judge's state directory."""
        return self.settings.state_dir / self.settings.namespace / "judge"


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


@pytest.fixture
async def ran(settings: Settings) -> StoppedDeployment:
    """The deployment that the tests below damage."""
    genesis = await topics.create(settings, Scheme(), VerdictOptions(), seed=PUBLIC_SEED)
    records = [record(part(0, 0, 2, opening=True)), record(part(0, 2, 4)), record(part(0, 4, PAGES))]
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, *records))
    return StoppedDeployment(settings, genesis, records)


def foreign_state(ran: StoppedDeployment, cluster_id: str, **changes: Any) -> None:
    """Make the judge's directory one of another cluster or genesis."""
    shutil.rmtree(ran.directory)
    genesis = msgspec.structs.replace(ran.genesis, **changes)
    State(ran.directory, genesis, cluster_id, memory=1 << 20, generation=1_000_000, cache=1 << 20).close()


async def cluster_of(settings: Settings) -> str:
    async with broker_metadata.connect(settings) as client:
        return await broker_metadata.cluster_id(client)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cluster_id": "another-cluster"}, "belongs to cluster another-cluster, but bootstrap_servers says"),
        ({"journal": "ef" * 16}, f"journal {'ef' * 16}, but namespace says"),
        ({"scheme_id": "0123456789abcdef"}, "scheme 0123456789abcdef, but scheme says"),
        (
            {"options": VerdictOptions(baselines=3)},
            f"options {VerdictOptions(baselines=3).id}, but verdict options says {VerdictOptions().id}",
        ),
    ],
    ids=["cluster", "journal", "scheme", "options"],
)
async def test_rule_9_state_of_another_cluster_or_journal_is_refused(
    ran: StoppedDeployment, changes: dict[str, Any], named: str
) -> None:
    foreign_state(ran, **{"cluster_id": await cluster_of(ran.settings)} | changes)
    said = await refusal(JudgeRole(ran.settings))
    assert f"state directory {ran.directory}" in said
    assert named in said


@pytest.mark.night
async def test_state_directory_that_another_judge_has_open_is_refused(ran: StoppedDeployment) -> None:
    async with running(JudgeRole(ran.settings.model_copy(update={"checkpoint_interval": 0.1}))):
        (appended,) = await append(ran.settings, record(part(0, PAGES, PAGES + 1)))

        async def ledger_written() -> bool:
            return any(each.end > appended.offset for each in (await ledgers(ran.settings)).values())

        await until(ledger_written)  # the judge that runs writes no more
        assert f"state directory {ran.directory}: in use" in await refusal(JudgeRole(ran.settings))


async def rewrite_journal(ran: StoppedDeployment, *records: bytes) -> None:
    """The journal anew, with the same genesis."""
    await recreate(ran.settings, TopicNames(ran.settings.namespace).journal)
    await append(ran.settings, *records)


async def test_rule_9_state_ahead_of_its_decisions_is_refused(ran: StoppedDeployment) -> None:
    await recreate(ran.settings, TopicNames(ran.settings.namespace).decisions)
    topic, said = TopicNames(ran.settings.namespace).decisions, await refusal(JudgeRole(ran.settings))
    assert f"state directory {ran.directory}: has applied topic {topic} up to" in said
    assert "but it ends at 0" in said


async def test_rule_9_journal_of_the_same_length_with_another_last_record_is_refused(
    ran: StoppedDeployment,
) -> None:
    await rewrite_journal(ran, *ran.records[:-1], record(part(0, 4, PAGES, reseed="other")))
    said = await refusal(JudgeRole(ran.settings))
    assert f"state directory {ran.directory}: built from another journal, whose record 2 differs" in said


@pytest.mark.night
async def test_rule_9_journal_with_the_same_last_record_is_accepted(ran: StoppedDeployment) -> None:
    """The control experiment: rewriting the journal as above does no damage by itself."""
    await rewrite_journal(ran, *ran.records)
    async with running(JudgeRole(ran.settings)):
        await decided(ran.settings, await append(ran.settings, record(part(0, PAGES, PAGES + 1))))
    assert len(await verdicts(ran.settings)) == PAGES + 1


@pytest.mark.night
@pytest.mark.parametrize("missing", [1, 2])
async def test_rule_9_state_beyond_the_end_of_its_journal_is_refused(
    ran: StoppedDeployment, missing: int
) -> None:
    await rewrite_journal(ran, *ran.records[:-missing])
    said = await refusal(JudgeRole(ran.settings))
    assert (
        f"state directory {ran.directory}: has applied topic {ran.settings.namespace}.journal up to 3" in said
    )
    assert f"but it ends at {3 - missing}" in said


@pytest.mark.night
async def test_rule_9_decisions_about_records_that_were_applied_are_refused(ran: StoppedDeployment) -> None:
    """Decisions of another history, and more of them than the state has applied."""
    names = TopicNames(ran.settings.namespace)
    repeated = encode_decisions((await decisions(ran.settings))[0])
    await recreate(ran.settings, names.decisions)
    await append(ran.settings, *[repeated] * 20, topic=names.decisions)
    said = await refusal(JudgeRole(ran.settings))
    assert f"state directory {ran.directory}: topic {names.decisions} offset" in said
    assert "built from other decisions" in said


async def test_record_that_is_no_decision_ends_the_judge_by_its_offset(ran: StoppedDeployment) -> None:
    names = TopicNames(ran.settings.namespace)
    (stands,) = await append(ran.settings, b"not ours", topic=names.decisions)
    error = await error_of(JudgeRole(ran.settings))
    assert isinstance(error, RecordError)
    assert f"decisions offset {stands.offset}" in str(error)


async def test_rule_14_journal_that_would_lose_records_is_refused_by_both_roles(settings: Settings) -> None:
    """It was created correctly, and its configuration was changed later; `test_topics` has the others."""
    names, config = await create(settings), {"retention.ms": "604800000"}
    await publish(settings, [b"page"])
    (planned,) = [each for each in plan(settings) if each.name == names.journal]
    async with admin_of(settings) as admin:
        changed = planned.create_config(dev=True) | config
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names.journal, configs=changed)])

    async def altered() -> bool:
        async with broker_metadata.connect(settings) as client:
            found = (await broker_metadata.topic_configs(client, [names.journal]))[names.journal]
        return config.items() <= found.items()

    await until(altered)
    for role in (JudgeRole(settings), WorkerRole(settings)):
        assert f"{names.journal}: retention.ms is 604800000, must be -1" in await refusal(role)


@pytest.mark.parametrize("kind", [JudgeRole, WorkerRole])
async def test_rule_6_role_started_before_its_topics_waits_for_the_genesis(
    settings: Settings, kind: Callable[[Settings], JudgeRole | WorkerRole]
) -> None:
    role = kind(settings)
    with capture_logs() as logs:
        async with running(role):
            await until(lambda: waits_for_genesis(logs))
            await create(settings)
            await until(lambda: started(settings))


async def started(settings: Settings) -> bool:
    """Whether a member joined the group of workers or of judges."""
    names = TopicNames(settings.namespace)
    async with admin_of(settings) as admin:
        groups = {name for name, *_ in await admin.list_consumer_groups()}
    return bool(groups & {names.workers, names.judge})


@pytest.mark.night
@pytest.mark.parametrize("kind", [JudgeRole, WorkerRole])
async def test_role_that_waits_for_the_genesis_hears_a_stop(
    settings: Settings, kind: Callable[[Settings], JudgeRole | WorkerRole]
) -> None:
    role = kind(settings)
    with capture_logs() as logs:
        async with running(role):
            await until(lambda: waits_for_genesis(logs))


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
