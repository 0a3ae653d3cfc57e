"""Marks of checkpoints that were verified, and what pruning leaves because of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.verification import verify_whole
from stream.errors import DamagedCheckpointError, DiskError
from stream.tables.store.failures import translate
from tests.checkpointed import OTHER_CHAIN, Place, age
from tests.genesis import JOURNAL, genesis_of


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def marks(place: Place) -> list[str]:
    return sorted(each.stem for each in (place.objects / JOURNAL / "verified").glob("*"))


def test_a_mark_is_of_one_manifest(place: Place) -> None:
    (manifest,) = place.make(1, kept=1)
    assert not place.catalogue.is_marked(manifest)
    place.catalogue.mark(manifest)
    place.catalogue.mark(manifest)  # by a second trimmer
    assert place.catalogue.is_marked(manifest)
    assert place.catalogue.contents(JOURNAL).marked == {manifest.name}
    assert not place.catalogue.is_marked(msgspec.structs.replace(manifest, decided=manifest.decided + 1))
    assert place.kept == [manifest.name]
    (place.objects / manifest.name.mark_object).write_bytes(b"half of")
    assert not place.catalogue.is_marked(manifest)
    place.catalogue.mark(manifest)
    assert place.catalogue.is_marked(manifest)


def test_the_last_one_that_was_verified_stays_until_a_later_one_is(place: Place) -> None:
    first, second = place.make(1, 2, kept=2)
    place.catalogue.mark(first)
    third, fourth = place.make(3, 4, kept=2)
    assert place.kept == [fourth.name, third.name, first.name]
    assert marks(place) == [str(first.name)]
    place.catalogue.mark(fourth)
    (fifth,) = place.make(5, kept=2)
    assert place.kept == [fifth.name, fourth.name]
    assert marks(place) == [str(fourth.name)]
    assert place.catalogue.read(second.name) == second  # pruned


def test_a_mirror_of_the_journal_keeps_its_own_verified_checkpoint(place: Place) -> None:
    """Each Kafka cluster has logs of its own, which are trimmed because of it."""
    (first,) = place.make(1, kept=1)
    place.catalogue.mark(first)
    for applied in (2, 3):
        (mirrored,) = place.make(applied, of="mirror", chain=OTHER_CHAIN, kept=1, cluster="mirror")
        place.catalogue.mark(mirrored)
    (last,) = place.make(4, kept=1)
    assert place.kept == [last.name, mirrored.name, first.name]


def test_one_that_is_being_verified_stays_for_a_day(place: Place) -> None:
    (first,) = place.make(1, kept=1)
    place.catalogue.note_attempt(first.name)
    second, third = place.make(2, 3, kept=1)
    assert place.kept == [third.name, first.name]
    assert marks(place) == [str(first.name)]
    place.catalogue.mark(first)  # it took longer than the others were kept
    (fourth,) = place.make(4, kept=1)
    assert place.kept == [fourth.name, first.name]
    assert set(place.catalogue.contents(JOURNAL).attempts) == set()
    place.catalogue.note_attempt(fourth.name)
    attempt = place.objects / fourth.name.attempt_object
    age(attempt, SPARED_SECONDS + 60)  # the trimmer was killed
    (fifth,) = place.make(5, kept=1)
    assert place.kept == [fifth.name, first.name]
    assert not attempt.exists()
    assert place.catalogue.read(second.name) == second  # pruned


def test_what_a_killed_trimmer_had_begun_to_verify_goes_once_another_one_begins(place: Place) -> None:
    """Otherwise it would hold the logs up for a day."""
    (first,) = place.make(1, kept=1)
    place.catalogue.note_attempt(first.name)
    (second,) = place.make(2, kept=1)
    attempt = place.objects / first.name.attempt_object
    age(attempt, 60)
    place.catalogue.note_attempt(second.name)
    (third,) = place.make(3, kept=1)
    assert place.kept == [third.name, second.name]
    assert not attempt.exists()


def test_a_trimmer_of_each_kafka_cluster_may_verify_one(place: Place) -> None:
    """One that begins to verify its own does not let go of the other's."""
    (first,) = place.make(1, kept=1)
    place.catalogue.note_attempt(first.name)
    (mirrored,) = place.make(2, of="mirror", chain=OTHER_CHAIN, kept=1, cluster="mirror")
    place.catalogue.note_attempt(mirrored.name)
    (newest,) = place.make(3, of="mirror", chain=OTHER_CHAIN, kept=1, cluster="mirror")
    (last,) = place.make(4, kept=1)
    assert place.kept == [last.name, newest.name, mirrored.name, first.name]
    assert set(place.catalogue.contents(JOURNAL).attempts) == {first.name, mirrored.name}


def test_a_mark_without_its_checkpoint_is_removed(place: Place) -> None:
    first, _ = place.make(1, 2, kept=1)
    place.catalogue.mark(first)  # it was pruned while it was verified
    place.make(3, kept=1)
    assert marks(place) == []


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
    path = place.objects / manifest.name.file(file.digest)
    path.write_bytes(path.read_bytes()[:-1])
    assert place.catalogue.contents(JOURNAL).lacking(manifest) == file
    path.unlink()
    assert place.catalogue.contents(JOURNAL).lacking(manifest) == file
    other = msgspec.structs.replace(manifest, chain=OTHER_CHAIN)
    assert place.catalogue.contents(JOURNAL).lacking(other) is not None
