"""Topics and the genesis record: made once, checked before any role starts (rules 6, 10 and 14)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream.dashboard.role import DashboardRole
from stream.errors import RefusedError, SchemeMismatchError, SettingsError, TopicError
from stream.fingerprint.scheme import BEHAVIOUR, Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import broker_metadata, topics
from stream.kafka.names import TopicNames
from stream.kafka.reader import journal_reader
from stream.kafka.topic_plan import JOURNAL_BYTES, TopicPlan, plan
from stream.messages.journal import Genesis, Rows, encode_genesis
from stream.messages.verdict_options import VerdictOptions
from stream.settings import Settings
from tests.genesis import genesis_of
from tests.kafka.judge_helpers import append, recreate
from tests.kafka.worker_helpers import read_all
from tests.kills import killed_command
from tests.waiting import until, until_answer, until_transactions_end

pytestmark = pytest.mark.broker

SCHEME, OPTIONS = Scheme(), VerdictOptions()
Make = Callable[..., Awaitable[None]]


@pytest.fixture
def names(namespace: str) -> TopicNames:
    return TopicNames(namespace)


@pytest.fixture
def make(admin: AIOKafkaAdminClient, settings: Settings) -> Make:
    """Makes all planned topics by hand, one of them otherwise: `make("journal", 2, **{"x.y": "5"})`."""

    async def make_topics(other: str = "", partitions: int | None = None, **config: str) -> None:
        new = []
        for topic in plan(settings):
            wrong = topic.name == f"{settings.namespace}.{other}"
            new.append(
                NewTopic(
                    topic.name,
                    (partitions if wrong else None) or topic.partitions or 2,
                    1,
                    topic_configs=topic.create_config(dev=True) | (config if wrong else {}),
                )
            )
        answer = await admin.create_topics(new)
        assert [code for _, code, _ in answer.topic_errors] == [0] * len(new)

        await until_answer(
            lambda: broker_metadata.metadata(admin._client, [topic.name for topic in new]),
            lambda found: len(found.topics) == len(new),
        )

    return make_topics


async def delete(admin: AIOKafkaAdminClient, topic: str) -> None:
    await admin.delete_topics([topic])
    await until_answer(
        lambda: broker_metadata.metadata(admin._client, [topic]), lambda found: not found.topics
    )


async def test_created_topics_are_as_planned_and_creating_them_again_changes_nothing(
    settings: Settings, names: TopicNames
) -> None:
    said: list[str] = []
    made = await topics.create(settings, SCHEME, OPTIONS, said.append)
    assert ["created" in said[0], "wrote the genesis" in said[1]] == [True, True]
    await until_transactions_end(settings, [names.genesis])
    found, genesis = await topics.describe(settings)
    assert genesis == made
    rows = {row.name: row for row in found}
    wide = (names.pages, names.verdicts, names.rejected)
    single = (names.genesis, names.journal, names.decisions, names.requests, names.clusters)
    partitions = {name: row.partitions for name, row in rows.items()}
    assert partitions == dict.fromkeys(wide, 3) | dict.fromkeys(single, 1)
    assert [row.problems for row in rows.values()] == [()] * 8
    assert rows[names.journal].retention_ms is rows[names.decisions].retention_ms is None
    assert rows[names.clusters].cleanup == rows[names.genesis].cleanup == "compact"
    for role in ("worker", "judge", "publish", "follow", DashboardRole.topics):
        await topics.check(settings, role)
    said.clear()
    assert await topics.create(settings, SCHEME, OPTIONS, said.append) == made
    assert len(said) == 1
    assert "nothing to do" in said[0]
    again, _ = await topics.describe(settings)
    assert {row.name: row.offsets for row in again} == {row.name: row.offsets for row in found}
    assert rows[names.journal].offsets == 0


async def test_a_dashboard_without_the_topic_of_requests_is_refused(
    settings: Settings, names: TopicNames, admin: AIOKafkaAdminClient
) -> None:
    await topics.create(settings, SCHEME, OPTIONS)
    await delete(admin, names.requests)
    with pytest.raises(TopicError, match=f"missing topics: {names.requests} "):
        await topics.check(settings, DashboardRole.topics)


async def test_the_topic_of_kept_pages_is_made_where_an_elector_is_wanted(
    settings: Settings, names: TopicNames
) -> None:
    """In a deployment that was there before, too, and once for each elector."""
    await topics.create(settings, SCHEME, OPTIONS)
    electing = settings.model_copy(update={"elect": "longest"})
    with pytest.raises(TopicError, match=r"missing topics: \w+\.best \("):
        await topics.check(electing, "elector")
    for settings in (electing, electing.model_copy(update={"elect": "newest", "elector_name": "newest"})):
        await topics.create(settings, SCHEME, OPTIONS)
        await topics.check(settings, "elector")
        rows = {row.name: row for row in (await topics.describe(settings))[0]}
        best = rows[names.best(settings.elector_name)]
        assert (best.partitions, best.cleanup) == (3, "compact")
    assert names.best("newest").endswith(".best-newest")


async def test_creators_at_once_give_one_genesis(settings: Settings) -> None:
    made = await asyncio.gather(*(topics.create(settings, SCHEME, OPTIONS) for _ in range(4)))
    assert len({one.journal for one in made}) == 1
    assert made[0] == await topics.wait_for_genesis(settings)


async def test_other_options_are_refused_and_named(settings: Settings) -> None:
    made = await topics.create(settings, SCHEME, OPTIONS)
    other = VerdictOptions(baselines=3)
    named = r"options\.baselines is 2 in the journal, 3 here"
    with pytest.raises(RefusedError, match=named):
        await topics.create(settings, SCHEME, other)
    with pytest.raises(RefusedError, match=named):
        await topics.wait_for_genesis(settings, expect_options=other)
    with pytest.raises(RefusedError, match=r"scheme\.segmenter is 'rjieba' in the journal, 'jieba' here"):
        await topics.wait_for_genesis(settings, expect_scheme=Scheme(segmenter="jieba"))
    found = await topics.wait_for_genesis(settings, expect_scheme=SCHEME, expect_options=OPTIONS)
    assert found == made


async def test_a_journal_has_a_seed_of_its_own_and_keeps_it(settings: Settings, tmp_path: Path) -> None:
    made = await topics.create(settings, SCHEME, OPTIONS)
    assert made.seed != PUBLIC_SEED
    assert made.scheme == SCHEME.with_seed(made.seed)
    assert made.scheme_id != SCHEME.id
    assert await topics.create(settings, SCHEME, OPTIONS) == made
    file = tmp_path / "seed"
    file.write_text(made.seed.hex())
    assert await topics.create(settings, Scheme(seed_file=str(file)), OPTIONS) == made
    file.write_text("0" * 31 + "1")
    with pytest.raises(RefusedError, match=f"another seed.*{made.scheme.seed_digest}"):
        await topics.create(settings, Scheme(seed_file=str(file)), OPTIONS)


@pytest.mark.night
async def test_of_two_creators_with_other_seeds_one_is_refused(settings: Settings, tmp_path: Path) -> None:
    schemes = []
    for name in ("ab", "cd"):
        (tmp_path / name).write_text(name * 16)
        schemes.append(Scheme(seed_file=str(tmp_path / name)))
    done = await asyncio.gather(
        *(topics.create(settings, scheme, OPTIONS) for scheme in schemes), return_exceptions=True
    )
    (made,) = [each for each in done if isinstance(each, Genesis)]
    (refused,) = [each for each in done if isinstance(each, RefusedError)]
    assert made == await topics.wait_for_genesis(settings)
    assert made.seed in (b"\xab" * 16, b"\xcd" * 16)
    assert str(tmp_path) not in str(msgspec.structs.asdict(made)), "a path on one machine"
    assert f"another seed, which cannot be changed: its digest is {made.scheme.seed_digest}" in str(refused)
    assert len(await read_all(settings, TopicNames(settings.namespace).genesis)) == 1


async def test_what_is_refused_creates_no_topics(settings: Settings, names: TopicNames) -> None:
    """They would keep their number of partitions."""
    for scheme, options, named in (
        (Scheme(seed_digest="ab" * 16), OPTIONS, "no seed_file: the scheme was made with another seed"),
        (SCHEME, VerdictOptions.paper(blocks=40), "40 choose 37 makes 9880 tables"),
        (
            Scheme(short_tokens=0),
            VerdictOptions(mode="strict", distance=1, short_distance=3),
            "has no effect with short_tokens=0",
        ),
    ):
        with pytest.raises(SettingsError, match=named):
            await topics.create(settings, scheme, options)
    found, _ = await topics.describe(settings)
    assert {row.id for row in found} == {None}


async def test_a_journal_of_another_behaviour_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await topics.create(settings, SCHEME, OPTIONS)
    monkeypatch.setitem(BEHAVIOUR, "segment", 999)
    with pytest.raises(SchemeMismatchError, match=made.scheme_id):
        await topics.wait_for_genesis(settings)
    with pytest.raises(SchemeMismatchError, match=made.scheme_id):
        await topics.create(settings, SCHEME, OPTIONS)


def with_another_mode(genesis: Genesis) -> bytes:
    later = msgspec.msgpack.decode(encode_genesis(genesis))
    later["options"]["mode"] = "clairvoyant"
    return msgspec.msgpack.encode(later)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (with_another_mode, r"run the version that wrote it.*\$\.options"),
        (
            lambda genesis: encode_genesis(msgspec.structs.replace(genesis, version=5)),
            r"use a new namespace .*has version 5, but this program reads version 6",
        ),
    ],
    ids=["options", "version"],
)
async def test_a_genesis_of_another_version_is_refused_with_the_way_on(
    settings: Settings, names: TopicNames, make: Make, written: Callable[[Genesis], bytes], why: str
) -> None:
    await make()
    await append(settings, written(genesis_of(SCHEME, OPTIONS)), topic=names.genesis, key=b"a")
    for reading in (topics.wait_for_genesis(settings), topics.create(settings, SCHEME, OPTIONS)):
        with pytest.raises(RefusedError, match=f"{names.genesis}: .*{why}"):
            await reading


@pytest.mark.night
async def test_a_topic_of_the_genesis_that_begins_with_something_else_is_refused(
    settings: Settings, names: TopicNames, make: Make
) -> None:
    await make()
    await append(settings, Rows.of(SCHEME, [], [], [], []).encode(), topic=names.genesis, key=b"a")
    with pytest.raises(RefusedError, match=f"{names.genesis}.*offset 0, is not a genesis"):
        await topics.create(settings, SCHEME, OPTIONS)


@pytest.mark.parametrize("topic_of_genesis", ["there", "missing"])
async def test_a_journal_with_its_genesis_inside_is_refused(
    settings: Settings, names: TopicNames, admin: AIOKafkaAdminClient, make: Make, topic_of_genesis: str
) -> None:
    """Earlier versions had no topic for it."""
    await make()
    if topic_of_genesis == "missing":
        await delete(admin, names.genesis)
    old = genesis_of(SCHEME, OPTIONS)
    await append(settings, encode_genesis(old))
    named = f"{names.journal} has records, but {names.genesis} has no genesis.*Use a new namespace"
    with pytest.raises(RefusedError, match=named):
        await topics.wait_for_genesis(settings)
    with pytest.raises(RefusedError, match=named):
        await topics.create(settings, SCHEME, OPTIONS)
    rows, found = await topics.describe(settings)
    assert found == "the genesis cannot be read"
    assert any(re.search(named, problem) for row in rows for problem in row.problems)
    async with journal_reader(settings, 0, old) as reader:

        async def rows() -> bool:
            return bool(await reader.next_rows(1))

        with pytest.raises(RefusedError, match=f"{names.journal} offset 0: a genesis.*use a new namespace"):
            await until(rows)


@pytest.mark.night
async def test_a_genesis_that_was_deleted_is_not_replaced_beside_its_journal(
    settings: Settings, names: TopicNames
) -> None:
    await topics.create(settings, SCHEME, OPTIONS)
    await recreate(settings, names.genesis)
    made = await topics.create(settings, SCHEME, VerdictOptions(baselines=3))  # nothing was fingerprinted yet
    await append(settings, Rows.of(made.scheme, [], [], [], []).encode())
    await recreate(settings, names.genesis)
    for options in (OPTIONS, VerdictOptions(baselines=3)):
        with pytest.raises(RefusedError, match=f"{names.genesis} has no genesis.*the genesis was deleted"):
            await topics.create(settings, SCHEME, options)
    with pytest.raises(RefusedError, match=f"{names.genesis} has no genesis.*the genesis was deleted"):
        await topics.wait_for_genesis(settings)


@pytest.mark.parametrize("place", ["topics.created", "genesis.sent"])
async def test_creator_killed_before_its_genesis_is_committed_is_followed_by_another(
    settings: Settings, names: TopicNames, place: str
) -> None:
    await killed_command(settings, place, "topics", "create")
    with pytest.raises(TopicError, match=r"genesis .*was not written within 0.3 s"):
        await topics.wait_for_genesis(settings, 0.3)
    made = await asyncio.gather(*(topics.create(settings, SCHEME, OPTIONS) for _ in range(2)))
    assert made[0] == made[1] == await topics.wait_for_genesis(settings)
    assert len(await read_all(settings, names.genesis)) == 1


@pytest.mark.parametrize(
    ("topic", "partitions", "config", "must"),
    [
        ("journal", 2, {}, ""),
        ("journal", 1, {"retention.ms": "604800000"}, "must be -1"),
        ("journal", 1, {"retention.bytes": "1000000"}, "must be -1"),
        ("journal", 1, {"cleanup.policy": "compact"}, "must be delete"),
        ("journal", 1, {"message.timestamp.type": "CreateTime"}, "must be LogAppendTime"),
        ("journal", 1, {"unclean.leader.election.enable": "true"}, "must be false"),
        ("journal", 1, {"max.message.bytes": str(JOURNAL_BYTES)}, "must be at least"),
        ("decisions", 2, {"retention.ms": "5"}, "must be -1"),
        ("clusters", 1, {"cleanup.policy": "delete"}, "must be compact"),
    ],
)
async def test_a_topic_that_would_break_exactly_once_is_refused(
    settings: Settings, make: Make, topic: str, partitions: int, config: dict[str, str], must: str
) -> None:
    await make(topic, partitions, **config)
    said = [f"{topic}: {name} is {value}, {must}" for name, value in config.items()]
    said += [f"{topic}: has 2 partitions, must have 1"] * (partitions > 1)
    for says in said:
        with pytest.raises(TopicError, match=says):
            await topics.check(settings, "judge")
        with pytest.raises(TopicError, match=says):
            await topics.create(settings, SCHEME, OPTIONS)


async def test_without_dev_topics_must_be_replicated(
    settings: Settings, names: TopicNames, make: Make
) -> None:
    await make()
    for_good = settings.model_copy(update={"dev": False})
    with pytest.raises(TopicError) as refused:
        await topics.check(for_good, "worker")
    assert f"{names.journal}: replication factor is 1, must be at least 3" in str(refused.value)
    assert f"{names.journal}: min.insync.replicas is 1, must be at least 2" in str(refused.value)
    assert names.pages not in str(refused.value)  # a crawler's topic, which we only read
    with pytest.raises(TopicError, match=r"replication factor 3 .*--dev"):
        await topics.create(
            for_good.model_copy(update={"namespace": f"{names.namespace}-b"}), SCHEME, OPTIONS
        )


@pytest.mark.parametrize("left", ["segments", "candidates"])
async def test_topics_of_an_earlier_version_are_refused_by_name(
    settings: Settings, admin: AIOKafkaAdminClient, left: str
) -> None:
    await topics.create(settings, SCHEME, OPTIONS)
    await topics.check(settings, "judge")
    await admin.create_topics([NewTopic(f"{settings.namespace}.{left}", 1, 1)])
    for question in (topics.create(settings, SCHEME, OPTIONS), topics.check(settings, "judge")):
        with pytest.raises(TopicError, match=f"earlier version.*: {settings.namespace}.{left}.*delete"):
            await question


async def test_a_crawler_s_topic_is_kept_and_verdicts_follow_its_width(
    settings: Settings, names: TopicNames, admin: AIOKafkaAdminClient
) -> None:
    await admin.create_topics([NewTopic(names.pages, 5, 1)])
    await topics.create(settings, SCHEME, OPTIONS)
    found = await broker_metadata.partition_counts(admin._client, [names.pages, names.verdicts])
    assert found == {names.pages: 5, names.verdicts: 5}


def test_a_created_topic_takes_the_largest_record_and_its_batch() -> None:
    topic = TopicPlan("t", 1, 1000, {})
    assert int(topic.create_config(dev=True)["max.message.bytes"]) > 1000
