"""Decisions and journal are trimmed up to what verified checkpoints replace, and never further."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from stream.checkpoints.digests import digest_of_file
from stream.checkpoints.manifest import Manifest, file_object
from stream.errors import BrokerError, CheckpointError, SettingsError, UnsoundTopicError
from stream.kafka import broker_metadata, topics
from stream.kafka.ledger_search import ledger_at
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import TopicReader
from stream.roles.judge.role import JudgeRole
from stream.roles.trimmer import role as trimming_roles
from stream.roles.trimmer import trim as trimming
from stream.roles.trimmer.role import TrimRole, trim_once
from stream.settings import Settings
from tests.checkpointed import flip
from tests.commands import neardup_process, succeeded
from tests.kafka.judge_helpers import delete_records, ledgers, once, part, places, verdicts
from tests.kafka.judged_rounds import (
    ROUND,
    add,
    catalogue,
    change,
    deliver_again,
    judge_rounds,
    kept,
    lose,
    stored,
    with_checkpoints,
)
from tests.kafka.worker_helpers import admin_of, create, read_all, running
from tests.kills import killed_command
from tests.night import cases
from tests.waiting import until

pytestmark = pytest.mark.broker

ROUNDS = 6


@pytest.fixture
async def judged(settings: Settings, tmp_path: Path) -> Settings:
    """A deployment that judged pages in rounds, with a checkpoint after each, and was stopped."""
    disk = tmp_path / "disk"
    disk.mkdir()
    settings = with_checkpoints(settings, disk / "objects")
    await create(settings)
    await judge_rounds(settings, 0, 1)
    await judge_rounds(settings, 1, ROUNDS, ledger=True)
    return settings


async def starts(settings: Settings) -> tuple[int, int]:
    names = TopicNames(settings.namespace)
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [names.decisions, names.journal])
    return tuple(bounds[TopicPartition(topic, 0)].start for topic in (names.decisions, names.journal))  # type: ignore[return-value]


async def ends(settings: Settings) -> dict[int, int]:
    """Offset of each ledger record -> the next journal offset at that time."""
    return {offset: each.end for offset, each in (await ledgers(settings)).items()}


async def configure(settings: Settings, topic: str, changed: dict[str, str]) -> None:
    async with broker_metadata.connect(settings) as client:
        configs = (await broker_metadata.topic_configs(client, [topic]))[topic]
    names = (
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "message.timestamp.type",
        "max.message.bytes",
    )
    wanted = {name: configs[name] for name in names} | changed
    async with admin_of(settings) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=wanted)])


async def goes_on(settings: Settings, rounds: int = ROUNDS) -> None:
    """Pages are delivered again, with new ones, to a judge that lost its state: each has one verdict."""
    lose(settings)
    await deliver_again(settings, rounds)
    assert places(await verdicts(settings)) == once(part(0, 0, rounds * ROUND + 1))


async def test_the_logs_are_trimmed_to_the_oldest_kept_checkpoint(
    judged: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was verified is not read again, and nothing is trimmed twice."""
    oldest, newest, before = kept(judged)[-1], kept(judged)[0], await ends(judged)
    outcome = await trim_once(judged, 0)
    assert not outcome.has_problem, outcome
    assert outcome.held.reason == "checkpoint"
    assert str(oldest.name) in outcome.held.text
    assert await starts(judged) == (oldest.ledger, before[oldest.ledger] - 1)
    assert before[oldest.ledger] <= oldest.applied
    assert outcome.verified == str(newest.name)
    decisions_log, journal_log = outcome.logs
    names = TopicNames(judged.namespace)
    assert (decisions_log.topic, journal_log.topic) == (names.decisions, names.journal)
    assert (decisions_log.before, decisions_log.start) == (0, oldest.ledger)
    assert decisions_log.oldest > 0
    assert min(await ends(judged)) == oldest.ledger
    monkeypatch.setattr(trimming, "verify_whole", None)
    again = await trim_once(judged, 0)
    assert [(each.before, each.start) for each in again.logs] == [(each.start,) * 2 for each in outcome.logs]
    assert again.verified == outcome.verified
    assert not again.has_problem
    monkeypatch.undo()
    await judge_rounds(judged, ROUNDS, ROUNDS + 2, ledger=True)
    further = await trim_once(judged, 0)
    assert all(each.start > each.before for each in further.logs)
    assert not further.has_problem
    await goes_on(judged, ROUNDS + 2)


@pytest.mark.night
async def test_what_is_younger_than_keep_stays(judged: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each time between two ledger records, the earlier one is where the logs start."""
    with monkeypatch.context() as patch:
        patch.setattr(trimming, "VERIFY_SECONDS", 0.0)
        outcome = await trim_once(judged, 0)
    assert outcome.held.reason == "unverified"
    assert all(" h to verify: it may be pruned meanwhile" in each for each in outcome.damaged)
    outcome = await trim_once(judged, 3600)
    assert (outcome.held.reason, outcome.has_problem) == ("keep", False)
    assert outcome.verified == str(kept(judged)[0].name)  # for the time when it is older
    dry = await trim_once(judged, 0, dry_run=True)
    assert [each.start for each in dry.logs] > [0, 0]
    assert await starts(judged) == (0, 0)

    known, limit = await ends(judged), kept(judged)[-1].ledger
    names = TopicNames(judged.namespace)
    appended = {each.offset: each.timestamp for each in await read_all(judged, names.decisions)}
    candidates = [offset for offset in sorted(known) if 0 < offset < limit]
    assert len(candidates) > 1
    genesis = await topics.wait_for_genesis(judged)
    async with broker_metadata.connect(judged) as client:
        run = trimming._Run(judged, genesis, catalogue(judged), client)
        for offset in candidates:
            outcome = await run.trim(appended[offset] + 1, dry_run=False)
            assert outcome.held.reason == "keep"
            start, journal = await starts(judged)
            assert known[start] - 1 == journal
            assert all(appended[each] <= appended[offset] for each in range(start) if each in appended)
            assert start <= offset
    assert start > 0
    await goes_on(judged)


def change_all(settings: Settings, **fields: object) -> None:
    for each in kept(settings):
        change(settings, each, **fields)


def damage_all(settings: Settings) -> None:
    """The files are what was uploaded, and a block of each is damaged."""
    for each in kept(settings):
        damage(settings, each)


async def lose_files(settings: Settings) -> None:
    """A mark that it was verified does not replace the files of a checkpoint."""
    await trim_once(settings, 3600)
    newest = kept(settings)[0]
    shutil.rmtree(stored(settings, f"{newest.journal}/files"))


Act = Callable[[Settings], Awaitable[None] | None]
HELD: list[tuple[Act, str, str]] = [
    # Checkpoints of something else replace nothing.
    (lambda settings: change_all(settings, format=1), "none", "has format 1, but"),
    (lambda settings: change_all(settings, cluster="elsewhere"), "none", "has cluster elsewhere, but"),
    (lambda settings: change_all(settings, ledger=0), "none", "before a ledger record"),
    (damage_all, "unverified", ".sst"),
    (lose_files, "none", "is missing"),
    # One of the logs may have lost records, and whoever restores an older one may need what is left.
    (lambda settings: change(settings, kept(settings)[0], decided=10**6), "logs", "1000000, but it ends at"),
    (lambda settings: change(settings, kept(settings)[0], last=bytes(16)), "logs", "whose record"),
    (lambda settings: change(settings, kept(settings)[0], ledger=1), "logs", "no ledger record .* at 1"),
    (lambda settings: add(settings, kept(settings)[0], applied=10**6), "logs", "1000000, but it ends at"),
    (
        lambda settings: configure(settings, f"{settings.namespace}.decisions", {"min.insync.replicas": "2"}),
        "replicas",
        "decisions: 1 of 1 replicas are in sync, of which 2 are needed",
    ),
]
"""What is done to a deployment, why nothing is trimmed then, and what is said of it."""


@pytest.mark.night
@pytest.mark.parametrize(("act", "reason", "said"), HELD, ids=[said for *_, said in HELD])
async def test_what_holds_the_logs_is_named(judged: Settings, act: Act, reason: str, said: str) -> None:
    done = act(judged)
    if done is not None:
        await done
    outcome = await trim_once(judged, 0)
    assert (outcome.held.reason, outcome.has_problem) == (reason, True)
    if reason in ("none", "unverified"):
        told = outcome.unused or outcome.damaged
        assert len(told) == len(kept(judged))
    else:
        told = [outcome.held.text]
    assert all(re.search(said, each) for each in told)
    assert await starts(judged) == (0, 0)
    if reason == "unverified":
        assert not catalogue(judged).contents(kept(judged)[0].journal).verified


@pytest.mark.night
async def test_damaged_checkpoints_are_named_and_an_older_one_is_verified(judged: Settings) -> None:
    """One of an earlier version's elector, which may need the logs, holds them until it is deleted."""
    earlier = stored(judged, f"{kept(judged)[0].journal}/elector-b/checkpoints/{1:020d}-{'ab' * 16}.json")
    earlier.parent.mkdir(parents=True)
    earlier.write_text("{}")
    outcome = await trim_once(judged, 0, dry_run=True)
    assert (outcome.held.reason, outcome.has_problem) == ("none", True)
    assert "none of the checkpoints of elector-b in " in outcome.held.text
    assert [each.endswith("is of an earlier version") for each in outcome.unused] == [True]
    earlier.unlink()
    assert (await trim_once(judged, 0, dry_run=True)).held.reason == "checkpoint"

    newest, middle, oldest = kept(judged)
    found = catalogue(judged)
    for spoiled, other, spoil in ((newest, middle, flip), (middle, newest, Path.unlink)):
        only = (
            found.read_once(spoiled.name).digests
            - found.read_once(other.name).digests
            - found.read_once(oldest.name).digests
        )
        spoil(stored(judged, file_object(newest.journal, min(only))))
    outcome = await trim_once(judged, 0)
    assert outcome.verified == str(oldest.name)
    assert outcome.has_problem
    first, second = outcome.damaged
    assert f"checkpoint {middle.name}: " in first
    assert "is missing, or has another size" in first
    assert f"checkpoint {newest.name}: " in second
    assert "is damaged: it is not what was uploaded" in second
    assert (await starts(judged))[0] == oldest.ledger
    await goes_on(judged)


def damage(settings: Settings, manifest: Manifest) -> None:
    """Store a checkpoint again, as if a bit of each data file had been wrong before it was uploaded."""
    files = []
    for each in manifest.files:
        file = each
        if each.name.endswith(".sst"):
            path = stored(settings, "damaged")
            shutil.copy(stored(settings, file_object(manifest.journal, each.digest)), path)
            flip(path)
            file = msgspec.structs.replace(each, digest=digest_of_file(path))
            path.rename(stored(settings, file_object(manifest.journal, file.digest)))
        files.append(file)
    change(settings, manifest, files=files)


@pytest.mark.parametrize("failpoint", cases(["trim.decisions", "trim.journal"], by_day=["trim.decisions"]))
async def test_a_trimmer_that_is_killed_between_the_topics_goes_on(judged: Settings, failpoint: str) -> None:
    oldest, known = kept(judged)[-1], await ends(judged)
    await killed_command(judged, failpoint, "trim", "--keep", "0")
    journal = known[oldest.ledger] - 1
    assert await starts(judged) == (oldest.ledger, journal if failpoint == "trim.journal" else 0)
    if failpoint == "trim.decisions":
        lose(judged)
        async with running(JudgeRole(judged)):  # whoever starts now is not held up
            await until(lambda: (judged.state_dir / judged.namespace / "judge" / "CURRENT").exists())
    printed, _ = await succeeded(judged, "trim", "--keep", "0s", "--json")
    assert json.loads(printed)["held"]["reason"] == "checkpoint"
    start, journal_start = await starts(judged)
    assert start >= oldest.ledger
    assert journal_start >= journal
    await goes_on(judged)


@pytest.mark.night
async def test_what_another_one_trims_meanwhile_is_left_to_it(
    judged: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or by hand, which is named."""
    newest, _, oldest = kept(judged)

    async def deleted_before(decisions: TopicReader, offset: int) -> object:
        await delete_records(judged, decisions.topic, offset + 1)
        return await ledger_at(decisions, offset)

    with monkeypatch.context() as patch:
        patch.setattr(trimming, "ledger_at", deleted_before)
        outcome = await trim_once(judged, 0)
    assert outcome.held.reason == "logs"
    assert f"offset {oldest.ledger} is needed, but it contains" in outcome.held.text
    assert "it was trimmed meanwhile" in outcome.held.text
    assert (await starts(judged))[1] == 0

    await delete_records(judged, f"{judged.namespace}.decisions", oldest.decided + 1)
    outcome = await trim_once(judged, 0)
    assert (
        f"checkpoint {oldest.name}: needs decisions from {oldest.decided}, but they start at"
        in (outcome.unused[0])
    )
    await delete_records(judged, f"{judged.namespace}.journal", newest.applied)
    outcome = await trim_once(judged, 0)
    assert outcome.held.reason == "none"
    assert any("needs the journal from" in each for each in outcome.unused)
    assert len(outcome.unused) == 3


def metrics_of(role: TrimRole) -> Callable[..., float]:
    def value(name: str, **labels: str) -> float:
        found = role.watch.metrics.registry.get_sample_value(f"neardup_trim_{name}", labels)
        return 0.0 if found is None else found

    return value


@pytest.mark.night
async def test_the_role_trims_again_and_again_and_says_what_holds_it_up(
    judged: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is away, at first; a store that is, later."""
    topic = TopicNames(judged.namespace).journal

    async def ask() -> None:
        raise BrokerError(f"topic {topic}: its leader does not answer")

    async def no_answer(*_: object) -> None:
        await retry_until_answered(f"topic {topic}", ask)

    monkeypatch.setattr(trimming_roles, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(trimming_roles, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(trimming, "settled_bounds", no_answer)
    with pytest.raises(BrokerError, match=f"waited 0.5 s for topic {topic}: ") as error:
        await trim_once(judged, 0)
    assert (error.value.exit_code, await starts(judged)) == (2, (0, 0))
    disk = Path(judged.checkpoints or "").parent
    moved = disk.with_name("moved")
    role = TrimRole(judged, keep=0.0, every=0.2)
    async with running(role):  # type: ignore[type-var]
        value = metrics_of(role)
        await until(lambda: value("held", reason="brokers"))
        assert f"for topic {topic}" in (role.watch.health.trouble or "")
        monkeypatch.undo()
        await until(lambda: value("held", reason="checkpoint"))
        start, journal = await starts(judged)
        assert value("log_start", topic="decisions") == start
        assert value("log_start", topic="journal") == journal
        assert value("deleted_offsets_total", topic="decisions") == start
        assert value("verified_timestamp_seconds") == kept(judged)[0].time / 1000
        assert 0 < value("oldest_timestamp_seconds", topic="journal") <= time.time()
        assert (await role.watch.health.ready())[0]
        done = value("completed_timestamp_seconds")
        await until(lambda: value("completed_timestamp_seconds") > done)
        await asyncio.to_thread(disk.rename, moved)
        await until(lambda: value("held", reason="store"))
        assert not (await role.watch.health.ready())[0]
        done = value("completed_timestamp_seconds")
        await asyncio.to_thread(moved.rename, disk)
        await judge_rounds(judged, ROUNDS, ROUNDS + 2, ledger=True)
        await until(lambda: value("log_start", topic="decisions") > start)
        assert value("completed_timestamp_seconds") > done
        assert role.ops_url is not None
        async with aiohttp.ClientSession() as session, session.get(f"{role.ops_url}/readyz") as answer:
            assert answer.status == 200
    await goes_on(judged, ROUNDS + 2)


async def test_the_command_says_what_it_did_or_why_it_did_nothing(judged: Settings) -> None:
    with pytest.raises(UnsoundTopicError, match=r"replication factor is 1"):
        await trim_once(judged.model_copy(update={"dev": False}), 0)
    with pytest.raises(SettingsError, match="checkpoints: not set"):
        await trim_once(judged.model_copy(update={"checkpoints": None}), 0)
    away = judged.model_copy(update={"checkpoints": str(Path(judged.checkpoints or "") / "a" / "b")})
    with pytest.raises(CheckpointError, match="checkpoints: "):
        await trim_once(away, 0)
    printed, _ = await succeeded(judged, "trim", "--keep", "0", "--dry-run")
    assert "decisions: would be trimmed: deletes 0 to" in printed
    assert await starts(judged) == (0, 0)
    printed, _ = await succeeded(judged, "trim", "--keep", "0")
    start, journal = await starts(judged)
    assert f"{judged.namespace}.decisions: deletes 0 to {start}, keeps {start} to" in printed
    assert f"{judged.namespace}.journal: deletes 0 to {journal}, keeps {journal} to" in printed
    assert "held up (checkpoint): checkpoint " in printed
    shutil.rmtree(stored(judged, kept(judged)[0].journal))
    code, printed, errors = await neardup_process(judged, "trim", "--keep", "0")
    assert code == 1, errors
    assert "held up (none): " in printed
    code, _, errors = await neardup_process(judged, "trim", "--every", "1h", "--dry-run")
    assert code == 78, errors
    assert "--every: trims again and again" in errors
