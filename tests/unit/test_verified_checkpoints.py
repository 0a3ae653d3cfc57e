"""Marks of checkpoints that were verified, and what pruning leaves because of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import Manifest
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.verification import verify_whole
from stream.errors import DamagedCheckpointError, DiskError
from stream.tables.store.failures import translate
from tests.checkpointed import OTHER_CHAIN, checkpoint, open_store, uploads_of, write
from tests.genesis import JOURNAL, genesis_of


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(str(tmp_path / "objects"))


def make(tmp_path: Path, catalogue: Catalogue, *applied: int, kept: int = 1) -> list[Manifest]:
    """Checkpoints of one state."""
    made = []
    with open_store(tmp_path / "judge") as store:
        for each in applied:
            write(store, each)
            made.append(checkpoint(store, uploads_of(catalogue, kept=kept))[0])
    return made


def marks(tmp_path: Path) -> list[str]:
    return sorted(each.stem for each in (tmp_path / "objects" / JOURNAL / "verified").glob("*"))


def test_a_mark_is_of_one_manifest(tmp_path: Path, catalogue: Catalogue) -> None:
    (manifest,) = make(tmp_path, catalogue, 1)
    assert not catalogue.is_marked(manifest)
    catalogue.mark(manifest)
    catalogue.mark(manifest)  # by a second trimmer
    assert catalogue.is_marked(manifest)
    assert catalogue.contents(JOURNAL).marked == {manifest.name}
    assert not catalogue.is_marked(msgspec.structs.replace(manifest, decided=manifest.decided + 1))
    assert catalogue.kept(JOURNAL, JUDGE) == [manifest.name]
    (tmp_path / "objects" / manifest.name.mark_object).write_bytes(b"half of")
    assert not catalogue.is_marked(manifest)
    catalogue.mark(manifest)
    assert catalogue.is_marked(manifest)


def test_the_last_one_that_was_verified_stays_until_a_later_one_is(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    first, second = make(tmp_path, catalogue, 1, 2, kept=2)
    catalogue.mark(first)
    third, fourth = make(tmp_path, catalogue, 3, 4, kept=2)
    assert catalogue.kept(JOURNAL, JUDGE) == [fourth.name, third.name, first.name]
    assert marks(tmp_path) == [str(first.name)]
    catalogue.mark(fourth)
    (fifth,) = make(tmp_path, catalogue, 5, kept=2)
    assert catalogue.kept(JOURNAL, JUDGE) == [fifth.name, fourth.name]
    assert marks(tmp_path) == [str(fourth.name)]
    assert catalogue.read(second.name) == second  # pruned


def test_a_mirror_of_the_journal_keeps_its_own_verified_checkpoint(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    """Each Kafka cluster has logs of its own, which are trimmed because of it."""
    (first,) = make(tmp_path, catalogue, 1)
    catalogue.mark(first)
    with open_store(tmp_path / "mirror") as store:
        for applied in (2, 3):
            write(store, applied, cluster="mirror")
            mirrored, _ = checkpoint(store, uploads_of(catalogue, OTHER_CHAIN, kept=1))
            catalogue.mark(mirrored)
    (last,) = make(tmp_path, catalogue, 4)
    assert catalogue.kept(JOURNAL, JUDGE) == [last.name, mirrored.name, first.name]


def test_one_that_is_being_verified_stays_for_a_day(tmp_path: Path, catalogue: Catalogue) -> None:
    (first,) = make(tmp_path, catalogue, 1)
    catalogue.note_attempt(first.name)
    second, third = make(tmp_path, catalogue, 2, 3)
    assert catalogue.kept(JOURNAL, JUDGE) == [third.name, first.name]
    assert marks(tmp_path) == [str(first.name)]
    catalogue.mark(first)  # it took longer than the others were kept
    (fourth,) = make(tmp_path, catalogue, 4)
    assert catalogue.kept(JOURNAL, JUDGE) == [fourth.name, first.name]
    assert set(catalogue.contents(JOURNAL).attempts) == set()
    catalogue.note_attempt(fourth.name)
    attempt = tmp_path / "objects" / fourth.name.attempt_object
    then = time.time() - SPARED_SECONDS - 60
    os.utime(attempt, (then, then))  # the trimmer was killed
    (fifth,) = make(tmp_path, catalogue, 5)
    assert catalogue.kept(JOURNAL, JUDGE) == [fifth.name, first.name]
    assert not attempt.exists()
    assert catalogue.read(second.name) == second  # pruned


def test_what_a_killed_trimmer_had_begun_to_verify_goes_once_another_one_begins(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    """Otherwise it would hold the logs up for a day."""
    (first,) = make(tmp_path, catalogue, 1)
    catalogue.note_attempt(first.name)
    (second,) = make(tmp_path, catalogue, 2)
    attempt = tmp_path / "objects" / first.name.attempt_object
    os.utime(attempt, (time.time() - 60, time.time() - 60))
    catalogue.note_attempt(second.name)
    (third,) = make(tmp_path, catalogue, 3)
    assert catalogue.kept(JOURNAL, JUDGE) == [third.name, second.name]
    assert not attempt.exists()


def test_a_trimmer_of_each_kafka_cluster_may_verify_one(tmp_path: Path, catalogue: Catalogue) -> None:
    """One that begins to verify its own does not let go of the other's."""
    (first,) = make(tmp_path, catalogue, 1)
    catalogue.note_attempt(first.name)
    with open_store(tmp_path / "mirror") as store:
        write(store, 2, cluster="mirror")
        mirrored, _ = checkpoint(store, uploads_of(catalogue, OTHER_CHAIN, kept=1))
        catalogue.note_attempt(mirrored.name)
        write(store, 3, cluster="mirror")
        newest, _ = checkpoint(store, uploads_of(catalogue, OTHER_CHAIN, kept=1))
    (last,) = make(tmp_path, catalogue, 4)
    assert catalogue.kept(JOURNAL, JUDGE) == [last.name, newest.name, mirrored.name, first.name]
    assert set(catalogue.contents(JOURNAL).attempts) == {first.name, mirrored.name}


def test_a_mark_without_its_checkpoint_is_removed(tmp_path: Path, catalogue: Catalogue) -> None:
    first, _ = make(tmp_path, catalogue, 1, 2)
    catalogue.mark(first)  # it was pruned while it was verified
    make(tmp_path, catalogue, 3)
    assert marks(tmp_path) == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("IO error: While pread offset 0 len 48: {path}/000012.sst: Input/output error", DiskError),
        ("Corruption: block checksum mismatch in {path}/000012.sst", DamagedCheckpointError),
    ],
)
def test_a_disk_that_fails_during_verification_is_no_damage_of_the_checkpoint(
    message: str,
    expected: type[Exception],
    tmp_path: Path,
    catalogue: Catalogue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (manifest,) = make(tmp_path, catalogue, 1)

    def read(directory: Path, *_: object) -> int:
        raise translate(directory, Exception(message.format(path=directory)))

    monkeypatch.setattr("stream.tables.store.scrub_child.read_from_disk", read)
    with pytest.raises(expected, match=r"000012\.sst"):
        verify_whole(catalogue, manifest, genesis_of(), tmp_path / "scratch")


def test_a_checkpoint_that_lacks_a_file_says_which(tmp_path: Path, catalogue: Catalogue) -> None:
    (manifest,) = make(tmp_path, catalogue, 1)
    assert catalogue.contents(JOURNAL).lacking(manifest) is None
    file = manifest.files[-1]
    path = tmp_path / "objects" / manifest.name.file(file.digest)
    path.write_bytes(path.read_bytes()[:-1])
    assert catalogue.contents(JOURNAL).lacking(manifest) == file
    path.unlink()
    assert catalogue.contents(JOURNAL).lacking(manifest) == file
    other = msgspec.structs.replace(manifest, chain=OTHER_CHAIN)
    assert catalogue.contents(JOURNAL).lacking(other) is not None
