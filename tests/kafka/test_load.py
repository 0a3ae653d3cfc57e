"""Rows are loaded into a deployment exactly once, in their order, and give way to live pages (rule 21)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stream.errors import RefusedError, RowsError, SchemeMismatchError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.journal import Corpus
from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor.audit import audit
from stream.roles.auditor.recompute import recompute
from stream.roles.judge.role import JudgeRole
from stream.roles.loader.load import LoadProgress, load
from stream.roles.loader.records import BLOCK_ROWS
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from stream.sources.rows import RowsSource
from tests.chaos.deployment import Crawler
from tests.commands import neardup, succeeded
from tests.kafka.judge_helpers import make, verdicts
from tests.kafka.worker_helpers import admin_of, create, journal, publish, read_all, running
from tests.kills import killed_command
from tests.unit.test_keep_one import keep_one
from tests.unit.test_rows import directory, fingerprint_batch, table
from tests.unit.test_scan_rows import of_table, rows_of_table
from tests.verdict_projection import projection
from tests.waiting import until, until_answer

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]

COUNT, MORE = 1_300, 150
"""Rows of two corpora: three blocks, and less than one."""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("corpora")
    made = fingerprint_batch(table(COUNT + MORE))
    first = directory(folder / "rows", made.slice(0, 700), made.slice(700, COUNT - 700))
    return first, directory(folder / "more", made.slice(COUNT, MORE - 50), made.slice(COUNT + MORE - 50))


@pytest.fixture(scope="module")
def scanned(corpora: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a scan says about the first corpus."""
    output = tmp_path_factory.mktemp("scanned") / "verdicts.jsonl"
    neardup("scan", corpora[0], "-o", output)
    return projection(map(json.loads, output.read_text("utf-8").splitlines()))


@pytest.fixture
def scanned_strictly(corpora: tuple[Path, Path], tmp_path: Path) -> Path:
    """Parquet files of what a scan in strict mode says about it."""
    neardup("scan", corpora[0], "--mode", "strict", "-o", tmp_path / "scanned.parquet")
    return tmp_path / "scanned.parquet"


async def test_rule_21_rows_are_judged_once_and_as_by_a_scan_whatever_is_killed(
    settings: Settings, corpora: tuple[Path, Path], scanned: bytes, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"session_seconds": 1.0})
    rows, more = map(RowsSource, map(str, corpora))
    await create(settings)
    scheme = Scheme(width=32)
    foreign = directory(tmp_path / "foreign", fingerprint_batch(table(3), scheme), scheme=scheme)
    with pytest.raises(SchemeMismatchError, match=r"width=32 \(not 64\)"):
        await load(settings, RowsSource(str(foreign)))
    assert await journal(settings) == []

    # Alone, in the order of a scan.
    async with running(JudgeRole(settings)):
        for failpoint in ("load.before_append", "load.append", "load.before_append:2", "load.appended_all"):
            await killed_command(settings, failpoint, "load", corpora[0])
        with pytest.raises(RefusedError, match=rf"rows {corpora[0]} with .* are not loaded to their end"):
            await load(settings, more)
        out, _ = await succeeded(settings, "load", str(corpora[0]), "--json")
        assert json.loads(out)["rows"] == COUNT
    assert projection(await verdicts(settings)) == scanned
    assert {each.corpus for each in await journal(settings)} == {Corpus(str(corpora[0]), COUNT)}
    records = await read_all(settings, TopicNames(settings.namespace).verdicts)
    assert {each.partition for each in records} == {0, 1, 2}

    # Damage is named. A second load is refused and does not disturb the first.
    damaged = corpora[1] / "rows-000001.parquet"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    with pytest.raises(RowsError, match=r"rows-000001\.parquet: damaged"):
        await load(settings, more)
    damaged.write_bytes(whole)
    loading = LoadProgress(MORE)
    first = asyncio.create_task(load(settings, more, loading))
    await until(lambda: loading.appended == MORE)
    with pytest.raises(RefusedError, match=r"\.load: another process loads rows"):
        await load(settings, rows)
    assert not first.done()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (await load(settings, RowsSource(str(directory(tmp_path / "empty"))))).rows == 0
    few = RowsSource(str(directory(tmp_path / "few", fingerprint_batch(table(3)))))
    loading = LoadProgress(3)
    third = asyncio.create_task(load(settings, few, loading, abandon=True))
    await until(lambda: loading.appended == 3)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)

    # With live pages, to which it gives way. What is in the journal already is judged once.
    crawler, done = Crawler(3), asyncio.Event()
    await publish(settings, [crawler.page() for _ in range(20)])
    loading = LoadProgress(MORE)
    second = asyncio.create_task(load(settings, more, loading, max_lag=5, abandon=True))
    await until(lambda: (loading.waits_for or "").startswith("live pages: 20 wait"))
    assert loading.appended == loading.judged_before == 0
    crawling = asyncio.create_task(crawler.crawl(settings, done, 0.01))
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await second).judged == MORE
        assert (await load(settings, rows)).judged_before == COUNT
        assert (await load(settings, few)).judged == 3
        done.set()
        await crawling
        given = {each.digest: each.count for each in (rows, more, few)}
        findings = await until_answer(
            lambda: audit(settings, rows=given), lambda found: not (found.missing or found.waiting)
        )
    assert findings.clean, findings
    assert findings.pages == 20 + crawler.published + COUNT + MORE + 3
    assert findings.verdicts.total() == findings.pages
    assert (await audit(settings, rows={rows.digest: COUNT + 1})).waiting == 1
    assert (await audit(settings)).loaded == COUNT + MORE + 3
    assert await recompute(settings) == []


@pytest.mark.night
async def test_a_load_waits_while_the_topic_of_pages_is_recreated(
    settings: Settings, corpora: tuple[Path, Path]
) -> None:
    names = await create(settings)
    await publish(settings, [Crawler(3).page() for _ in range(20)])
    loading = LoadProgress(MORE)
    loads = asyncio.create_task(load(settings, RowsSource(str(corpora[1])), loading, max_lag=5))
    await until(lambda: loads.done() or (loading.waits_for or "").startswith("live pages: 20 wait"))
    async with admin_of(settings) as admin:
        await admin.delete_topics([names.pages])
    await until(lambda: loads.done() or loading.lag is None)
    assert not loads.done(), loads.exception()
    await until(lambda: loading.waits_for == "live pages: how many wait for workers is not known at present")
    assert loading.appended == 0
    await make(settings, names.pages)
    async with running(JudgeRole(settings)):
        assert (await loads).judged == MORE


@pytest.mark.night
async def test_rule_21_a_strict_judge_that_is_killed_during_a_load_judges_rows_once_and_as_a_scan(
    settings: Settings,
    corpora: tuple[Path, Path],
    scanned_strictly: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what a loaded corpus keeps of each cluster is what a scanned one keeps."""
    monkeypatch.setattr(
        "stream.roles.loader.load.WINDOW", 0
    )  # a block is appended when the one before is judged
    settings = settings.model_copy(update={"session_seconds": 1.0})
    rows, exported = corpora[0], tmp_path / "exported.parquet"
    await topics.create(settings, Scheme(), VerdictOptions.paper(k=3, blocks=5), seed=PUBLIC_SEED)
    loading = LoadProgress(COUNT)
    load_all = asyncio.create_task(load(settings, RowsSource(str(rows)), loading))
    await killed_command(settings, "judge.committed:2", "judge")
    await until(lambda: loading.appended == COUNT)
    assert loading.judged == 2 * BLOCK_ROWS
    async with running(JudgeRole(settings)):
        await load_all
    await succeeded(settings, "verdicts", "export", str(exported))
    found = [of_table(rows_of_table(each)) for each in (exported, scanned_strictly)]
    assert projection(found[0]) == projection(found[1])
    assert {each["similarity"] for each in found[0]} == {None}
    kept = []
    for each in (exported, scanned_strictly):
        with keep_one("longest", [rows], each) as database:
            kept.append(database.execute("SELECT source, position FROM kept ORDER BY ALL").fetchall())
    assert kept[0] == kept[1] != []
