"""Scrapy crawls a local site; its pages are judged, and their verdicts come back to the spider. The crawlers
of docs/examples do the same, and Kafka Connect writes the verdicts to files."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer

from stream.brokers import embedded, embedded_guard, embedded_jars
from stream.brokers.ports import free_port
from stream.kafka.names import TopicNames
from stream.roles.judge.role import JudgeRole
from stream.roles.loader.load import load
from stream.roles.worker.role import WorkerRole
from stream.rows.fingerprint import fingerprint_batch
from stream.settings import Settings
from stream.sources.rows import RowsSource
from tests.commands import run_process
from tests.kafka.judge_helpers import add_partitions, audited, page, recreate, text, verdicts
from tests.kafka.worker_helpers import ROOT, create, journal, publish, read_all, running, topic_id
from tests.unit.test_rows import directory
from tests.unit.test_schema_registry import Served
from tests.waiting import until, until_answer

pytestmark = [
    pytest.mark.broker,
    pytest.mark.usefixtures("no_children"),
    pytest.mark.skipif(importlib.util.find_spec("scrapy") is None, reason="Scrapy is not installed"),
]

HARBOUR = "The harbour authority will repair the old lighthouse at the north pier before the storms. " * 3
MARKET = "On Saturday the market square belongs to bakers, beekeepers and one patient knife grinder. " * 3
SITE = {"a": HARBOUR, "b": MARKET, "copy-of-a": HARBOUR.upper(), "short": "Loading"}
FIELD = "neardup"
SPIDER = """
import json, sys
import scrapy
from scrapy.crawler import AsyncCrawlerProcess

class Site(scrapy.Spider):
    name = "site"
    start_urls = [sys.argv[1]]

    def parse(self, response):
        if response.url.endswith("/"):
            yield {"note": "an index is no page"}
            yield from response.follow_all(css="a")
        else:
            yield {"url": response.url, "html": response.text}

process = AsyncCrawlerProcess({
    **json.loads(sys.argv[2]),
    "FEEDS": {sys.argv[3]: {"format": "jsonlines"}},
    "ITEM_PIPELINES": {"stream.integrations.scrapy.NeardupPipeline": 300},
    "CONCURRENT_REQUESTS": 1,
    "LOG_LEVEL": "WARNING",
    "TELNETCONSOLE_ENABLED": False,
})
crawler = process.create_crawler(Site)
process.crawl(crawler)
process.start()
counted = {name: n for name, n in crawler.stats.get_stats().items() if name.startswith(("neardup/", "item_"))}
print(json.dumps(counted))
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A site whose start page links to the others, in their order."""
    folder = tmp_path / "site"
    folder.mkdir()
    for name, said in SITE.items():
        (folder / f"{name}.html").write_text(f"<html><body><p>{said}</p></body></html>")
    links = "".join(f'<p><a href="{name}.html">{name}</a></p>' for name in SITE)
    (folder / "index.html").write_text(f"<html><body>{links}</body></html>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


async def crawl(
    site: str, settings: Settings, out: Path, **options: Any
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """What the crawl counted, and its items."""
    given = {
        "NEARDUP_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "NEARDUP_NAMESPACE": settings.namespace,
        "NEARDUP_DEV": True,
        **options,
    }
    command = (sys.executable, "-c", SPIDER, site, json.dumps(given), str(out))
    code, said, log = await run_process(*command, environment={"PYTHONPATH": str(ROOT)})
    assert code == 0, log
    assert "ERROR" not in log, log
    assert "Dropped" not in log, "a page is no line for a log"
    items = (await asyncio.to_thread(out.read_text)).splitlines()
    return json.loads(said.splitlines()[-1]), [json.loads(line) for line in items]


async def test_crawled_pages_get_verdicts_that_the_spider_drops_or_tags(
    site: str, settings: Settings, registry: Served, tmp_path: Path
) -> None:
    """This holds for both formats of verdicts."""
    await create(settings)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        counted, items = await crawl(site, settings, tmp_path / "first", NEARDUP_DROP=["duplicate"])
        assert counted["neardup/published"] == len(SITE)
        found = {each["url"].removeprefix(site): each[FIELD]["verdict"] for each in items if "url" in each}
        # Which of the two alike is the first, the crawl decides.
        first = "a.html" if "a.html" in found else "copy-of-a.html"
        assert found == {first: "unique", "b.html": "unique", "short.html": "insufficient"}
        assert {"note": "an index is no page"} in items
        assert counted["item_dropped_count"] == counted["neardup/duplicate"] == 1
        assert (await audited(settings, len(SITE))).clean

    in_avro = {"schema_registry_url": registry.url, "verdict_format": "avro"}
    async with running(WorkerRole(settings)), running(JudgeRole(settings.model_copy(update=in_avro))):
        url = {"NEARDUP_SCHEMA_REGISTRY_URL": registry.url}
        again, items = await crawl(site, settings, tmp_path / "second", NEARDUP_WAIT=True, **url)
        assert again["neardup/recrawl"] == 3
        assert [each[FIELD]["change"] for each in items if "url" in each].count("unchanged") == 3


@pytest.mark.night
async def test_a_crawl_that_does_not_wait_has_sent_everything_when_it_closes(
    site: str, settings: Settings, tmp_path: Path
) -> None:
    """No judge is running."""
    await create(settings)
    counted, items = await crawl(site, settings, tmp_path / "items")
    assert counted["neardup/published"] == len(SITE)
    assert not any(FIELD in each for each in items)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, len(SITE))).clean


class Spider:
    """The items of a spider, as they pass through the pipeline."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        from scrapy.settings import Settings as ScrapySettings

        from stream.integrations.scrapy import NeardupPipeline

        given = {f"NEARDUP_{name.upper()}": value for name, value in settings.model_dump().items()}
        self.counted = Counter[str]()
        stats = SimpleNamespace(inc_value=lambda name: self.counted.update([name]))
        crawler: Any = SimpleNamespace(settings=ScrapySettings({**given, **options}), stats=stats)
        self.pipeline = NeardupPipeline(crawler)

    def crawl(self, *numbers: int) -> list[asyncio.Task[Any]]:
        """Start to process items, each unlike the others."""
        items = [{"url": f"http://crawled/{n}", "text": text(("crawled", n))} for n in numbers]
        return [asyncio.create_task(self.pipeline.process_item(item)) for item in items]

    async def published(self, count: int) -> None:
        """Wait until that many items wait for their verdicts."""
        await until(lambda: self.counted["neardup/published"] == count)


@asynccontextmanager
async def spider(settings: Settings, **options: Any) -> AsyncIterator[Spider]:
    opened = Spider(settings, **options)
    await opened.pipeline.open_spider()
    try:
        yield opened
    finally:
        await opened.pipeline.close_spider()


@pytest.mark.night
async def test_items_of_a_crawl_are_not_dropped_by_the_verdicts_of_a_load(
    settings: Settings, tmp_path: Path
) -> None:
    """Rows have partitions and offsets of their own, the same as those of pages. All rows are alike."""
    names = await create(settings)
    columns = {"url": [f"http://loaded/{n}" for n in range(600)], "text": [HARBOUR] * 600}
    rows = fingerprint_batch(pa.record_batch({**columns, "order": list(range(600))}))
    async with running(JudgeRole(settings)), spider(settings, NEARDUP_DROP=["duplicate"]) as crawl:
        waiting = crawl.crawl(*range(12))
        await crawl.published(12)
        places = {(each.partition, each.offset) for each in await read_all(settings, names.pages)}
        assert places & {(n // 512, n) for n in range(600)}
        assert (await load(settings, RowsSource(str(directory(tmp_path / "rows", rows))))).judged == 600
        assert not any(task.done() for task in waiting)
        async with running(WorkerRole(settings)):
            items = await asyncio.gather(*waiting)
    assert [each[FIELD]["url"] for each in items] == [each["url"] for each in items]
    assert {(each[FIELD]["verdict"], each[FIELD]["source"]["topic"]) for each in items} == {
        ("unique", names.pages)
    }
    assert not crawl.pipeline._early


@pytest.mark.night
async def test_items_get_no_verdicts_of_an_earlier_topic_of_the_same_name(settings: Settings) -> None:
    """An item that is published while the topic is recreated gets none: nobody knows which topic took it."""
    names = await create(settings)
    before = await topic_id(settings)
    for partition in range(3):
        await publish(settings, [page(f"http://old/{n}", n) for n in range(12)], partition)
    async with running(WorkerRole(settings)):
        await until_answer(lambda: journal(settings), lambda found: sum(map(len, found)) == 36)
    async with spider(settings, NEARDUP_WAIT=True) as crawl:
        await recreate(settings, names.pages)
        (unsure,) = crawl.crawl(0)
        await crawl.published(1)
        assert FIELD not in await unsure
        assert crawl.counted["neardup/no_verdict"] == 1
        waiting = crawl.crawl(*range(1, 12))
        await crawl.published(12)
        async with running(JudgeRole(settings)):
            # Late verdicts, on the earlier topic.
            await until_answer(lambda: verdicts(settings), lambda found: len(found) == 36)
            async with running(WorkerRole(settings)):
                items = await asyncio.gather(*waiting)
    assert [each[FIELD]["url"] for each in items] == [each["url"] for each in items]
    assert before not in {each[FIELD]["source"]["topic_id"] for each in items}


@pytest.mark.night
async def test_items_get_verdicts_on_partitions_that_are_added_meanwhile(settings: Settings) -> None:
    names = await create(settings)
    await add_partitions(settings, names.pages, 6)
    async with spider(settings, NEARDUP_WAIT=True) as crawl:
        waiting = crawl.crawl(*range(24))
        await crawl.published(24)
        await add_partitions(settings, names.verdicts, 6)
        async with running(WorkerRole(settings)), running(JudgeRole(settings)):
            items = await asyncio.gather(*waiting)
    assert [each[FIELD]["url"] for each in items] == [each["url"] for each in items]
    assert {each.partition for each in await read_all(settings, names.verdicts)} & {3, 4, 5}


EXAMPLES = ROOT / "docs" / "examples"


@contextmanager
def connect(
    folder: Path, settings: Settings, *connectors: str, plugin: Path | None = None
) -> Iterator[Callable[[str], None]]:
    """Kafka Connect as `connect-standalone.sh` starts it, in a folder with copies of the examples, and with
    the connector in the archive `plugin`. Yields a function that raises AssertionError if a task of the named
    connector has failed."""
    worker, port = (EXAMPLES / "connect_worker.properties").read_text(), free_port()
    if plugin is not None:  # the path names a directory of plugins, each of which is a directory of jars
        with tarfile.open(plugin) as archive:
            archive.extractall(folder / "plugins", filter="data")
        worker = worker.replace("plugin.path=", "plugin.path=plugins,")
    (folder / "worker.properties").write_text(worker.replace(":8083", f":{port}"))
    jars = list(embedded_jars.jars(print, Path(__file__).parent / "connect.pom.xml").iterdir())
    (sink,) = (jar for jar in jars if jar.name.startswith("connect-file"))
    (folder / "libs").mkdir()
    (folder / "libs" / "connect-file-4.1.0.jar").symlink_to(sink)
    path = os.pathsep.join(str(jar) for jar in jars if jar != sink)
    given = [
        name if name.endswith(".properties") else str(EXAMPLES / f"connect_{name}.properties")
        for name in connectors
    ]
    main = ("org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", *given)
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, *main]
    guard = [sys.executable, "-I", "-S", embedded_guard.__file__, str(os.getpid()), ""]

    def refuse_failure(connector: str) -> None:
        url = f"http://127.0.0.1:{port}/connectors/{connector}/status"
        with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:  # it starts for seconds
            assert "FAILED" not in (said := answer.read().decode()), said

    with (
        (folder / "connect.log").open("wb") as log,
        subprocess.Popen(
            [*guard, *command], cwd=folder, env=os.environ | settings.environment(),
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        yield refuse_failure
        process.communicate()  # the guard kills it when its input ends


async def abort(settings: Settings, value: bytes) -> None:
    """Leave a record of an aborted transaction among the verdicts."""
    async with AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{settings.namespace}.aborted"
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TopicNames(settings.namespace).verdicts, value)
        await producer.abort_transaction()


@pytest.mark.night
async def test_examples_crawl_a_site_and_write_the_verdicts_on_its_pages(
    site: str, settings: Settings, tmp_path: Path
) -> None:
    await create(settings)
    index = tmp_path / "site" / "index.html"
    no_pages = '<a href="mailto:editor@example.com">write</a> <a href="gone.html">a dead link</a>'
    index.write_text(index.read_text().replace("<body>", f"<body>{no_pages}"))
    environment = {"PYTHONPATH": str(ROOT), **settings.environment()}
    pages = 1 + len(SITE)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        out = tmp_path / "items.jsonl"
        by_scrapy = (sys.executable, str(EXAMPLES / "crawl_with_scrapy.py"), site, str(out))
        code, _, log = await run_process(*by_scrapy, environment=environment)
        assert code == 0, log
        assert "Traceback" not in log
        items = [json.loads(line) for line in (await asyncio.to_thread(out.read_text)).splitlines()]
        verdicts = sorted(each[FIELD]["verdict"] for each in items if each["url"] != site)
        assert verdicts == ["duplicate", "insufficient", "unique", "unique"]

        by_hand = (sys.executable, str(EXAMPLES / "crawl_to_topic.py"), site)
        code, said, log = await run_process(*by_hand, environment=environment)
        assert (code, said) == (0, f"published {pages} pages to {settings.namespace}.pages\n"), log
        assert (await audited(settings, 2 * pages)).clean

    if embedded.missing() is None:
        await abort(settings, b'{"url": "of an aborted transaction"}')
        lines, urls = tmp_path / "verdicts.jsonl", tmp_path / "urls.txt"
        with connect(tmp_path, settings, "verdicts", "urls"):
            for path in (lines, urls):
                await until(lambda path=path: path.exists() and path.read_bytes().count(b"\n") >= 2 * pages)
        written = [json.loads(line) for line in lines.read_text().splitlines()]
        assert len({each["id"] for each in written}) == len(written) == 2 * pages
        assert sorted(each["url"] for each in written) == sorted(urls.read_text().splitlines())
