"""Topics and the genesis record: made once, checked before any role starts (rules 6, 10 and 14)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream.brokers.local_broker import LocalBroker
from stream.brokers.ports import free_port
from stream.dashboard.role import DashboardRole
from stream.errors import BrokerError, RefusedError, SchemeMismatchError, SettingsError, TopicError
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
from tests.waiting import HANG_SECONDS, until, until_transactions_end

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

        async def known() -> bool:
            found = await broker_metadata.metadata(admin._client, [topic.name for topic in new])
            return len(found.topics) == len(new)

        await until(known)

    return make_topics


async def offsets(settings: Settings) -> dict[str, int]:
    found, _ = await topics.describe(settings)
    return {row.name: row.offsets for row in found}


async def test_created_topics_are_as_planned(settings: Settings, names: TopicNames) -> None:
    made = await topics.create(settings, SCHEME, OPTIONS)
    found, genesis = await topics.describe(settings)
    assert genesis == made
    rows = {row.name: row for row in found}
    assert {name: row.partitions for name, row in rows.items()} == {
        names.pages: 3,
        names.genesis: 1,
        names.journal: 1,
        names.decisions: 1,
        names.requests: 1,
        names.verdicts: 3,
        names.clusters: 1,
        names.rejected: 3,
    }
    assert [row.problems for row in rows.values()] == [()] * 8
    assert rows[names.journal].retention_ms is rows[names.decisions].retention_ms is None
    assert rows[names.clusters].cleanup == rows[names.genesis].cleanup == "compact"
    for role in ("worker", "judge", "publish", "follow", DashboardRole.topics):
        await topics.check(settings, role)


async def test_a_dashboard_without_the_topic_of_requests_is_refused(
    settings: Settings, names: TopicNames, admin: AIOKafkaAdminClient
) -> None:
    await topics.create(settings, SCHEME, OPTIONS)
    await admin.delete_topics([names.requests])

    async def is_gone() -> bool:
        return not (await broker_metadata.metadata(admin._client, [names.requests])).topics

    await until(is_gone)
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


async def test_creating_twice_changes_nothing_and_says_so(settings: Settings) -> None:
    said: list[str] = []
    first = await topics.create(settings, SCHEME, OPTIONS, said.append)
    assert ["created" in said[0], "wrote the genesis" in said[1]] == [True, True]
    await until_transactions_end(settings, [TopicNames(settings.namespace).genesis])
    before = await offsets(settings)
    assert before[TopicNames(settings.namespace).journal] == 0
    said.clear()
    assert await topics.create(settings, SCHEME, OPTIONS, said.append) == first
    assert len(said) == 1
    assert "nothing to do" in said[0]
    assert await offsets(settings) == before


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


@pytest.mark.night
async def test_a_refused_repetition_creates_no_missing_topics(
    settings: Settings, admin: AIOKafkaAdminClient, names: TopicNames
) -> None:
    await topics.create(settings, SCHEME, OPTIONS)
    await admin.delete_topics([names.rejected])

    async def deleted() -> bool:
        return [row.name for row in (await topics.describe(settings))[0] if row.id is None] == [
            names.rejected
        ]

    await until(deleted)
    with pytest.raises(RefusedError, match=r"options\.baselines is 2"):
        await topics.create(settings, SCHEME, VerdictOptions(baselines=3))
    assert await deleted()


@pytest.mark.night
async def test_a_seed_in_a_file_becomes_the_journals(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "seed"
    file.write_text("ab" * 16 + "\n")
    made = await topics.create(settings, Scheme(seed_file=str(file)), OPTIONS)
    assert made.seed == b"\xab" * 16
    assert str(file) not in str(msgspec.structs.asdict(made)), "a path on one machine"
    assert made.seed.hex() not in repr(made)
    assert "xab" not in repr(made)


async def test_a_journal_of_another_behaviour_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await topics.create(settings, SCHEME, OPTIONS)
    monkeypatch.setitem(BEHAVIOUR, "segment", 999)
    with pytest.raises(SchemeMismatchError, match=made.scheme_id):
        await topics.wait_for_genesis(settings)
    with pytest.raises(SchemeMismatchError, match=made.scheme_id):
        await topics.create(settings, SCHEME, OPTIONS)


async def test_a_genesis_with_options_of_another_version_is_refused(
    settings: Settings, names: TopicNames, broker: LocalBroker, make: Make
) -> None:
    await make()
    genesis = genesis_of(SCHEME, OPTIONS)
    later = msgspec.msgpack.decode(encode_genesis(genesis))
    later["options"]["mode"] = "clairvoyant"
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait(names.genesis, msgspec.msgpack.encode(later), key=b"a", partition=0)
    with pytest.raises(RefusedError, match=rf"{names.genesis}: .*run the version that wrote it.*\$\.options"):
        await topics.wait_for_genesis(settings)


async def test_a_namespace_of_another_version_is_refused_with_the_way_on(
    settings: Settings, names: TopicNames, broker: LocalBroker, make: Make
) -> None:
    await make()
    genesis = msgspec.structs.replace(genesis_of(SCHEME, OPTIONS), version=5)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait(names.genesis, encode_genesis(genesis), key=b"a", partition=0)
    said = rf"{names.genesis}: .* use a new namespace .*has version 5, but this program reads version 6"
    with pytest.raises(RefusedError, match=said):
        await topics.wait_for_genesis(settings)
    with pytest.raises(RefusedError, match=said):
        await topics.create(settings, SCHEME, OPTIONS)


@pytest.mark.night
async def test_waiting_ends_when_the_genesis_comes(settings: Settings) -> None:
    waiting = asyncio.create_task(topics.wait_for_genesis(settings))
    with pytest.raises(TopicError, match=r"genesis .*was not written within 0.3 s"):
        await topics.wait_for_genesis(settings, 0.3)
    made = await topics.create(settings, SCHEME, OPTIONS)
    async with asyncio.timeout(HANG_SECONDS):
        assert await waiting == made


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
        await admin.delete_topics([names.genesis])

        async def deleted() -> bool:
            return not (await broker_metadata.metadata(admin._client, [names.genesis])).topics

        await until(deleted)
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
    ("topic", "partitions", "config", "says"),
    [
        ("journal", 2, {}, r"journal: has 2 partitions, must have 1"),
        ("journal", 1, {"retention.ms": "604800000"}, r"journal: retention.ms is 604800000, must be -1"),
        ("journal", 1, {"retention.bytes": "1000000"}, r"journal: retention.bytes is 1000000, must be -1"),
        ("journal", 1, {"cleanup.policy": "compact"}, r"journal: cleanup.policy is compact, must be delete"),
        (
            "journal",
            1,
            {"message.timestamp.type": "CreateTime"},
            r"journal: message.timestamp.type is CreateTime, must be LogAppendTime",
        ),
        (
            "journal",
            1,
            {"unclean.leader.election.enable": "true"},
            r"journal: unclean.leader.election.enable is true, must be false",
        ),
        (
            "journal",
            1,
            {"max.message.bytes": str(JOURNAL_BYTES)},
            rf"journal: max.message.bytes is {JOURNAL_BYTES}, must be at least",
        ),
        ("decisions", 2, {"retention.ms": "5"}, r"decisions: has 2 partitions.*decisions: retention.ms is 5"),
        ("clusters", 1, {"cleanup.policy": "delete"}, r"clusters: cleanup.policy is delete, must be compact"),
    ],
)
async def test_a_topic_that_would_break_exactly_once_is_refused(
    settings: Settings, make: Make, topic: str, partitions: int, config: dict[str, str], says: str
) -> None:
    await make(topic, partitions, **config)
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


async def test_one_broker_without_dev_is_told_of_dev(settings: Settings) -> None:
    with pytest.raises(TopicError, match=r"replication factor 3 .*--dev"):
        await topics.create(settings.model_copy(update={"dev": False}), SCHEME, OPTIONS)


async def test_missing_topics_are_named(settings: Settings, names: TopicNames) -> None:
    with pytest.raises(TopicError, match=f"{names.journal}.*neardup topics create"):
        await topics.check(settings, "worker")
    assert all(row.id is None and row.problems for row in (await topics.describe(settings))[0])


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


async def test_no_broker_is_an_error_that_names_the_option(settings: Settings) -> None:
    nowhere = settings.model_copy(update={"bootstrap_servers": f"127.0.0.1:{free_port()}"})
    for question in (
        topics.create(nowhere, SCHEME, OPTIONS),
        topics.describe(nowhere),
        topics.check(nowhere, "judge"),
    ):
        with pytest.raises(BrokerError, match="bootstrap_servers"):
            await question


def test_a_created_topic_takes_the_largest_record_and_its_batch() -> None:
    topic = TopicPlan("t", 1, 1000, {})
    assert int(topic.create_config(dev=True)["max.message.bytes"]) > 1000
