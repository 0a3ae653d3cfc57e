"""Creates and describes the topics of a deployment, and checks them before a role starts (rules 6 and 14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    InvalidReplicationFactorError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from stream.errors import RefusedError, TopicError, UnsoundTopicError
from stream.failpoints import reach
from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.kafka import broker_metadata, clients
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.genesis import (
    agreed_genesis,
    read_genesis,
    refuse_records_without_genesis,
    wait_for_genesis,
    write_genesis,
)
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import REPLICAS, Role, TopicPlan, plan
from stream.kafka.verdict_values import AvroVerdicts
from stream.messages.journal import Genesis
from stream.messages.verdict_options import VerdictOptions
from stream.settings import AVRO, Settings

__all__ = ["TopicRow", "check", "create", "describe", "wait_for_genesis"]

CREATE_SECONDS: Final = 30.0
_FENCED: Final = "brokers are currently fenced"
"""What a controller says of brokers that have not told it yet that they live."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A row of `neardup topics describe`."""

    name: str
    id: str | None
    """Topic id; None if the topic is missing."""
    partitions: int
    replicas: int
    offsets: int
    """Number of offsets in its logs, including transaction markers and compacted records."""
    cleanup: str
    retention_ms: int | None
    """Retention; None for unlimited."""
    problems: tuple[str, ...]
    """Differences from the required configuration."""
    markers: bool = False
    """Whether `offsets` includes transaction markers, and hence exceeds the number of records."""


@clients.with_translated_errors
async def create(
    settings: Settings,
    scheme: Scheme,
    options: VerdictOptions,
    progress: Callable[[str], None] | None = None,
    *,
    seed: bytes | None = None,
) -> Genesis:
    """Create missing topics, and write the journal's genesis. Repeating it changes nothing.

    The journal's fingerprints are keyed by `seed` (16 bytes), else by that of the scheme's file, else by a
    random one. `progress` is called with lines of text. Raises TopicError if a topic cannot be created or has
    another form, RefusedError if the journal has another scheme, options or seed, SettingsError if the
    options allow no tables, BrokerError if no broker answers, and UnavailableError if a required schema
    registry is unreachable.
    """
    names = TopicNames(settings.namespace)
    if seed is None and scheme.seed_file:
        seed = scheme.seed()
    # Whatever is refused is refused before anything is created.
    Rule(options, scheme).design()
    avro = AvroVerdicts(settings) if settings.verdict_format == AVRO else None
    async with clients.open_client(settings, clients.admin(settings)) as admin:
        await agreed_genesis(client_of(admin), settings, scheme, options, seed)
        verdict_topics = [names.verdicts, *map(names.route_topic, settings.routes)]
        number = await asyncio.to_thread(avro.register, verdict_topics) if avro else None
        # The pages topic may be an existing one of a crawler. The others get the same number of partitions.
        pages, *others = plan(settings)
        created = await _create_missing(admin, _requests([pages], settings.partitions, dev=settings.dev))
        width = (await broker_metadata.partition_counts(client_of(admin), [pages.name]))[pages.name]
        created += await _create_missing(admin, _requests(others, width, dev=settings.dev))
        await _check(client_of(admin), settings, None)
        reach("topics.created")
        genesis, written = await write_genesis(client_of(admin), settings, scheme, options, seed)
    progress = progress or _log.info
    if created:
        progress(f"created {', '.join(created)}")
    wanted_width = settings.partitions if "partitions" in settings.model_fields_set else width
    if wanted_width != width:
        progress(
            f"partitions: {pages.name} keeps its {width} partitions, {wanted_width} has no effect: adding"
            " some would move URLs to other partitions; use a new namespace for another number"
        )
    if written:
        progress(f"wrote the genesis of journal {genesis.journal} to {names.genesis}")
    else:
        progress(f"{names.genesis} already has a genesis with this scheme and these options: nothing to do")
    if number is not None:
        progress(f"registered the schema of verdicts with id {number}")
    return genesis


def _requests(plans: Sequence[TopicPlan], width: int, *, dev: bool) -> list[NewTopic]:
    replicas = 1 if dev else REPLICAS
    return [
        NewTopic(each.name, each.partitions or width, replicas, topic_configs=each.create_config(dev=dev))
        for each in plans
    ]


async def _create_missing(admin: AIOKafkaAdminClient, topics: Sequence[NewTopic]) -> list[str]:
    """Create missing topics, and wait until every broker knows all of them. Returns the names of created
    ones."""
    created: list[str] = []
    names = [topic.name for topic in topics]
    deadline = asyncio.get_running_loop().time() + CREATE_SECONDS
    while True:
        existing = (await broker_metadata.metadata(client_of(admin), names)).topics
        missing = [topic for topic in topics if topic.name not in existing]
        if not missing and await _is_known_to_all_brokers(client_of(admin), names):
            return created
        if asyncio.get_running_loop().time() > deadline:
            named = ", ".join(topic.name for topic in missing) or "some brokers do not know all leaders"
            raise TopicError(f"the topics are not ready after {CREATE_SECONDS:g} s: {named}")
        created += await _request_creation(admin, missing)
        await asyncio.sleep(broker_metadata.PAUSE_SECONDS)


async def _is_known_to_all_brokers(client: AIOKafkaClient, names: Sequence[str]) -> bool:
    """Return whether all brokers know these topics and their leaders, since any may get the next request."""
    for broker in client.cluster.brokers():
        listed = (await broker_metadata.metadata(client, names, broker.nodeId)).topics
        partitions = (partition for topic in listed.values() for partition in topic.partitions.values())
        if len(listed) < len(names) or any(partition.leader < 0 for partition in partitions):
            return False
    return True


async def _request_creation(admin: AIOKafkaAdminClient, topics: Sequence[NewTopic]) -> list[str]:
    replicas = {topic.name: topic.replication_factor for topic in topics}
    created = []
    for name, code, message in (await admin.create_topics(list(topics))).topic_errors if topics else ():
        error = for_code(code)
        if not code:
            created.append(name)
        elif error is TopicAuthorizationFailedError:
            raise TopicAuthorizationFailedError(name, "(Create)")
        elif error is InvalidReplicationFactorError and _FENCED in (message or ""):
            continue  # all of them are starting, or were slow for a moment: asked again
        elif error is InvalidReplicationFactorError:
            raise TopicError(
                f"topic {name}: replication factor {replicas[name]} was refused: {message} "
                "(for a single broker use --dev or NEARDUP_DEV=true)"
            )
        elif error is not TopicAlreadyExistsError and not error.retriable:
            raise TopicError(f"topic {name}: {message or error.__name__}")
    return created


@clients.with_translated_errors
async def describe(settings: Settings) -> tuple[list[TopicRow], Genesis | str]:
    """Return one row per topic, including missing ones, and the genesis, or why there is none.

    A genesis that cannot be read, or is missing beside the records of a journal, is a problem of its topic.
    Raises BrokerError if no broker answers.
    """
    plans = plan(settings)
    async with broker_metadata.connect(settings) as client:
        existing = (await broker_metadata.metadata(client, [topic.name for topic in plans])).topics
        configs = await broker_metadata.topic_configs(client, existing)
        bounds = await broker_metadata.log_bounds(client, existing)
        genesis: Genesis | str
        unreadable: tuple[str, ...] = ()
        try:
            written = await read_genesis(client, settings)
            if written is None:
                await refuse_records_without_genesis(client, settings)
            genesis = written or "the journal has no genesis yet"
        except (RefusedError, KafkaError) as error:
            genesis = "the genesis cannot be read"
            unreadable = (f"{genesis}: {error}",)
    rows = []
    for topic in plans:
        present = existing.get(topic.name)
        of_genesis = unreadable if topic.name == TopicNames(settings.namespace).genesis else ()
        if present is None:
            problems = (f"{topic.name}: is missing", *of_genesis)
            rows.append(TopicRow(topic.name, None, 0, 0, 0, "", None, problems))
            continue
        config = configs[topic.name]
        retention = int(config["retention.ms"])
        rows.append(
            TopicRow(
                name=topic.name,
                id=present.id,
                partitions=len(present.partitions),
                replicas=min(partition.replicas for partition in present.partitions.values()),
                offsets=sum(b.end - b.start for key, b in bounds.items() if key.topic == topic.name),
                cleanup=config["cleanup.policy"],
                retention_ms=None if retention < 0 or config["cleanup.policy"] == "compact" else retention,
                problems=(*topic.problems(present, config, dev=settings.dev), *of_genesis),
                markers=topic.transactional,
            )
        )
    return rows, genesis


async def check(settings: Settings, role: Role) -> None:
    """Refuse to start a role if topics are missing or would break exactly-once processing (rules 10 and 14).

    Raises TopicError, which names each topic with its problem and the required value, and BrokerError if no
    broker answers.
    """
    async with broker_metadata.connect(settings) as client:
        await _check(client, settings, role)


async def _refuse_removed(client: AIOKafkaClient, settings: Settings) -> None:
    """Raise TopicError if the deployment has topics of earlier versions. Not to be allowed to see them is
    no error."""
    with suppress(TopicAuthorizationFailedError):
        names = TopicNames(settings.namespace).removed
        if existing := (await broker_metadata.metadata(client, names)).topics:
            raise UnsoundTopicError(
                f"topics of an earlier version, which this one does not read: {', '.join(existing)}. Stop all"
                " roles of that version, and delete these topics (`kafka-topics.sh --delete --topic NAME`)"
            )


async def _check(client: AIOKafkaClient, settings: Settings, role: Role | None) -> None:
    if role in (None, "judge"):
        await _refuse_removed(client, settings)
    plans = plan(settings, role)
    existing = (await broker_metadata.metadata(client, [topic.name for topic in plans])).topics
    missing = [topic.name for topic in plans if topic.name not in existing]
    if missing:
        raise TopicError(f"missing topics: {', '.join(missing)} (run `neardup topics create`)")
    if role in ("follow", "dashboard"):
        return  # readers of verdicts do not depend on the configuration
    configs = await broker_metadata.topic_configs(client, existing)
    problems = [
        problem
        for topic in plans
        for problem in topic.problems(existing[topic.name], configs[topic.name], dev=settings.dev)
    ]
    if problems:
        raise UnsoundTopicError("topics that would break exactly-once: " + "; ".join(problems))
