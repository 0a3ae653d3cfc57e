"""The crawlers of docs/examples publish a site, and Kafka Connect writes the verdicts to files."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from stream.brokers import embedded, embedded_guard, embedded_jars
from stream.brokers.ports import free_port
from stream.kafka.names import TopicNames
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.commands import run_process
from tests.kafka.judge_helpers import audited
from tests.kafka.test_scrapy import FIELD, SITE, pytestmark, site
from tests.kafka.worker_helpers import ROOT, create, running
from tests.waiting import until

__all__ = ["pytestmark", "site"]

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
