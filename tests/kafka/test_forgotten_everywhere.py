"""What was forgotten is nowhere any more, once `forget --status` says so: not in a segment of a topic, a
state, a checkpoint or a store of the dashboard. Other pages have the verdicts that they should have.

By default of few pages. A hundred thousand, of which a thousand URLs are forgotten:

    make test ARGS='tests/kafka/test_forgotten_everywhere.py --forgotten-of 100000'
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import msgspec
import pytest
import xxhash
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from rocksdict import DBCompressionType

from stream.brokers.embedded import EmbeddedBroker, Secured
from stream.brokers.local_broker import LocalBroker
from stream.checkpoints import pruning, uploads
from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.restoring import restore
from stream.figures import FIGURES
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.state import window
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages import verdict_options
from stream.messages.best import decode_best
from stream.messages.decision import decode_decisions
from stream.messages.journal import SourceRange
from stream.messages.verdict_options import VerdictOptions
from stream.pages.page import Page
from stream.roles.auditor.recompute import recompute
from stream.roles.elector.role import ElectorRole
from stream.roles.forgetter import status as statuses
from stream.roles.forgetter.request import names_of, request
from stream.roles.forgetter.status import status
from stream.roles.judge.role import JudgeRole
from stream.roles.trimmer.role import trim_once
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings, load
from stream.tables.store import rocks
from stream.text.url import url_key
from tests.chaos.checker.oracle import IndexedOracle
from tests.chaos.checker.records import JournalContent
from tests.kafka.dashboard_helpers import Client, dashboard
from tests.kafka.disk_scan import DiskScan, found_in
from tests.kafka.judge_helpers import (
    CLUSTER,
    FINGERPRINTER,
    TOPIC_ID,
    Part,
    append,
    decision_records,
    record,
    text,
)
from tests.kafka.judge_helpers import decided as decided_up_to
from tests.kafka.worker_helpers import read_all, running
from tests.oracle import OraclePage
from tests.waiting import until, until_answer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(3600), pytest.mark.night]

WORDS: Final = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]
GONE, KEPT = b"/gone-", b"/kept-"
"""What only URLs have of pages that are to be forgotten, and of others."""
SPARED_SECONDS, UPLOAD_SECONDS = 6.0, 4.0
RETENTION_MS: Final = 2000
ADMIN_SECONDS: Final = 30.0
SKETCH_BYTES: Final = 240
"""What is searched for of a sketch. The bytes at its end are minima, which stay."""


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--forgotten-of"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """One that removes at once what may be removed."""
    often = {
        "log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100",
        "log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "500",
    }  # fmt: skip
    with EmbeddedBroker(tmp_path / "kafka", print, Secured(properties=often)) as running_:
        yield running_


@pytest.fixture
async def deployed(broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A deployment with an elector, in which files of pruned checkpoints go soon."""
    for module in (pruning, statuses):
        monkeypatch.setattr(module, "SPARED_SECONDS", SPARED_SECONDS)
    monkeypatch.setattr(uploads, "UPLOAD_SECONDS", UPLOAD_SECONDS)
    # Files of states as they are show all that they have.
    plain = SimpleNamespace(none=DBCompressionType.none, lz4=DBCompressionType.none)
    monkeypatch.setattr(rocks, "DBCompressionType", plain)
    settings = load(
        bootstrap_servers=broker.bootstrap_servers, namespace="everywhere", dev=True, partitions=3,
        state_dir=tmp_path / "state", worker_processes=1, dashboard_port=0, session_seconds=3.0,
        flush_seconds=0.5, checkpoints=str(tmp_path / "objects"), checkpoint_interval=0.5,
        checkpoints_kept=1, elect="longest", elect_seconds=0.5,
    )  # fmt: skip
    await topics.create(settings, Scheme(), VerdictOptions(), seed=PUBLIC_SEED)
    return settings


class Crawl:
    """Pages of which a fifth are near-duplicates of others, and some are fetched again and changed. One in a
    hundred has a URL that is to be forgotten."""

    def __init__(self) -> None:
        self._random = random.Random(20070508)
        self._texts = list[tuple[str, list[str]]]()
        self.gone = list[str]()

    def next(self, part: str = "kept") -> bytes:
        """The next page. Those of another part are not forgotten, and are all like an earlier one."""
        rng, number = self._random, len(self._texts)
        words, is_gone = rng.choices(WORDS, k=80), part == "kept" and number % 100 == 50
        url = f"http://site-{number % 97}.example/{'gone' if is_gone else part}-{number}"
        if number and (part != "kept" or rng.random() < 0.3):
            known, text = rng.choice(self._texts)
            words = [*text[:78], *words[78:]]
            url = known if rng.random() < 0.3 and part == "kept" and not is_gone else url
        if rng.random() < 0.02:
            words = ["short"]
        if is_gone:
            self.gone.append(url)
        self._texts.append((url, words))
        return json.dumps({"url": url, "text": " ".join(words)}).encode()

    def copies(self) -> list[bytes]:
        """Near copies of pages, forgotten ones and others, at new URLs, and some of the others again."""
        found = []
        for place, (url, words) in enumerate(self._texts):
            is_gone = GONE.decode() in url
            if is_gone or place % 50 == 0:
                text = [*words[:78], "copied"]
                found.append({"url": f"http://copy.example/kept-{place}", "text": " ".join(text)})
            if not is_gone and place % 40 == 0:
                text = [*words[:40], "changed"] if len(words) > 40 else words
                found.append({"url": url, "text": " ".join(text)})
        return [json.dumps(each).encode() for each in found]


async def publish(settings: Settings, messages: list[bytes]) -> None:
    topic = TopicNames(settings.namespace).pages
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=5) as producer:
        for at in range(0, len(messages), 1000):
            some = enumerate(messages[at : at + 1000])
            sent = [await producer.send(topic, each, partition=place % 3) for place, each in some]
            await asyncio.gather(*sent)


async def verdicts_of(settings: Settings) -> dict[str, dict[str, Any]]:
    """Verdicts by the ids of their pages, which have one each."""
    records = await read_all(settings, TopicNames(settings.namespace).verdicts)
    found = [json.loads(each.value) for each in records]
    of_pages = {str(each["id"]): each for each in found}
    assert len(of_pages) == len(found)
    return of_pages


async def judged(client: Client, count: int) -> None:
    """Wait until this many pages have verdicts, which the dashboard has counted."""
    assert (await client.counted(count))["pages"] == count


def let_go(settings: Settings) -> None:
    """Set a short retention, and let Kafka roll segments and compact them at once."""
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    options = {
        "segment.ms": "100", "file.delete.delay.ms": "500", "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "0", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100",
    }  # fmt: skip
    names, resources = TopicNames(settings.namespace), []
    retained = (names.pages, names.verdicts, names.rejected)
    for topic in admin.list_topics(timeout=ADMIN_SECONDS).topics:
        if topic.startswith(f"{settings.namespace}."):
            all_ = options | ({"retention.ms": str(RETENTION_MS)} if topic in retained else {})
            entries = [
                ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in all_.items()
            ]
            resources.append(ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries))
    for future in admin.incremental_alter_configs(resources).values():
        future.result(ADMIN_SECONDS)


class Traces(NamedTuple):
    """What identifies pages in states."""

    digests: set[bytes]
    """Digests of URLs, in both byte orders."""
    sketches: set[bytes]

    @classmethod
    def none(cls) -> Traces:
        return cls(set(), set())

    def add(self, page: OraclePage) -> None:
        assert page.url is not None
        digest = bytes.fromhex(page.url)
        self.digests.update((digest, digest[7::-1] + digest[:7:-1]))
        self.sketches.add(page.sketch[:SKETCH_BYTES])

    def without(self, others: Traces) -> Traces:
        return Traces(self.digests - others.digests, self.sketches - others.sketches)

    def found_in(self, content: bytes) -> tuple[bool, bool]:
        """Whether content has any of the digests, and of the sketches."""
        return bool(found_in(content, self.digests)), bool(found_in(content, self.sketches))


async def compare(
    settings: Settings, verdicts: Mapping[str, Mapping[str, Any]], gone: set[str]
) -> tuple[Traces, Traces]:
    """Hold all verdicts against the oracle, which forgets the pages of these URLs where decisions say that
    requests were decided, by URL, whatever else decisions say. Returns what only these pages have, and what
    others have."""
    names = TopicNames(settings.namespace)
    decided = [
        decode_decisions(each.value, each.offset) for each in await read_all(settings, names.decisions)
    ]
    (start,) = {each.start for each in decided if each.forgotten is not None}
    (genesis,) = await read_all(settings, names.genesis)
    journal = msgspec.msgpack.decode(genesis.value)["journal"]
    oracle, content, records = (
        IndexedOracle(),
        JournalContent(journal),
        await read_all(settings, names.journal),
    )
    forgotten, is_forgotten, compared = set[str](), False, 0
    ours, others = Traces.none(), Traces.none()
    for _, page, *_ in (row for each in records for row in content.admit_rows(each.value, each.offset)):
        name = str(page.id)
        if not is_forgotten and int(name.split(".")[1]) >= start:
            oracle.forget(forgotten)
            is_forgotten = True
        said, want = verdicts[name], oracle.judge(page)  # type: ignore[no-untyped-call]
        like = said["duplicate_of"]
        told = said["verdict"], said["change"], said["cluster"], like and like["id"], said["distance"]
        cluster = want.cluster if want.verdict in ("unique", "duplicate", "recrawl") else None
        assert told == (want.verdict, want.change, cluster, want.other, want.distance)
        if said["url"] in gone:
            assert not is_forgotten
            forgotten.add(name)
            ours.add(page)
        else:
            others.add(page)
            compared += is_forgotten
            assert not is_forgotten or not like or like["url"] not in gone
    assert is_forgotten
    assert compared
    return ours.without(others), others


async def test_nothing_is_left_of_forgotten_pages_when_status_says_so(
    deployed: Settings, pages: int, tmp_path: Path, report: Callable[[str], None]
) -> None:
    began, crawl, names = time.monotonic(), Crawl(), TopicNames(deployed.namespace)
    genesis, scan = await topics.wait_for_genesis(deployed), DiskScan()
    topics_with = partial(scan.topics_with, tmp_path / "kafka", deployed.namespace)
    with_urls = {names.pages, names.journal, names.verdicts, names.clusters, names.best()}
    async with (
        running(WorkerRole(deployed)),
        running(JudgeRole(deployed)),
        running(ElectorRole(deployed)),
        dashboard(deployed) as client,
    ):
        await publish(deployed, [crawl.next() for _ in range(pages)])
        await judged(client, pages)
        before, gone = await verdicts_of(deployed), crawl.gone
        assert await request(deployed, genesis, names_of(gone, (), (), genesis.scheme.url_rules)) == len(gone)
        found = await until_answer(lambda: status(deployed), lambda found: found.decided == len(gone))
        decided = time.monotonic() - began
        # States have no page that was too short. Topics have.
        short = {each["url"] for each in before.values() if each["verdict"] == "insufficient"} & set(gone)
        stored = {each["url"] for each in before.values() if each["verdict"] != "insufficient"}
        assert found.unknown == len(short - stored)
        assert {names.pages, names.verdicts, names.journal} <= {each.what for each in found.delays}
        copies = crawl.copies()
        await publish(deployed, copies)
        await judged(client, pages + len(copies))
        assert await recompute(deployed) == []
        verdicts = await verdicts_of(deployed)
        assert {each: verdicts[each] for each in before} == before
        assert len(verdicts) == pages + len(copies)
        traces, others = await compare(deployed, verdicts, set(gone))
        assert await asyncio.to_thread(topics_with, GONE) >= {names.pages, names.journal, names.verdicts}
        await until_answer(lambda: asyncio.to_thread(topics_with, KEPT), lambda found: found >= with_urls)
        await asyncio.to_thread(let_go, deployed)

        async def holds() -> bool:
            """Whether the command says so, once more has come, so that segments are rolled."""
            nonlocal found
            await publish(deployed, [*(crawl.next("later") for _ in range(3)), b"{"])
            await trim_once(deployed, 0)
            found = await status(deployed)
            return not found.delays

        await until(holds)
        held = time.monotonic() - began

        async def is_removed() -> bool:
            """Whether Kafka has removed and compacted what it may."""
            await holds()
            return not await asyncio.to_thread(topics_with, GONE)

        await until(is_removed)
    state, objects = deployed.state_dir / deployed.namespace, tmp_path / "objects"
    directories = {path.name for path in state.iterdir() if path.is_dir()}
    assert directories == {"judge", "elector", "dashboard"}
    scan.size = 0
    assert topics_with(GONE) == set()
    assert not any(GONE in each for path in (state, objects) for each in scan.files(path))
    catalogue = Catalogue(str(objects))
    states = [state / "judge", state / "elector", state / "dashboard" / "anchors"]
    for kind in ("judge", "elector"):
        for name in catalogue.kept(genesis.journal, kind):
            states.append(tmp_path / "restored" / f"{kind}-{len(states)}")
            restore(catalogue, catalogue.read(name), states[-1])
    assert len(states) >= 5
    for path in states:
        content = scan.entries(path)
        assert (GONE in content, KEPT in content) == (False, True), path
        is_elector = path.name.startswith("elector")
        assert others.found_in(content) == (True, not is_elector), path
        assert traces.found_in(content) == (False, False), path
    content = scan.dashboard_entries(state / "dashboard" / FIGURES)
    assert (GONE in content, KEPT in content) == (False, True)
    rules = genesis.scheme.url_rules
    assert not found_in(content, [xxhash.xxh3_64_digest(url_key(each, rules).encode()) for each in gone])
    seconds, megabytes = time.monotonic() - began, scan.size / 1e6
    report(
        f"{pages} pages, {len(gone)} URLs forgotten, {len(copies)} pages later: decided after"
        f" {decided:.0f} s, holds after {held:.0f} s; {megabytes:.0f} MB scanned; {seconds:.0f} s"
    )


async def test_records_of_clusters_that_had_ended_before_go_as_well(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a lifetime, nobody has pages any more that topics still name: of an anchor that was superseded, on
    `clusters`, and of kept pages, on `best`. They are requested by URL and by domain."""
    monkeypatch.setattr(verdict_options, "LEAST_LIFETIME", 2)
    monkeypatch.setattr(window, "LEAST_SLOT", 100)
    settings = load(
        bootstrap_servers=broker.bootstrap_servers, namespace="ended", dev=True, partitions=1,
        state_dir=tmp_path / "state", session_seconds=3.0, flush_seconds=0.1, elect="longest",
        elect_seconds=0.1,
    )  # fmt: skip
    await topics.create(settings, Scheme(), VerdictOptions(lifetime=2), seed=PUBLIC_SEED)
    genesis, names = await topics.wait_for_genesis(settings, 10), TopicNames("ended")
    scan, told = DiskScan(), {names.clusters, names.best()}
    offsets, others = itertools.count(), itertools.count()
    gone = [f"http://{host}.example/gone-{each}" for each, host in enumerate(("a", "b.c"))]

    async def judge(*of_urls: tuple[str, object]) -> None:
        """Have pages judged, in one record."""
        rows = [FINGERPRINTER.page(Page(url=url, text=text(seed))) for url, seed in of_urls]
        places = [next(offsets) for _ in rows]
        start, end = places[0], places[-1] + 1
        source = SourceRange(CLUSTER, "pages", TOPIC_ID, 0, start, end, len(rows), opening=not start)
        await decided_up_to(settings, await append(settings, record(Part(source, rows, places))))

    async def judge_more() -> None:
        """Have a page judged, and another text at its URL, so that both topics get records."""
        number = next(others)
        await judge(*((f"http://later.example/kept-{number}", f"{number} {each}") for each in range(2)))

    async def have_expired() -> bool:
        """Whether the judge has none of the first pages any more: four anchors and two duplicates."""
        await judge_more()
        turns = [each.turn for each in (await decision_records(settings)).values() if each.turn]
        return any(each.oldest[0] >= 4 and each.oldest[1] >= 2 for each in turns)

    async def have_urls() -> set[str]:
        """Which of these topics have the URLs, once more was judged."""
        await judge_more()
        return told & await asyncio.to_thread(scan.topics_with, tmp_path / "kafka", "ended", GONE)

    async with running(JudgeRole(settings)), running(ElectorRole(settings)):
        for url in gone:
            await judge((url, url), (url.replace("gone", "kept"), url), (url, url + " changed"))
        await until(have_expired)

        async def is_told() -> bool:
            last = {each.key: each.value for each in await read_all(settings, names.best())}
            best = [decode_best(each, "best") for each in last.values() if GONE in each]
            urls = {each.was.url for each in best if each.was and not each.best}
            return urls == set(gone) and all(each.best is None for each in best)

        await until(is_told)
        assert await have_urls() == told
        await request(settings, genesis, names_of(gone[:1], (), ("c.example",), genesis.scheme.url_rules))

        async def holds() -> bool:
            await have_urls()
            found = await status(settings)
            home = str(settings.state_dir)
            return found.decided == 2 and not [each for each in found.delays if each.what.startswith(home)]

        await until(holds)
        found = await status(settings)
        assert (found.unknown, found.pages) == (2, 0)
        assert told <= {each.what for each in found.delays}
        for topic in told:
            last = {each.key: each.value for each in await read_all(settings, topic)}
            assert not [value for value in last.values() if value and GONE in value], topic
        await asyncio.to_thread(let_go, settings)

        async def are_removed() -> bool:
            is_told = told & {each.what for each in (await status(settings)).delays}
            return not await have_urls() and not is_told

        await until(are_removed)
    assert await recompute(settings) == []
