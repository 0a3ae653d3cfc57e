"""The genesis record, in a topic of its own, written exactly once even by concurrent creators (rule 6)."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import Any, Final

import msgspec
import structlog
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from stream.errors import BrokerError, RecordError, RefusedError, SchemeMismatchError, TopicError
from stream.failpoints import reach
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_DIGEST, random_seed
from stream.kafka import broker_metadata, clients
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import settled_bounds
from stream.kafka.outage import LOG_SECONDS, retry_until_answered
from stream.messages.journal import Genesis, decode_journal, encode_genesis
from stream.messages.verdict_options import VerdictOptions
from stream.settings import Settings

ATTEMPTS: Final = 10
"""Maximum number of attempts, which fail if a concurrent creator fences us."""
POLL_SECONDS: Final = 0.5
TRANSACTION_MS: Final = 15_000
_OF_SEED: Final = ("seed_file", "seed_digest")
"""Options of a scheme that depend on the seed, which a journal chooses itself unless one is given."""

_log = structlog.get_logger(__name__)


async def agreed_genesis(
    client: AIOKafkaClient,
    settings: Settings,
    scheme: Scheme,
    options: VerdictOptions,
    seed: bytes | None = None,
) -> Genesis | None:
    """Return the journal's genesis if it has this scheme, options and seed, or None if it can be written.

    Without a seed, and unless the scheme has the digest of one, any seed will do. Raises SettingsError for a
    digest of which no seed is known, and RefusedError if the journal has another scheme, other options or
    another seed, and if it has records but no genesis.
    """
    if seed is not None:
        scheme = scheme.with_seed(seed)
    present = await read_genesis(client, settings)
    chosen = seed is not None or scheme.seed_digest != PUBLIC_DIGEST
    if present is None:
        if seed is None and chosen:
            scheme.seed()  # which refuses a digest alone
        await refuse_records_without_genesis(client, settings)
        return None
    refuse_other(present, scheme, options)
    if chosen and scheme.seed_digest != present.scheme.seed_digest:
        raise RefusedError(
            "the journal has another seed, which cannot be changed: its digest is"
            f" {present.scheme.seed_digest}, not {scheme.seed_digest}"
        )
    return present


async def write_genesis(
    client: AIOKafkaClient,
    settings: Settings,
    scheme: Scheme,
    options: VerdictOptions,
    seed: bytes | None = None,
) -> tuple[Genesis, bool]:
    """Return the journal's genesis, and whether this call wrote it. There is only one, even with concurrent
    calls.

    Without a seed, a new journal gets a random one. Raises what `agreed_genesis` does.
    """
    own = random_seed() if seed is None else seed
    keyed = scheme.with_seed(own)
    genesis = Genesis(journal=uuid.uuid4().hex, scheme=keyed, scheme_id=keyed.id, options=options, seed=own)
    failure: Exception | None = None
    for _ in range(ATTEMPTS):
        agreed = await agreed_genesis(client, settings, scheme, options, seed)
        if agreed is not None:
            return agreed, False
        try:
            if await _write_where_empty(client, settings, genesis):
                return genesis, True
        except clients.DENIED:
            raise
        except KafkaError as error:
            failure = error  # fenced, or a commit with unknown outcome: check again
        await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 (two creators must not collide forever)
    raise BrokerError(f"{TopicNames(settings.namespace).genesis}: genesis could not be written: {failure!r}")


async def _write_where_empty(client: AIOKafkaClient, settings: Settings, genesis: Genesis) -> bool:
    names = TopicNames(settings.namespace)
    producer = clients.producer(
        settings,
        transactional_id=names.genesis,
        enable_idempotence=True,
        acks="all",
        transaction_timeout_ms=TRANSACTION_MS,
    )
    # Starting the producer completes or aborts the transaction of any earlier creator, and fences it. If the
    # topic is empty from here on, it stays empty until our commit, or our commit fails.
    async with clients.open_client(settings, producer):
        await settled_bounds(client, [names.genesis])  # another's may be hidden
        if await read_genesis(client, settings) is not None:
            return False
        await refuse_records_without_genesis(client, settings)
        async with producer.transaction():
            await producer.send_and_wait(
                names.genesis, encode_genesis(genesis), key=genesis.journal.encode(), partition=0
            )
            reach("genesis.sent")
        return True


async def read_genesis(client: AIOKafkaClient, settings: Settings) -> Genesis | None:
    """Read the genesis, or None if its topic is missing or empty. Raises RefusedError if its first record is
    another."""
    topic = TopicNames(settings.namespace).genesis
    if topic not in (await broker_metadata.metadata(client, [topic])).topics:
        return None
    record = await _first_record(client, settings, topic)
    if record is None:
        return None
    try:
        first = decode_journal(record.value, record.offset)
    except RecordError as error:
        raise RefusedError(
            f"topic {topic}: this version of neardup cannot read its first record, the genesis: run the "
            f"version that wrote it, or use a new namespace ({error})"
        ) from error
    if not isinstance(first, Genesis):
        raise RefusedError(
            f"topic {topic}: its first record, at offset {record.offset}, is not a genesis: use a new "
            "namespace"
        )
    return first


async def refuse_records_without_genesis(client: AIOKafkaClient, settings: Settings) -> None:
    """Raise RefusedError if the journal has or had records, to be called when there was no genesis.

    Another genesis would give the same records other verdicts. Nobody writes to a journal before its genesis
    is there, so the records are of a journal whose genesis was deleted, or stood in the journal itself.
    """
    names = TopicNames(settings.namespace)
    if names.journal not in (await broker_metadata.metadata(client, [names.journal])).topics:
        return
    bounds = await broker_metadata.log_bounds(client, [names.journal])
    if not any(each.end for each in bounds.values()):
        return
    if await read_genesis(client, settings) is not None:
        return  # it was written meanwhile
    raise RefusedError(
        f"topic {names.journal} has records, but {names.genesis} has no genesis: an earlier version of "
        "neardup wrote this journal, with the genesis in it, or the genesis was deleted. Use a new "
        "namespace; the version that wrote this one can still read it"
    )


async def _first_record(client: AIOKafkaClient, settings: Settings, topic: str) -> Any:
    """Read the first committed record of a topic with one partition, or None if there are only aborted ones
    and markers."""
    partition = TopicPartition(topic, 0)
    bounds = (await broker_metadata.log_bounds(client, [topic]))[partition]
    if bounds.start == bounds.stable:
        return None
    consumer = clients.reader(settings, auto_offset_reset="none")
    async with clients.open_client(settings, consumer):
        consumer.assign([partition])
        consumer.seek(partition, bounds.start)
        while await consumer.position(partition) < bounds.stable:
            records = await consumer.getmany(partition, timeout_ms=200, max_records=1)
            for record in records.get(partition, ()):
                return record
        return None


@clients.with_translated_errors
async def wait_for_genesis(
    settings: Settings,
    timeout: float | None = None,
    *,
    expect_scheme: Scheme | None = None,
    expect_options: VerdictOptions | None = None,
) -> Genesis:
    """Wait until `neardup topics create` has written the genesis, and return it.

    `timeout` is in seconds, or None to wait forever. With a timeout, raises TopicError when it expires and
    BrokerError if no broker answers. Raises AccessError without a grant, SchemeMismatchError if this version
    computes the journal's scheme differently, and RefusedError if scheme or options differ from the expected
    ones.
    """
    try:
        async with asyncio.timeout(timeout):
            if timeout is None:
                genesis = await retry_until_answered("a broker", lambda: _poll(settings))
            else:
                genesis = await _poll(settings)
    except TimeoutError:
        raise TopicError(f"{_genesis_of(settings)} was not written within {timeout:g} s") from None
    refuse_other(genesis, expect_scheme, expect_options)
    return genesis


async def _poll(settings: Settings) -> Genesis:
    began = next_line = time.monotonic()
    async with broker_metadata.connect(settings) as client:
        while True:
            genesis = await read_genesis(client, settings)
            if genesis is not None:
                return genesis
            await refuse_records_without_genesis(client, settings)
            if (now := time.monotonic()) >= next_line:
                next_line = now + LOG_SECONDS
                away = round(now - began)
                _log.warning("waiting", wanted=_genesis_of(settings), error="not there", away_seconds=away)
            await asyncio.sleep(POLL_SECONDS)


def _genesis_of(settings: Settings) -> str:
    return (
        f"the genesis of topic {TopicNames(settings.namespace).genesis} (`neardup topics create` writes it)"
    )


def refuse_other(genesis: Genesis, scheme: Scheme | None, options: VerdictOptions | None) -> None:
    """Raise RefusedError, which names the differences, unless the journal has this scheme and these options
    (rule 11).

    Raises SchemeMismatchError if this version of the program computes the journal's scheme differently.
    """
    differing = [
        *_differences("scheme", genesis.scheme, scheme),
        *_differences("options", genesis.options, options),
    ]
    if differing:
        raise RefusedError(
            "the journal has another scheme or other options, which cannot be changed: "
            + "; ".join(differing)
        )
    if genesis.scheme.id != genesis.scheme_id:
        raise SchemeMismatchError(
            f"the journal's fingerprints have scheme {genesis.scheme_id}, but this version of neardup would "
            f"compute scheme {genesis.scheme.id}: run the version that wrote it, or use a new namespace"
        )


def _differences(what: str, recorded: msgspec.Struct, expected: msgspec.Struct | None) -> list[str]:
    if expected is None:
        return []
    here = msgspec.structs.asdict(expected)
    for name in _OF_SEED:
        here.pop(name, None)
    return [
        f"{what}.{name} is {value!r} in the journal, {here[name]!r} here"
        for name, value in msgspec.structs.asdict(recorded).items()
        if name in here and value != here[name]
    ]
