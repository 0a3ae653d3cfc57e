"""Whole checkpoints in a real S3 server, by a user who may do no more than a store needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.digests import NOTHING
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import Manifest
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.restoring import restore, verify
from stream.checkpoints.uploads import linked
from stream.errors import CheckpointError, DamagedCheckpointError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import broker_metadata, topics
from stream.kafka.names import TopicNames
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.role import JudgeRole
from stream.roles.trimmer.role import trim_once
from stream.settings import Settings
from stream.stores import bucket as buckets
from stream.tables.store.rocks import LOG
from tests import kills
from tests.checkpointed import (
    checkpoint,
    cut,
    digest_of,
    flip,
    make_checkpoints,
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

SMALL_DISK = 2 << 20


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
    stored = {each.digest for each in catalogue.contents(JOURNAL).files}
    assert stored - {NOTHING} == second | third
    assert first - stored
    verify(catalogue, made[-1])


def test_half_an_upload_is_no_checkpoint_and_the_next_one_goes_on(
    tmp_path: Path, url: str, catalogue: Catalogue
) -> None:
    kills.killed("checkpoint.file:2", make_checkpoints, tmp_path / "judge", url)
    assert catalogue.kept(JOURNAL, JUDGE) == []
    stored = {each.digest: each.size for each in catalogue.contents(JOURNAL).files}
    assert len(stored) == 3, "two, and the one that tells the time"
    with open_store(tmp_path / "judge") as store:
        manifest, progress = checkpoint(store, uploads_of(catalogue))
    there = sum(stored.get(each.digest, 0) for each in manifest.files)
    assert 0 < progress[0].remaining <= manifest.bytes - there
    verify(catalogue, manifest)


def test_a_store_that_is_away_in_the_middle_is_named_and_the_next_attempt_goes_on(
    tmp_path: Path, url: str, gateway: Gateway, catalogue: Catalogue, made: Manifest, hurried: None
) -> None:
    reports = 0

    def stop_after_a_file(_: object) -> None:
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


def test_a_store_that_does_not_answer_is_named(
    tmp_path: Path, gateway: Gateway, catalogue: Catalogue, made: Manifest, hurried: None
) -> None:
    gateway.pause()
    try:
        with open_store(tmp_path / "judge") as store:
            write(store, 2)
            with pytest.raises(CheckpointError, match="the store did not answer in time"):
                checkpoint(store, uploads_of(catalogue))
        with pytest.raises(CheckpointError, match="the store did not answer in time"):
            restore(catalogue, made, tmp_path / "restored")
    finally:
        gateway.resume()
    assert catalogue.kept(JOURNAL, JUDGE) == [made.name]


@pytest.mark.parametrize("spoil", [cut, flip, Path.unlink])
def test_a_spoiled_object_is_named_and_nothing_is_restored(
    tmp_path: Path,
    url: str,
    prefix: str,
    gateway: Gateway,
    catalogue: Catalogue,
    made: Manifest,
    spoil: Callable[[Path], None],
) -> None:
    file = max(made.files, key=lambda each: each.size)
    spoil(gateway.path(f"{prefix}/{made.name.file(file.digest)}"))
    checked = neardup("checkpoint", "verify", "--all", "--checkpoints", url)
    assert checked.exit_code == 1
    why = f"checkpoint {made.name}: {file.name}: {made.name.file(file.digest)} is "
    assert why in checked.stderr
    with pytest.raises(DamagedCheckpointError, match=why):
        restore(catalogue, made, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    catalogue.delete([made.name.file(file.digest)])  # as the guide says
    with open_store(tmp_path / "judge") as store:
        write(store, 2)
        again, _ = checkpoint(store, uploads_of(catalogue))
    verify(catalogue, again)


def test_a_full_store_keeps_the_checkpoint_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes another one once there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted")
    server = None
    try:
        server = Gateway(disk)
        for name, value in server.environment(USER).items():
            monkeypatch.setenv(name, value)
        catalogue = Catalogue(f"s3://{BUCKET}/{ALLOWED}")
        with open_store(tmp_path / "judge") as store:
            write(store, 1)
            first, _ = checkpoint(store, uploads_of(catalogue))
            batch = store.batch()
            for number in range(SMALL_DISK >> 10):
                batch.put(LOG, (1 << 40 | number).to_bytes(8, "big"), os.urandom(1 << 10))
            store.write(batch)
            write(store, 2)
            with pytest.raises(CheckpointError, match="the store is full"):
                checkpoint(store, uploads_of(catalogue))
            assert catalogue.kept(JOURNAL, JUDGE) == [first.name]
            verify(catalogue, first)
            server.forget_parts()
            more = ["mount", "-o", f"remount,size={8 * SMALL_DISK}", str(disk)]
            subprocess.run(more, check=True)
            second, _ = checkpoint(store, uploads_of(catalogue))
        verify(catalogue, second)
        restore(catalogue, second, tmp_path / "restored")
        assert digest_of(tmp_path / "restored") == digest_of(tmp_path / "judge")
    finally:
        if server:
            server.stop()
        subprocess.run(["umount", disk], check=True)


def test_what_the_policy_denies_is_named(
    tmp_path: Path, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Catalogue(f"s3://{BUCKET}/elsewhere")
    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        with pytest.raises(CheckpointError, match="access denied to these credentials") as error:
            checkpoint(store, uploads_of(elsewhere))
    assert not any(secret in str(error.value) for secret in USER)


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
        return max((name.ledger for name in newest), default=0)

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
    assert {str(each) for each in catalogue.contents(journal).marked} == {outcome.verified}
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [names.decisions, names.journal])
    assert min(each.start for each in bounds.values()) > 0
    shutil.rmtree(settings.state_dir / settings.namespace)
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, record(part(0, 3 * size, 3 * size + 1))))
    assert places(await verdicts(settings)) == once(part(0, 0, 3 * size + 1))
