"""Checkpoints of a state in a directory: made, pruned and restored, whole or not at all."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import structlog
from msgspec.structs import replace

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.digests import digest_of_file
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.known_damage import RECORD, known_damage, note_damage
from stream.checkpoints.manifest import (
    MANIFEST_BYTES,
    PRUNED,
    VERIFIED,
    CheckpointFile,
    Manifest,
    checkpoint_of,
    decode,
    encode,
    file_object,
)
from stream.checkpoints.pruning import ABANDONED_SECONDS, SPARED_SECONDS
from stream.checkpoints.restoring import is_empty, restore, verify
from stream.checkpoints.uploads import UPLOAD_SECONDS, linked
from stream.errors import (
    CheckpointError,
    DamagedCheckpointError,
    DamagedStateError,
    SettingsError,
    StateBusyError,
)
from stream.judge.state.meta import Forgetting
from stream.tables.store.rocks import LOG, URLS, Store
from tests import kills
from tests.checkpointed import (
    OTHERS,
    OURS,
    ROWS,
    Place,
    age,
    checkpoint,
    cut,
    digest_of,
    flip,
    make_checkpoints,
    open_store,
    restore_newest,
    uploads_of,
    write,
)
from tests.genesis import JOURNAL
from tests.night import cases


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def made(place: Place) -> Manifest:
    return place.make(1)[0]


def test_a_restored_directory_has_what_was_linked_and_nothing_later(place: Place) -> None:
    with open_store(place.judge) as store:
        write(store, 1)
        with linked(store, JUDGE) as state:
            assert state is not None
            then = store.digest()
            write(store, 2)
            store.flush()
            manifest = uploads_of(place.catalogue).upload(state)
        assert store.digest() != then
    assert (manifest.applied, manifest.decided, manifest.directory) == (1, 2, OURS)
    restored = place.path / "new" / "judge"
    restore(place.catalogue, manifest, restored)
    assert digest_of(restored) == then
    assert stat.S_IMODE(restored.stat().st_mode) == 0o700
    assert {stat.S_IMODE((restored / each.name).stat().st_mode) for each in manifest.files} == {0o600}
    with open_store(restored) as store:  # to be written, too
        write(store, 2)
    assert not place.scratch


def test_the_largest_files_are_downloaded_first(
    place: Place, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no large one is left when the others have ended."""
    monkeypatch.setattr("stream.checkpoints.restoring.AT_ONCE", 1)
    sizes: list[int] = []
    restore(place.catalogue, made, place.restored, sizes.append)
    assert sizes == sorted((each.size for each in made.files), reverse=True)
    assert sizes != [each.size for each in made.files]


def test_only_files_that_the_store_lacks_are_uploaded(place: Place) -> None:
    uploads = uploads_of(place.catalogue)
    with open_store(place.judge) as store:
        write(store, 1)
        first, _ = checkpoint(store, uploads)
        write(store, 2)
        second, progress = checkpoint(store, uploads)
        before = {each.digest for each in first.files}
        new = {each.digest: each.size for each in second.files if each.digest not in before}
        assert 0 < len(new) < len(second.files)
        assert sum(each.uploaded for each in progress) == sum(new.values()) == progress[0].remaining
        assert progress[-1].remaining == 0
        _, progress = checkpoint(store, uploads_of(place.catalogue))  # of another process; nothing is new
        assert sum(each.uploaded for each in progress) == 0


def test_a_checkpoint_has_each_write_in_all_families_or_in_none(place: Place) -> None:
    """Also of writes that are made while it is linked."""
    ended = threading.Event()

    def write_on(store: Store) -> None:
        applied = 1
        while not ended.is_set():
            applied += 1
            write(store, applied)

    with open_store(place.judge) as store, ThreadPoolExecutor(1) as beside:
        write(store, 1)
        writing = beside.submit(write_on, store)
        try:
            for _ in range(4):
                with linked(store, JUDGE) as state:
                    assert state is not None
                    with Store(state.path, 1 << 20, read_only=True) as copy:
                        rows = {family: sum(1 for _ in copy.scan(family)) for family in (LOG, URLS)}
                    assert rows == dict.fromkeys((LOG, URLS), ROWS * state.summary.applied)
        finally:
            ended.set()
            writing.result()


def test_a_state_without_an_applied_record_has_no_checkpoint(place: Place) -> None:
    with open_store(place.judge) as store:
        write(store, 0, last=b"")
        with linked(store, JUDGE) as state:
            assert state is None


def test_an_upload_that_is_stopped_leaves_no_manifest_and_the_next_one_goes_on(place: Place) -> None:
    turns = iter([None] * 8)
    uploads = uploads_of(place.catalogue)
    with open_store(place.judge) as store:
        write(store, 1)
        with linked(store, JUDGE) as state:
            assert state is not None
            with pytest.raises(StopIteration):
                uploads.upload(state, turn=lambda _: next(turns))
        assert place.kept == []
        uploaded = sum(each.stat().st_size for each in place.files.values())
        assert uploaded
        manifest, progress = checkpoint(store, uploads)
    assert sum(each.uploaded for each in progress) <= manifest.bytes - uploaded + 4096
    verify(place.catalogue, manifest)


def test_a_state_makes_another_checkpoint_if_it_has_come_further_or_has_a_newer_ledger(place: Place) -> None:
    """Or logs could not be trimmed to it before the next page."""
    made = [
        place.make(1, decided=decided, ledger=ledger)[0]
        for decided, ledger in ((2, 0), (3, 0), (4, 2), (6, 4))
    ]
    assert made[0] == made[1]
    assert place.kept == [each.name for each in made[:0:-1]]
    assert [place.catalogue.read(each.name).ledger for each in made[1:]] == [0, 2, 4]


def test_a_name_says_when_it_was_made_what_is_erased_and_by_which_directory(place: Place) -> None:
    (made,) = place.make(1, forgetting=Forgetting(decided=2, erased=2))
    text = f"judge/20010909T014640.007Z-2-{OURS}"
    name = replace(made, time=1_000_000_000_007).name
    assert str(name) == text
    assert checkpoint_of(JOURNAL, text) == name
    for wrong in (text.replace("-2-", "-02-"), text.replace("judge/", ""), f"{1:020d}-{OURS}", ""):
        assert checkpoint_of(JOURNAL, wrong) is None


@pytest.mark.parametrize("spoil", [cut, flip, Path.unlink])
def test_a_spoiled_object_is_named_and_nothing_is_restored(
    place: Place, made: Manifest, spoil: Callable[[Path], None]
) -> None:
    for file in made.files:
        kept = place.files[file.digest]
        whole = kept.read_bytes()
        spoil(kept)
        what = f"checkpoint {made.name}: {file.name}: .*{file.digest} is "
        with pytest.raises(DamagedCheckpointError, match=what):
            restore(place.catalogue, made, place.restored)
        with pytest.raises(DamagedCheckpointError, match=what):
            verify(place.catalogue, made)
        assert not place.restored.exists()
        assert not place.scratch
        kept.write_bytes(whole)
    verify(place.catalogue, made)
    restore(place.catalogue, made, place.restored)
    assert digest_of(place.restored) == digest_of(place.judge)


def test_a_damaged_object_is_uploaded_again_once_it_is_deleted(place: Place, made: Manifest) -> None:
    """Also if nothing was applied since."""
    place.files[made.files[0].digest].unlink()
    (again,) = place.make(1)
    assert again.name != made.name
    verify(place.catalogue, again)
    place.files[again.files[0].digest].unlink()
    verify(place.catalogue, *place.make(2))


def test_files_of_another_state_are_refused(place: Place, made: Manifest) -> None:
    """Whatever the manifest says, it is the state's own record that counts."""
    for name, value in (("ledger", 1), ("generation", 999), ("last", bytes(16)), ("scheme", "other")):
        with pytest.raises(
            DamagedCheckpointError, match=f"{name} .*, but its manifest says {re.escape(str(value))}"
        ):
            restore(place.catalogue, replace(made, **{name: value}), place.restored)
        assert not place.restored.exists()


def without_current(made: Manifest) -> bytes:
    return encode(replace(made, files=[each for each in made.files if each.name != "CURRENT"]))


def listing(name: str, digest: str) -> Callable[[Manifest], bytes]:
    return lambda made: encode(replace(made, files=[*made.files, CheckpointFile(name, digest, 1)]))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda made: encode(made)[:-9], "cannot be read"),
        (lambda _: b"", "cannot be read"),
        (lambda made: encode(made).replace(b'"judge"', b'"judg\xe5"'), "cannot be read"),
        (lambda _: b'{"version": 3, "x": ' + b"[" * 9000, "cannot be read"),
        (lambda made: encode(made).replace(b'"version": 3', b'"version": 4'), "version 4; .* reads 3"),
        (lambda made: encode(replace(made, time=0)), f"is of judge/19700101T000000.000Z-0-{OURS}"),
        (without_current, "no CURRENT"),
        (lambda made: encode(replace(made, files=[*made.files, made.files[0]])), "a file twice"),
        (listing("../../judge/CURRENT", "ab" * 32), r"matching regex .* `\$\.files\[\d+\]\.name`"),
        (listing("LOCK", "ab" * 32), r"matching regex .* `\$\.files\[\d+\]\.name`"),
        (listing("000001.sst\n", "ab" * 32), r"matching regex .* `\$\.files\[\d+\]\.name`"),
        (listing("000001.sst", "../x"), r"matching regex .* `\$\.files\[\d+\]\.digest`"),
        (lambda made: encode(made) + b" " * (4 * MANIFEST_BYTES), f"has more than {MANIFEST_BYTES} bytes"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_not_what_was_written_is_refused(
    place: Place, made: Manifest, wrong: Callable[[Manifest], bytes], why: str
) -> None:
    assert decode(encode(made), made.name) == made
    place.manifest(made.name).write_bytes(wrong(made))
    assert place.kept == [made.name]
    with pytest.raises(DamagedCheckpointError, match=f"{re.escape(str(made.name))}: .*{why}"):
        place.catalogue.read(made.name)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"time": 10**18}, r"`\$\.time`"),
        ({"time": -1}, r"`\$\.time`"),
        ({"offsets": {"journal": {0: 1}, "decisions": {0: -2}}}, r"`\$\.offsets"),
        ({"offsets": {"journal": {0: 1}}}, "has offsets {'journal': {0: 1}}"),
        ({"ledger": 2}, "decided 2, ledger 2"),
        ({"erased": 3}, "decided 2, erased 3"),
    ],
)
def test_a_manifest_with_values_that_cannot_be_is_refused(
    made: Manifest, fields: dict[str, object], said: str
) -> None:
    with pytest.raises(DamagedCheckpointError, match=said):
        decode(encode(replace(made, **fields)), made.name)


def test_a_manifest_that_is_too_large_is_pruned_by_name_and_none_is_stored(
    place: Place, made: Manifest
) -> None:
    """And no more of it than that is read."""
    place.manifest(made.name).write_bytes(encode(made) + b" " * (4 * MANIFEST_BYTES))
    place.catalogue.prune(made.name)
    assert place.kept == []
    assert place.manifest(made.name, PRUNED).stat().st_size == MANIFEST_BYTES + 1
    with pytest.raises(DamagedCheckpointError, match=f"{made.name}: its manifest has more than"):
        place.catalogue.read(made.name)
    files = [made.files[0]] * (MANIFEST_BYTES // 100)
    with pytest.raises(CheckpointError, match=f"checkpoint {made.name}: its manifest of {len(files)} files"):
        place.catalogue.add(replace(made, files=files))
    assert place.kept == []


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        ("MANIFESTS_BYTES", f"2 bytes of manifests below {JOURNAL}"),
        ("OBJECTS", f"2 objects below {JOURNAL}"),
    ],
)
def test_a_store_that_lists_too_much_is_refused_by_name(
    place: Place, monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    """Names and manifests are held in memory, whoever put them there."""
    *_, last = place.make(1, 2, 3)
    monkeypatch.setattr(f"stream.checkpoints.catalogue.{limit}", 2)
    why = f"checkpoints: {place.catalogue}: has more than "
    with pytest.raises(CheckpointError, match=why + what):
        place.catalogue.contents(JOURNAL)
    assert place.catalogue.journals() == [JOURNAL]
    if limit == "OBJECTS":
        for journal in ("12", "34"):
            place.catalogue.add(replace(last, journal=journal * 16))
        with pytest.raises(CheckpointError, match=f"{why}2 journals"):
            place.catalogue.journals()


def test_a_directory_with_files_is_not_replaced(place: Place, made: Manifest) -> None:
    there = place.restored
    assert is_empty(there)
    there.mkdir()
    assert is_empty(there)
    (there / "file").write_text("mine")
    assert not is_empty(there)
    with pytest.raises(StateBusyError, match=f"state directory {there}: another process has filled it"):
        restore(place.catalogue, made, there)
    assert [each.name for each in there.iterdir()] == ["file"]
    (there / "file").unlink()
    restore(place.catalogue, made, there)
    assert digest_of(there) == digest_of(place.judge)


def test_a_link_or_mount_point_is_refused_before_anything_is_downloaded(
    place: Place, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("downloads")

    monkeypatch.setattr(place.catalogue, "download", refuse)
    meant, link, mounted = (place.path / name for name in ("meant", "link", "mounted"))
    meant.mkdir()
    mounted.mkdir()
    link.symlink_to(meant)
    refused = [link]
    if not subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mounted)], capture_output=True).returncode:
        refused.append(mounted)
    try:
        for each in refused:
            assert is_empty(each)
            with pytest.raises(SettingsError, match=f"state directory {each}: no restored directory"):
                restore(place.catalogue, made, each)
            assert is_empty(each)
    finally:
        if mounted in refused:
            subprocess.run(["umount", mounted], check=True)
    assert not place.scratch


def test_the_newest_are_kept_and_files_go_a_day_after_the_last_manifest_that_names_them(place: Place) -> None:
    manifests = place.make(1, 2, 3, kept=2)
    assert place.kept == [manifests[2].name, manifests[1].name]
    digests = [{each.digest for each in manifest.files} for manifest in manifests]
    orphans = digests[0] - digests[1] - digests[2]
    assert orphans
    restore(place.catalogue, manifests[0], place.restored)  # by whoever began before it was pruned
    for each in place.files.values():
        age(each, SPARED_SECONDS + 60)
    place.make(4, kept=2)
    assert digests[0] <= set(place.files)  # a pruned manifest names them still
    for each in place.objects.glob(f"{JOURNAL}/pruned/*/*"):
        age(each, SPARED_SECONDS + 60)
    (newest,) = place.make(5, kept=2)
    assert not orphans & set(place.files)
    assert place.kept[0] == newest.name
    for name in place.kept:
        verify(place.catalogue, place.catalogue.read(name))


def test_a_file_that_may_be_removed_before_the_manifest_is_there_is_uploaded_again(
    place: Place, made: Manifest
) -> None:
    place.manifest(made.name).unlink()
    for each in place.files.values():
        age(each, UPLOAD_SECONDS + 60)
    with open_store(place.judge) as store:
        again, progress = checkpoint(store, uploads_of(place.catalogue))
    assert sum(each.uploaded for each in progress) == again.bytes
    young = time.time() - UPLOAD_SECONDS
    assert all(place.files[each.digest].stat().st_mtime > young for each in again.files)


@pytest.mark.parametrize("hours", [-20, 20])
def test_only_the_clock_of_the_store_says_which_files_may_be_removed(
    place: Place, made: Manifest, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Not that of this machine, which may be wrong."""
    place.manifest(made.name).unlink()
    old, *young = (place.files[each.digest] for each in made.files)
    age(old, UPLOAD_SECONDS + 60)
    for each in young:
        age(each, UPLOAD_SECONDS - 3600)
    now = time.time
    monkeypatch.setattr("stream.checkpoints.uploads.time.time", lambda: now() + 3600 * hours)
    with open_store(place.judge) as store:
        checkpoint(store, uploads_of(place.catalogue))
    assert old.stat().st_mtime > now() - 3600
    assert all(each.stat().st_mtime < now() - 3600 for each in young)


def test_a_file_that_nothing_names_goes_a_day_after_its_upload(place: Place, made: Manifest) -> None:
    left = place.objects / file_object(JOURNAL, "00" * 32)
    left.write_bytes(b"of an upload that did not end")
    for applied, seconds in ((2, SPARED_SECONDS - 60), (3, SPARED_SECONDS + 60)):
        age(left, seconds)
        assert left.exists()
        place.make(applied)
    assert not left.exists()


def test_a_manifest_that_cannot_be_read_keeps_all_files_until_it_is_gone(
    place: Place, made: Manifest
) -> None:
    place.manifest(made.name).write_bytes(b"damaged")
    for each in place.files.values():
        age(each, SPARED_SECONDS + 60)
    before = set(place.files)
    (newest,) = place.make(2)
    assert before <= set(place.files)
    verify(place.catalogue, newest)


def test_a_manifest_that_cannot_be_read_holds_no_forgotten_pages(place: Place, made: Manifest) -> None:
    """Its name says what is erased from it."""
    place.manifest(made.name).write_bytes(b"damaged")
    (clean,) = place.make(2, forgetting=Forgetting(decided=4, erased=4))
    age(place.manifest(clean.name), SPARED_SECONDS + 60)
    age(place.manifest(made.name), SPARED_SECONDS + 120)
    uploads_of(place.catalogue).prune(JOURNAL)
    assert place.kept == [clean.name]
    for each in (place.manifest(made.name, PRUNED), *place.files.values()):
        age(each, SPARED_SECONDS + 60)
    uploads_of(place.catalogue).prune(JOURNAL)
    assert set(place.files) == {each.digest for each in clean.files}


def test_two_directories_upload_at_once(place: Place) -> None:
    with ThreadPoolExecutor(2) as threads:
        for each in [
            threads.submit(Place(place.path).make, *range(1, 6), of=instance, instance=instance, kept=2)
            for instance in (OURS, OTHERS)
        ]:
            each.result()
    manifests = [place.catalogue.read(name) for name in place.kept]
    assert {(each.applied, each.directory) for each in manifests} == {
        (applied, instance) for applied in (4, 5) for instance in (OURS, OTHERS)
    }
    for number, each in enumerate(manifests):
        restore(place.catalogue, each, place.path / str(number))


def test_a_restored_directory_uploads_only_what_is_new(place: Place, made: Manifest) -> None:
    restore(place.catalogue, made, place.restored)
    before = set(place.files)
    (again,) = place.make(2, of="restored", instance=OTHERS)
    tables = {each.digest for each in made.files if each.name.endswith(".sst")}
    assert tables <= {each.digest for each in again.files}
    assert tables.isdisjoint(set(place.files) - before)


def test_checkpoints_of_an_earlier_version_are_named_and_left(place: Place, made: Manifest) -> None:
    names = [
        f"{JOURNAL}/checkpoints/{1:020d}-{OURS}.json",
        f"{JOURNAL}/checkpoints/{1:020d}-{2:020d}-{3:020d}-{OURS}.json",
        f"{JOURNAL}/elector-b/checkpoints/{1:020d}-{OURS}.json",
    ]
    for each in names:
        path = place.objects / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(made))
        age(path, 2 * ABANDONED_SECONDS)
    place.make(2)
    contents = place.catalogue.contents(JOURNAL)
    assert contents.earlier == dict(zip(names, ("judge", "judge", "elector-b"), strict=True))
    assert len(contents.kept) == 2


@pytest.mark.parametrize("days", [-30, 30])
def test_a_clock_that_is_wrong_removes_nothing(
    place: Place, made: Manifest, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    before, now = set(place.files), time.time
    with monkeypatch.context() as patch:
        patch.setattr("stream.checkpoints.uploads.time.time", lambda: now() + days * 86_400)
        (second,) = place.make(2, of="other", instance=OTHERS, kept=1)
    (third,) = place.make(3, of="other", instance=OTHERS, kept=1)
    assert set(place.kept) == {made.name, third.name}
    assert before <= set(place.files)
    verify(place.catalogue, second)


def test_a_checkpoint_stands_though_older_ones_cannot_be_pruned(
    place: Place, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise CheckpointError("checkpoints: denied")

    monkeypatch.setattr(place.catalogue, "prune", refuse)
    with structlog.testing.capture_logs() as logs:
        (newest,) = place.make(2, kept=1)
    assert {newest.name, made.name} == set(place.kept)
    assert [each["event"] for each in logs] == ["checkpoint_not_pruned"]


DAY, WEEK, MIRROR, OTHER = SPARED_SECONDS, ABANDONED_SECONDS, {"cluster": "mirror"}, {"directory": OTHERS}
FURTHER = {"offsets": {"journal": {0: 8}, "decisions": {0: 16}}}
ELECTOR, ERASED, VERIFIED_TOO = {"kind": "elector"}, {"erased": 2}, {"verified": True}
SCENES: dict[str, list[tuple[float, dict[str, Any], bool]]] = {
    "the last two of a directory stay": [(30, {}, False), (20, {}, True), (10, {}, True)],
    "though others had come further": [(30, FURTHER, False), (20, {}, True), (10, {}, True)],
    "a directory is gone after a week": [(WEEK + 60, {}, False), (9, OTHER, True), (8, OTHER, True)],
    "not before": [(WEEK - 60, {}, True), (9, OTHER, True), (8, OTHER, True)],
    "nor because of one checkpoint": [(2 * WEEK, {}, True), (9, OTHER, True)],
    "nor because of another cluster": [
        (2 * WEEK, {}, True), (9, OTHER | MIRROR, True), (8, OTHER | MIRROR, True),
    ],
    "nor if nothing comes to either": [(2 * WEEK, {}, True), (2 * WEEK, OTHER, True)],
    "what is not erased stays a day": [(DAY, {}, True), (DAY - 60, ERASED, True)],
    "and goes then": [(DAY + 120, {}, False), (DAY + 60, ERASED, True)],
    "also that of another directory": [(DAY + 120, {}, False), (DAY + 60, ERASED | OTHER, True)],
    "not because of another cluster": [(DAY + 120, {}, True), (DAY + 60, ERASED | OTHER | MIRROR, True)],
    "nor of a damaged one": [(DAY + 120, {}, True), (DAY + 60, ERASED | {"damaged": True}, True)],
    "what is erased again is newer": [(DAY + 120, ERASED, True), (10, {}, True)],
    "a verified one stays in each cluster": [
        (60, VERIFIED_TOO, True), (50, OTHER | MIRROR | VERIFIED_TOO, False),
        (40, OTHER | MIRROR | VERIFIED_TOO, True), (30, OTHER | MIRROR, True), (20, {}, True), (10, {}, True),
    ],
    "that of an elector that is gone goes": [
        (WEEK + 60, ELECTOR | VERIFIED_TOO, False), (9, {}, True), (8, {}, True),
    ],
}  # fmt: skip
"""Seconds since each checkpoint was uploaded, what it is, and whether it stays."""


@pytest.mark.parametrize("name", SCENES)
def test_who_prunes_keeps_what_others_may_need(place: Place, made: Manifest, name: str) -> None:
    place.manifest(made.name).unlink()
    expected = set()
    for seconds, fields, stays in SCENES[name]:
        fields = dict(fields)
        damaged, verified = fields.pop("damaged", False), fields.pop("verified", False)
        stored = replace(made, time=made.time - int(1000 * seconds), **fields)
        place.catalogue.add(stored)
        age(place.manifest(stored.name), seconds)
        if verified:
            place.catalogue.add(stored, VERIFIED)
            age(place.manifest(stored.name, VERIFIED), seconds)
        if damaged:
            place.manifest(stored.name).write_bytes(b"damaged")
        expected |= {stored.name} if stays else set()
    uploads_of(Place(place.path).catalogue, kept=2).prune(JOURNAL)
    contents = place.catalogue.contents(JOURNAL)
    assert set(contents.verified) <= set(contents.kept) == expected


def test_damage_is_noted_by_the_content_of_the_file(place: Place) -> None:
    place.judge.mkdir()
    (place.judge / "000012.sst").write_bytes(b"damaged")
    for name in ("000012.sst: why", "000012.sst: why", "000013.sst: it is not there", "3 anchors of 4"):
        note_damage(place.judge, DamagedStateError(f"state directory {place.judge}: damaged: {name}"))
    record = place.judge.with_suffix(RECORD)
    record.write_text(f"{record.read_text()}{'ab' * 32}")  # the next line was cut
    (place.judge / "CURRENT").write_bytes(b"damaged too")
    damage = DamagedStateError(f"state directory {place.judge}: damaged: CURRENT: why")
    note_damage(place.judge, damage)
    damaged = {digest_of_file(place.judge / name) for name in ("000012.sst", "CURRENT")}
    assert known_damage(place.judge) == damaged | {"ab" * 32}
    assert known_damage(place.path / "other") == set()


def test_damage_that_names_no_file_is_that_of_the_checkpoint_that_was_restored(
    place: Place, made: Manifest
) -> None:
    restore(place.catalogue, made, place.restored)
    for what in ("3 anchors of 4", "3 anchors of 4", "000099.sst: No such file"):
        note_damage(place.restored, DamagedStateError(f"state directory {place.restored}: damaged: {what}"))
    assert known_damage(place.restored) == {str(made.name)}
    assert place.restored.with_suffix(RECORD).read_text().count("a checkpoint") == 1


def test_a_store_that_is_away_is_named(place: Place, made: Manifest) -> None:
    away = Catalogue(str(place.path / "unmounted" / "objects"))

    def upload() -> None:
        with open_store(place.judge) as store:
            checkpoint(store, uploads_of(away))

    for call in (lambda: away.contents(JOURNAL), away.journals, upload):
        with pytest.raises(CheckpointError, match=f"checkpoints: {place.path}/unmounted/objects"):
            call()
    assert not place.scratch


def test_the_digest_is_of_the_whole_content(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"x" * (3 << 20))
    other.write_bytes(b"x" * ((3 << 20) - 1) + b"y")
    turns: list[None] = []
    digests = {digest_of_file(each, lambda: turns.append(None)) for each in (one, other)}
    assert (len(digests), len(turns)) == (2, 6)


UPLOADS = [
    ("checkpoint.linked", 0), ("checkpoint.linked:2", 1), ("checkpoint.file", 0), ("checkpoint.file:3", 0),
    ("checkpoint.file:7", 1), ("checkpoint.manifest", 1), ("checkpoint.manifest:2", 2),
    ("checkpoint.pruned", 1), ("checkpoint.pruned:2", 1),
]  # fmt: skip
"""Failpoints of uploads, and how many checkpoints are whole after them."""


@pytest.mark.chaos
@pytest.mark.parametrize(("failpoint", "kept"), cases(UPLOADS, by_day=UPLOADS[3::2]))
def test_a_killed_upload_leaves_whole_checkpoints_and_the_next_one_goes_on(
    place: Place, failpoint: str, kept: int
) -> None:
    kills.killed(failpoint, make_checkpoints, place.judge, place.objects)
    assert len(place.kept) == kept
    for name in place.kept:
        restore(place.catalogue, place.catalogue.read(name), place.path / name.time)
    make_checkpoints(place.judge, place.objects)
    (newest,) = place.kept
    restore(place.catalogue, place.catalogue.read(newest), place.restored)
    assert digest_of(place.restored) == digest_of(place.judge)
    assert not place.scratch


@pytest.mark.chaos
@pytest.mark.parametrize(
    "failpoint",
    cases(["restore.file", "restore.file:3", "restore.renamed"], by_day=["restore.file:3"]),
)
def test_a_killed_restore_leaves_the_whole_state_or_none(
    place: Place, made: Manifest, failpoint: str
) -> None:
    kills.killed(failpoint, restore_newest, place.restored, place.objects)
    if failpoint == "restore.renamed":
        assert digest_of(place.restored) == digest_of(place.judge)
        shutil.rmtree(place.restored)
    assert not place.restored.exists()
    restore_newest(place.restored, place.objects)
    assert digest_of(place.restored) == digest_of(place.judge)
    assert not place.scratch
