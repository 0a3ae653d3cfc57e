"""Marks of checkpoints that were verified, and what pruning leaves because of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stream.checkpoints.manifest import PRUNED, VERIFIED, CheckpointName, Manifest
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.restoring import verify
from stream.checkpoints.verification import verify_whole
from stream.errors import DamagedCheckpointError, DiskError
from stream.tables.store.failures import translate
from tests.checkpointed import Place, age
from tests.genesis import JOURNAL, genesis_of


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def mark(place: Place, manifest: Manifest) -> None:
    place.catalogue.add(manifest, VERIFIED)


def marks(place: Place) -> set[CheckpointName]:
    return set(place.catalogue.contents(JOURNAL).verified)


def test_a_mark_is_of_one_manifest(place: Place) -> None:
    (manifest,) = place.make(1, kept=1)
    assert not place.catalogue.is_verified(manifest)
    mark(place, manifest)
    mark(place, manifest)  # by a second trimmer
    assert place.catalogue.is_verified(manifest)
    assert marks(place) == {manifest.name}
    assert not place.catalogue.is_verified(msgspec.structs.replace(manifest, ledger=1))
    assert place.kept == [manifest.name]
    place.manifest(manifest.name, VERIFIED).write_bytes(b"half of")
    assert not place.catalogue.is_verified(manifest)
    mark(place, manifest)
    assert place.catalogue.is_verified(manifest)


def test_the_last_one_that_was_verified_stays_until_a_later_one_is(place: Place) -> None:
    first, second = place.make(1, 2, kept=2)
    mark(place, first)
    third, fourth = place.make(3, 4, kept=2)
    assert place.kept == [fourth.name, third.name, first.name]
    assert marks(place) == {first.name}
    mark(place, fourth)
    (fifth,) = place.make(5, kept=2)
    assert place.kept == [fifth.name, fourth.name]
    assert marks(place) == {fourth.name}
    assert place.catalogue.read(second.name) == second  # pruned


def test_one_that_is_pruned_while_it_is_verified_is_whole_and_stays_then(place: Place) -> None:
    """Or a trim that verifies for longer than it takes to prune would never come to an end."""
    first, *_ = place.make(1, 2, 3, kept=1)
    assert first.name not in place.kept
    for each in place.files.values():
        age(each, SPARED_SECONDS + 60)
    place.make(4, kept=1)
    verify(place.catalogue, first)
    mark(place, first)
    (last,) = place.make(5, kept=1)
    assert place.kept == [last.name, first.name]
    age(place.manifest(first.name, PRUNED), SPARED_SECONDS + 60)
    (last,) = place.make(6, kept=1)
    assert place.kept == [last.name, first.name]
    verify(place.catalogue, first)
    mark(place, last)
    (newest,) = place.make(7, kept=1)
    assert place.kept == [newest.name, last.name]
    verify(place.catalogue, first)  # by whoever began before it was pruned again


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
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (manifest,) = place.make(1, kept=1)

    def read(directory: Path, *_: object) -> int:
        raise translate(directory, Exception(message.format(path=directory)))

    monkeypatch.setattr("stream.tables.store.scrub_child.read_from_disk", read)
    with pytest.raises(expected, match=r"000012\.sst"):
        verify_whole(place.catalogue, manifest, genesis_of(), place.path / "scratch")


def test_a_checkpoint_that_lacks_a_file_says_which(place: Place) -> None:
    (manifest,) = place.make(1, kept=1)
    assert place.catalogue.contents(JOURNAL).lacking(manifest) is None
    file = manifest.files[-1]
    path = place.files[file.digest]
    path.write_bytes(path.read_bytes()[:-1])
    assert place.catalogue.contents(JOURNAL).lacking(manifest) == file
    path.unlink()
    assert place.catalogue.contents(JOURNAL).lacking(manifest) == file
