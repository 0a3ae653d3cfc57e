"""Whole checkpoints in a real S3 server, by a user who may do no more than a store needs. `test_s3_stores.py`
has what goes wrong with single files there, `tests/unit/test_stored_checkpoints.py` with checkpoints."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import Manifest
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.restoring import restore, verify
from stream.checkpoints.uploads import linked
from stream.errors import CheckpointError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import broker_metadata, topics
from stream.kafka.names import TopicNames
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.role import JudgeRole
from stream.roles.trimmer.role import trim_once
from stream.settings import Settings
from stream.stores import bucket as buckets
from tests.checkpointed import (
    checkpoint,
    digest_of,
    open_store,
    uploads_of,
    write,
)
from tests.commands import neardup
from tests.engines.s3_gateway import ALLOWED, BUCKET, USER, Gateway
from tests.genesis import JOURNAL
from tests.kafka.judge_helpers import append, decided, once, part, places, record, verdicts
from tests.kafka.worker_helpers import running
from tests.waiting import until


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Prefix of this test's keys."""
    return f"{ALLOWED}/{abs(hash(request.node.name))}"


@pytest.fixture
def url(gateway: Gateway, prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}"


@pytest.fixture
def catalogue(url: str) -> Catalogue:
    return Catalogue(url)


@pytest.fixture
def made(tmp_path: Path, catalogue: Catalogue) -> Manifest:
    """The checkpoint of the state in `tmp_path / "judge"`."""
    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        return checkpoint(store, uploads_of(catalogue))[0]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients that wait for a second and try again once."""
    monkeypatch.setitem(buckets._CLIENT, "timeout", timedelta(seconds=1))
    monkeypatch.setitem(buckets._RETRIES, "max_retries", 1)
    buckets._client_of.cache_clear()
    yield
    buckets._client_of.cache_clear()


def test_commands_list_verify_and_restore(tmp_path: Path, url: str, made: Manifest) -> None:
    at = ("--checkpoints", url)
    listed = neardup("checkpoint", "list", *at)
    assert f"journal {JOURNAL}\n  {made.name}  made " in listed.stdout
    assert neardup("checkpoint", "verify", "--all", *at).exit_code == 0
    assert neardup("checkpoint", "restore", tmp_path / "restored", *at).exit_code == 0
    assert digest_of(tmp_path / "restored") == digest_of(tmp_path / "judge")


def test_files_of_a_pruned_checkpoint_go_a_day_later(
    tmp_path: Path, prefix: str, gateway: Gateway, catalogue: Catalogue
) -> None:
    uploads, made = uploads_of(catalogue, kept=1), []
    with open_store(tmp_path / "judge") as store:
        for applied in (1, 2, 3):
            write(store, applied)
            made.append(checkpoint(store, uploads)[0])
            then = time.time() - SPARED_SECONDS - 60
            for path in gateway.path(prefix).rglob("*"):
                os.utime(path, (then, then))
    first, second, third = ({each.digest for each in manifest.files} for manifest in made)
    assert catalogue.kept(JOURNAL, JUDGE) == [made[-1].name]
    stored = set(catalogue.contents(JOURNAL).files)
    assert stored == second | third
    assert first - stored
    verify(catalogue, made[-1])


def test_a_store_that_is_away_in_the_middle_is_named_and_the_next_attempt_goes_on(
    tmp_path: Path, url: str, gateway: Gateway, catalogue: Catalogue, made: Manifest, hurried: None
) -> None:
    reports = 0

    def stop_after_a_file(*_: object) -> None:
        nonlocal reports
        reports += 1
        if reports == 2:
            gateway.stop()

    uploads = uploads_of(catalogue)
    with open_store(tmp_path / "judge") as store:
        write(store, 2)
        with linked(store, JUDGE) as state:
            assert state is not None
            why = f"checkpoints: {url}/.*the store cannot be reached"
            with pytest.raises(CheckpointError, match=why) as error:
                uploads.upload(state, report=stop_after_a_file)
            assert not any(secret in str(error.value) for secret in USER)
            with pytest.raises(CheckpointError, match=why):
                restore(catalogue, made, tmp_path / "restored")
            assert not (tmp_path / "restored").exists()
            gateway.start()
            assert catalogue.kept(JOURNAL, JUDGE) == [made.name]
            second = uploads.upload(state)
    verify(catalogue, second)
    restore(catalogue, second, tmp_path / "restored")
    assert digest_of(tmp_path / "restored") == digest_of(tmp_path / "judge")


def test_a_slow_store_is_waited_for(tmp_path: Path, gateway: Gateway, catalogue: Catalogue) -> None:
    """It answers nothing for a second, again and again."""
    ended = threading.Event()

    def slow_down() -> None:
        while not ended.is_set():
            gateway.pause()
            ended.wait(1)
            gateway.resume()
            ended.wait(0.05)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        with open_store(tmp_path / "judge") as store:
            write(store, 1)
            manifest, _ = checkpoint(store, uploads_of(catalogue))
        restore(catalogue, manifest, tmp_path / "restored")
    finally:
        ended.set()
        thread.join()
    assert digest_of(tmp_path / "restored") == digest_of(tmp_path / "judge")


@pytest.mark.broker
async def test_logs_are_trimmed_because_of_a_checkpoint_there_and_a_lost_state_is_restored(
    settings: Settings, url: str
) -> None:
    changes = {"checkpoints": url, "checkpoint_interval": 0.1, "checkpoints_kept": 1}
    settings = settings.model_copy(update=changes)
    catalogue, names, size = Catalogue(url), TopicNames(settings.namespace), 20
    await topics.create(settings, Scheme(), VerdictOptions(), seed=PUBLIC_SEED)

    def ledger() -> int:
        """Offset of the ledger record that the newest checkpoint names."""
        newest = [catalogue.kept(journal, JUDGE)[0] for journal in catalogue.journals()]
        return max((catalogue.read(name).ledger for name in newest), default=0)

    def has_later(before: int) -> bool:
        return ledger() > before

    async with running(JudgeRole(settings)):
        for start in (0, size, 2 * size):
            before, pages = ledger(), part(0, start, start + size, opening=not start)
            await decided(settings, await append(settings, record(pages)))
            await until(partial(has_later, before))
    outcome = await trim_once(settings, 0)
    assert not outcome.has_problem, outcome
    assert outcome.verified is not None
    (journal,) = catalogue.journals()
    assert {str(each) for each in catalogue.contents(journal).verified} == {outcome.verified}
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [names.decisions, names.journal])
    assert min(each.start for each in bounds.values()) > 0
    shutil.rmtree(settings.state_dir / settings.namespace)
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, record(part(0, 3 * size, 3 * size + 1))))
    assert places(await verdicts(settings)) == once(part(0, 0, 3 * size + 1))
