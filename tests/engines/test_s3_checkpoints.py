"""Whole checkpoints in a real S3 server, by a user who may do no more than a store needs. `test_s3_stores.py`
has what goes wrong with single files there, `tests/unit/test_stored_checkpoints.py` with checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import Manifest
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.restoring import restore, verify
from stream.checkpoints.uploads import linked
from stream.errors import CheckpointError
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
