"""Whoever reads journal or decisions works where their beginning was deleted, or refuses by name: nobody
waits for what is gone, and nobody passes over it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from functools import partial
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from stream.checkpoints.kinds import meta_of
from stream.checkpoints.manifest import Manifest
from stream.dashboard.counting.rows import ClusterRow
from stream.dashboard.lookup.lookup import Finder
from stream.errors import EXIT_ERROR, SettingsError, StateError
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.decision import encode_decisions
from stream.roles.auditor.audit import audit
from stream.roles.auditor.recompute import recompute
from stream.roles.judge.role import JudgeRole
from stream.roles.loader.load import load
from stream.roles.worker.role import WorkerRole
from stream.rows.fingerprint import fingerprint_batch
from stream.settings import Settings
from stream.sources.rows import RowsSource
from stream.states.follower import open_follower
from tests.commands import neardup_process, succeeded
from tests.kafka.judge_helpers import (
    append,
    audited,
    delete_records,
    ledgers,
    page,
    part,
    record,
)
from tests.kafka.judged_rounds import (
    ROUND,
    directory,
    has_checkpoint,
    judge_rounds,
    kept,
    with_checkpoints,
)
from tests.kafka.worker_helpers import create, publish, read_all, running
from tests.unit.test_rows import directory as rows_directory
from tests.unit.test_rows import table
from tests.waiting import HANG_SECONDS, until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]

ROUNDS = 3
PAGES = ROUNDS * ROUND


@pytest.fixture
async def judged(settings: Settings, tmp_path: Path) -> Settings:
    """A deployment with checkpoints after 20, 40 and 60 pages, and a copy of its state after 20. It is
    stopped. Nothing was trimmed. A page of another partition was judged first, and none after it."""
    settings = with_checkpoints(settings, tmp_path / "objects")
    await create(settings)
    await judge_rounds(settings, 0, 1, record(part(1, 0, 1, opening=True)), ledger=True)
    shutil.copytree(directory(settings), outdated(settings))
    for number in range(1, ROUNDS):
        await judge_rounds(settings, number, number + 1, ledger=True)
    return settings


def outdated(settings: Settings) -> Path:
    """A copy of an earlier state."""
    return directory(settings).with_name("earlier")


async def trim(settings: Settings, manifest: Manifest) -> None:
    """Trim both logs as far as a checkpoint allows."""
    names = TopicNames(settings.namespace)
    ledger = (await ledgers(settings))[manifest.ledger]
    await delete_records(settings, names.decisions, manifest.ledger)
    await delete_records(settings, names.journal, ledger.end - 1)


@pytest.mark.night
async def test_readers_behind_a_trim_are_refused_or_restored(judged: Settings, tmp_path: Path) -> None:
    """A follower whose decisions are there, but not the journal records that they are about; a query; the
    look-up of a dashboard."""
    newest, genesis = kept(judged)[0], await topics.wait_for_genesis(judged)
    names, old = TopicNames(judged.namespace), meta_of(outdated(judged), "judge")
    assert old is not None
    query, anchors = (directory(judged).parent / each for each in ("query", "dashboard/anchors"))
    for path in (query, anchors):
        shutil.copytree(outdated(judged), path)

    async def follow_trimmed() -> None:
        async with open_follower(judged, genesis, query, restore=True) as follower:
            await delete_records(judged, names.journal, newest.applied - 1)
            for reader in (follower.decisions, follower.journal._topic):
                reader.seek(reader.position)  # what was fetched before is dropped
            async with asyncio.timeout(HANG_SECONDS):
                await follower.follow_to_end()

    with pytest.raises(StateError, match=f"topic {names.journal}: offset {old.applied} is needed") as refused:
        await follow_trimmed()
    will_do = f"checkpoint {newest.name} in "
    assert will_do in str(refused.value)

    await trim(judged, newest)
    pages = tmp_path / "pages.jsonl"
    pages.write_text(json.dumps({"url": "http://a/x", "text": "nothing of the sort"}) + "\n")
    status, _, errors = await neardup_process(judged, "query", str(pages))
    assert (status, will_do in errors) == (EXIT_ERROR, True), errors
    _, errors = await succeeded(judged, "query", "--rebuild-damaged", str(pages))
    assert "restored" in errors

    for rebuild in (False, True):
        settings = judged.model_copy(update={"rebuild_damaged": rebuild})
        finder = Finder(settings, genesis, lambda _: [], lambda _: ClusterRow())
        with capture_logs() as logs:
            task = asyncio.create_task(finder.run())
            if rebuild:
                await until(lambda finder=finder: finder.anchors == PAGES + 1)
            else:
                await until(
                    lambda logs=logs: [each for each in logs if each["event"] == "lookup_unavailable"]
                )
                assert will_do in logs[-1]["error"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_audit_and_recomputation_of_trimmed_logs(judged: Settings, tmp_path: Path) -> None:
    """Decided again is what follows the oldest checkpoint that fits; ledger records are compared, too."""
    _, middle, _ = kept(judged)
    await trim(judged, middle)
    with pytest.raises(SettingsError, match=r"checkpoints: not set, but topic .*\.decisions starts at"):
        await recompute(judged.model_copy(update={"checkpoints": None}))
    elsewhere = judged.model_copy(update={"checkpoints": str(tmp_path / "none")})
    with pytest.raises(StateError, match=r"no checkpoint in .* can be used: there is none of this"):
        await recompute(elsewhere)
    begun: list[Manifest] = []
    another_generation = judged.model_copy(update={"tables_generation": 64})
    assert await recompute(another_generation, report_checkpoint=begun.append) == []
    assert begun == [middle]
    out, _ = await succeeded(judged, "audit", "--recompute", "--json")
    assert json.loads(out)["different"] == 0
    assert json.loads(out)["recomputed_from"] == middle.applied
    # A ledger record that says something else is found.
    ledger = list((await ledgers(judged)).values())[-1]
    first, *others = ledger.sources
    wrong = msgspec.structs.replace(first, expected=first.expected + 1)
    forged = msgspec.structs.replace(ledger, sources=[wrong, *others])
    await append(judged, encode_decisions(forged), topic=TopicNames(judged.namespace).decisions)
    (difference,) = await recompute(judged)
    assert re.match(r"decisions offset \d+: the ledger record has ", difference)


@pytest.mark.night
async def test_pages_and_rows_judged_before_a_trim_are_audited_and_not_loaded_again(
    settings: Settings, tmp_path: Path
) -> None:
    settings = with_checkpoints(settings, tmp_path / "objects")
    names = await create(settings)
    rows = RowsSource(str(rows_directory(tmp_path / "rows", fingerprint_batch(table(700)))))
    await publish(settings, [page(f"http://a/{n}", n) for n in range(20)])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, 20)
        assert (await load(settings, rows)).judged == 700
        await publish(settings, [page("http://a/last", "last")], partition=1)
        await audited(settings, 21)
        end = (await read_all(settings, names.journal))[-1].offset + 1
        await until(partial(has_checkpoint, settings, end, ledger=True))
    before = await audit(settings, rows={rows.digest: rows.count})
    assert before.clean, before
    await trim(settings, kept(settings)[0])
    assert await audit(settings, rows={rows.digest: rows.count}) == before
    assert await recompute(settings) == []
    loading = await load(settings, rows)  # no judge is there to wait for
    assert loading.judged_before == loading.judged == 700
