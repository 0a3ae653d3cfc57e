"""Checkpoints of a state in a directory: made, pruned and restored, whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import structlog

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.digests import digest_of_file
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.known_damage import RECORD, known_damage, note_damage
from stream.checkpoints.manifest import (
    MANIFEST_BYTES,
    CheckpointFile,
    Manifest,
    checkpoint_of,
    decode,
    encode,
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
from stream.tables.store.rocks import DEFAULT, LOG, URLS, Store
from tests import kills
from tests.checkpointed import (
    CHAIN,
    OTHER_CHAIN,
    ROWS,
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
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def catalogue(objects: Path) -> Catalogue:
    return Catalogue(str(objects))


@pytest.fixture
def made(tmp_path: Path, catalogue: Catalogue) -> Manifest:
    """The checkpoint of the state in `tmp_path / "judge"`."""
    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        return checkpoint(store, uploads_of(catalogue))[0]


def files(objects: Path, chain: str = CHAIN) -> dict[str, Path]:
    """Digest -> file of a chain in the store."""
    return {each.name: each for each in (objects / JOURNAL / chain / "files").iterdir()}


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def scratch(directory: Path) -> list[Path]:
    return list(directory.glob("neardup-*"))


def test_a_restored_directory_has_what_was_linked_and_nothing_later(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        with linked(store, JUDGE) as state:
            assert state is not None
            then = store.digest()
            write(store, 2)
            store.flush()
            manifest = uploads_of(catalogue).upload(state)
        assert store.digest() != then
    assert (manifest.applied, manifest.decided, manifest.chain) == (1, 2, CHAIN)
    restored = tmp_path / "new" / "judge"
    restore(catalogue, manifest, restored)
    assert digest_of(restored) == then
    assert stat.S_IMODE(restored.stat().st_mode) == 0o700
    assert {stat.S_IMODE((restored / each.name).stat().st_mode) for each in manifest.files} == {0o600}
    with open_store(restored) as store:  # to be written, too
        write(store, 2)
    assert not scratch(tmp_path)
    assert not scratch(restored.parent)


def test_the_largest_files_are_downloaded_first(
    tmp_path: Path, catalogue: Catalogue, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no large one is left when the others have ended."""
    monkeypatch.setattr("stream.checkpoints.restoring.AT_ONCE", 1)
    sizes: list[int] = []
    restore(catalogue, made, tmp_path / "restored", sizes.append)
    assert sizes == sorted((each.size for each in made.files), reverse=True)
    assert sizes != [each.size for each in made.files]


def test_only_files_that_the_store_lacks_are_uploaded(tmp_path: Path, catalogue: Catalogue) -> None:
    uploads = uploads_of(catalogue)
    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        first, _ = checkpoint(store, uploads)
        write(store, 2)
        second, progress = checkpoint(store, uploads)
        before = {each.digest for each in first.files}
        new = {each.digest: each.size for each in second.files if each.digest not in before}
        assert 0 < len(new) < len(second.files)
        assert sum(each.uploaded for each in progress) == sum(new.values()) == progress[0].remaining
        assert progress[-1].remaining == 0
        _, progress = checkpoint(store, uploads_of(catalogue))  # of another process, and nothing is new
        assert sum(each.uploaded for each in progress) == 0


def test_a_checkpoint_has_each_write_in_all_families_or_in_none(tmp_path: Path) -> None:
    """Also of writes that are made while it is linked."""
    ended = threading.Event()

    def write_on(store: Store) -> None:
        applied = 1
        while not ended.is_set():
            applied += 1
            write(store, applied)

    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        thread = threading.Thread(target=write_on, args=(store,))
        thread.start()
        try:
            for _ in range(4):
                with linked(store, JUDGE) as state:
                    assert state is not None
                    with Store(state.path, 1, 1 << 20, read_only=True) as copy:
                        rows = {family: sum(1 for _ in copy.scan(family)) for family in (LOG, URLS)}
                    assert rows == dict.fromkeys((LOG, URLS), ROWS * state.summary.applied)
        finally:
            ended.set()
            thread.join()


def test_a_state_without_an_applied_record_has_no_checkpoint(tmp_path: Path) -> None:
    with open_store(tmp_path / "judge") as store:
        write(store, 0, last=b"")
        with linked(store, JUDGE) as state:
            assert state is None


def test_an_upload_that_is_stopped_leaves_no_manifest_and_the_next_one_goes_on(
    tmp_path: Path, objects: Path, catalogue: Catalogue
) -> None:
    turns = iter([None] * 8)
    uploads = uploads_of(catalogue)
    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        with linked(store, JUDGE) as state:
            assert state is not None
            with pytest.raises(StopIteration):
                uploads.upload(state, turn=lambda _: next(turns))
        assert catalogue.kept(JOURNAL, JUDGE) == []
        uploaded = sum(each.stat().st_size for each in files(objects).values())
        assert uploaded
        manifest, progress = checkpoint(store, uploads)
    assert sum(each.uploaded for each in progress) <= manifest.bytes - uploaded + 4096
    verify(catalogue, manifest)


def test_a_second_manifest_at_the_same_place_changes_nothing(tmp_path: Path, catalogue: Catalogue) -> None:
    with open_store(tmp_path / "judge") as store:
        write(store, 1)
        first, _ = checkpoint(store, uploads_of(catalogue))
        write(store, 1, decided=first.decided + 1)
        second, _ = checkpoint(store, uploads_of(catalogue))
    assert catalogue.read(first.name) == first
    assert second == first  # what is returned is what is stored


def test_a_newer_ledger_record_makes_another_checkpoint_of_the_same_journal_offset(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    """Or logs could not be trimmed to it before the next page."""
    made = []
    with open_store(tmp_path / "judge") as store:
        for ledger in (0, 2, 4):
            write(store, 1, decided=ledger + 2, ledger=ledger)
            made.append(checkpoint(store, uploads_of(catalogue))[0])
    assert catalogue.kept(JOURNAL, JUDGE) == [each.name for each in reversed(made)]
    assert [catalogue.read(each.name).ledger for each in made] == [0, 2, 4]
    assert [str(each.name) for each in made] == [
        f"{1:020d}-{CHAIN}",
        f"{1:020d}-{2:020d}-{CHAIN}",
        f"{1:020d}-{4:020d}-{CHAIN}",
    ]
    assert [checkpoint_of(JOURNAL, str(each.name)) for each in made] == [each.name for each in made]
    assert checkpoint_of(JOURNAL, f"{1:020d}-{0:020d}-{CHAIN}") is None  # one name for each


def test_a_checkpoint_of_an_earlier_version_is_refused_by_name(
    objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    """Its name had no ledger record."""
    content = encode(msgspec.structs.replace(made, ledger=1)).replace(b'"version": 2', b'"version": 1')
    (objects / made.name.object).write_bytes(content)
    assert catalogue.kept(JOURNAL, JUDGE) == [made.name]
    with pytest.raises(DamagedCheckpointError, match=f"{made.name}: its manifest has version 1; .* reads 2"):
        catalogue.read(made.name)


@pytest.mark.parametrize("spoil", [cut, flip, Path.unlink])
def test_a_spoiled_object_is_named_and_nothing_is_restored(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest, spoil: Callable[[Path], None]
) -> None:
    for file in made.files:
        kept = files(objects)[file.digest]
        whole = kept.read_bytes()
        spoil(kept)
        what = f"checkpoint {made.name}: {file.name}: .*{file.digest} is "
        with pytest.raises(DamagedCheckpointError, match=what):
            restore(catalogue, made, tmp_path / "restored")
        with pytest.raises(DamagedCheckpointError, match=what):
            verify(catalogue, made)
        assert not (tmp_path / "restored").exists()
        assert not scratch(tmp_path)
        kept.write_bytes(whole)
    verify(catalogue, made)
    restore(catalogue, made, tmp_path / "restored")
    assert digest_of(tmp_path / "restored") == digest_of(tmp_path / "judge")


def test_a_damaged_object_is_uploaded_again_once_it_is_deleted(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    files(objects)[made.files[0].digest].unlink()
    with open_store(tmp_path / "judge") as store:
        write(store, 2)
        again, _ = checkpoint(store, uploads_of(catalogue))
    verify(catalogue, again)


def test_files_of_another_state_are_refused(tmp_path: Path, catalogue: Catalogue, made: Manifest) -> None:
    """Whatever the manifest says, it is the state's own record that counts."""
    for name, value in (("decided", 3), ("generation", 999), ("last", "00" * 16), ("scheme", "other")):
        wrong = msgspec.structs.replace(made, **{name: value})
        with pytest.raises(DamagedCheckpointError, match=f"{name} .*, but its manifest says {value}"):
            restore(catalogue, wrong, tmp_path / "restored")
        assert not (tmp_path / "restored").exists()


def test_a_state_without_the_tables_of_its_first_anchors_is_refused(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    with open_store(tmp_path / "judge") as store:
        batch = store.batch()
        batch.put(DEFAULT, b"run/held", (7).to_bytes(8, "little"))
        store.write(batch)
        write(store, 1)
        made, _ = checkpoint(store, uploads_of(catalogue))
    with pytest.raises(DamagedCheckpointError, match=f"{made.name}.*dropped its tables .* before 7"):
        restore(catalogue, made, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_manifest_that_is_not_what_was_written_is_refused(made: Manifest) -> None:
    content = encode(made)
    assert decode(content, made.name) == made
    other = msgspec.structs.replace(made, applied=made.applied + 1)
    first, without = made.files[0], [each for each in made.files if each.name != "CURRENT"]
    for wrong, why in (
        (content[:-9], "cannot be read"),
        (b"", "cannot be read"),
        (content.replace(b'"version": 2', b'"version": 3'), "version 3; this program reads 2"),
        (encode(other), f"is of {other.name}"),
        (encode(msgspec.structs.replace(made, files=without)), "no CURRENT"),
        (encode(msgspec.structs.replace(made, files=[*made.files, first])), "a file twice"),
    ):
        with pytest.raises(DamagedCheckpointError, match=re.escape(str(made.name))) as error:
            decode(wrong, made.name)
        assert why in str(error.value)
    for name, digest in (
        ("../../judge/CURRENT", first.digest),
        ("LOCK", first.digest),
        ("000001.sst", "../x"),
    ):
        files = [*made.files, CheckpointFile(name, digest, 1)]
        with pytest.raises(DamagedCheckpointError, match="its manifest lists"):
            decode(encode(msgspec.structs.replace(made, files=files)), made.name)


def test_a_manifest_that_is_too_large_is_refused_by_name_and_pruned(
    objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    """And no more of it than that is read."""
    (objects / made.name.object).write_bytes(encode(made) + b" " * (4 * MANIFEST_BYTES))
    why = f"checkpoint {made.name}: its manifest has more than {MANIFEST_BYTES} bytes"
    with pytest.raises(DamagedCheckpointError, match=why):
        catalogue.read(made.name)
    catalogue.prune(made.name)
    assert catalogue.kept(JOURNAL, JUDGE) == []
    assert (objects / made.name.pruned_object).stat().st_size == MANIFEST_BYTES + 1
    with pytest.raises(DamagedCheckpointError, match=why):
        catalogue.read(made.name)


def test_a_manifest_that_would_be_too_large_is_not_stored(catalogue: Catalogue, made: Manifest) -> None:
    catalogue.prune(made.name)
    files = [made.files[0]] * (MANIFEST_BYTES // 100)
    with pytest.raises(CheckpointError, match=f"checkpoint {made.name}: its manifest of {len(files)} files"):
        catalogue.add(msgspec.structs.replace(made, files=files))
    assert catalogue.kept(JOURNAL, JUDGE) == []


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        ("KEPT", f"2 kept manifests below {JOURNAL}"),
        ("KEPT_BYTES", f"2 bytes of kept manifests below {JOURNAL}"),
        ("OBJECTS", f"2 objects below {JOURNAL}"),
    ],
)
def test_a_store_that_lists_too_much_is_refused_by_name(
    tmp_path: Path, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    """Names and manifests are held in memory, whoever put them there."""
    with open_store(tmp_path / "judge") as store:
        for applied in (1, 2, 3):
            write(store, applied)
            checkpoint(store, uploads_of(catalogue))
    monkeypatch.setattr(f"stream.checkpoints.catalogue.{limit}", 2)
    why = f"checkpoints: {catalogue}: has more than {what}"
    with pytest.raises(CheckpointError, match=why):
        catalogue.contents(JOURNAL)
    if limit != "OBJECTS":
        with pytest.raises(CheckpointError, match=why):
            catalogue.kept(JOURNAL, JUDGE)
    assert catalogue.journals() == [JOURNAL]


def test_a_store_of_too_many_journals_is_refused_by_name(
    catalogue: Catalogue, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue.add(msgspec.structs.replace(made, journal="12" * 16))
    monkeypatch.setattr("stream.checkpoints.catalogue.OBJECTS", 1)
    with pytest.raises(CheckpointError, match=f"checkpoints: {catalogue}: has more than 1 journals"):
        catalogue.journals()


def test_a_directory_with_files_is_not_replaced(tmp_path: Path, catalogue: Catalogue, made: Manifest) -> None:
    there = tmp_path / "there"
    assert is_empty(there)
    there.mkdir()
    assert is_empty(there)
    (there / "file").write_text("mine")
    assert not is_empty(there)
    with pytest.raises(StateBusyError, match=f"state directory {there}: another process has filled it"):
        restore(catalogue, made, there)
    assert [each.name for each in there.iterdir()] == ["file"]
    (there / "file").unlink()
    restore(catalogue, made, there)
    assert digest_of(there) == digest_of(tmp_path / "judge")


def test_a_link_or_mount_point_is_refused_before_anything_is_downloaded(
    tmp_path: Path, catalogue: Catalogue, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("downloads")

    monkeypatch.setattr(catalogue, "download", refuse)
    meant, link, mounted = tmp_path / "meant", tmp_path / "link", tmp_path / "mounted"
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
                restore(catalogue, made, each)
            assert is_empty(each)
    finally:
        if mounted in refused:
            subprocess.run(["umount", mounted], check=True)
    assert not scratch(tmp_path)


def test_the_newest_are_kept_and_files_go_a_day_after_the_last_manifest_that_names_them(
    tmp_path: Path, objects: Path, catalogue: Catalogue
) -> None:
    uploads, manifests = uploads_of(catalogue, kept=2), []
    with open_store(tmp_path / "judge") as store:
        for applied in (1, 2, 3):
            write(store, applied)
            manifests.append(checkpoint(store, uploads)[0])
        assert catalogue.kept(JOURNAL, JUDGE) == [manifests[2].name, manifests[1].name]
        digests = [{each.digest for each in manifest.files} for manifest in manifests]
        orphans = digests[0] - digests[1] - digests[2]
        assert orphans
        restore(catalogue, manifests[0], tmp_path / "older")  # by whoever began before it was pruned
        for each in files(objects).values():
            age(each, SPARED_SECONDS + 60)
        write(store, 4)
        checkpoint(store, uploads)
        assert digests[0] <= set(files(objects))  # a pruned manifest names them still
        for each in objects.glob(f"{JOURNAL}/pruned/*"):
            age(each, SPARED_SECONDS + 60)
        write(store, 5)
        newest, _ = checkpoint(store, uploads)
        assert not orphans & set(files(objects))
        assert catalogue.kept(JOURNAL, JUDGE)[0] == newest.name
    for name in catalogue.kept(JOURNAL, JUDGE):
        verify(catalogue, catalogue.read(name))


def test_a_file_that_may_be_removed_before_the_manifest_is_there_is_uploaded_again(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    (objects / made.name.object).unlink()
    for each in files(objects).values():
        age(each, UPLOAD_SECONDS + 60)
    with open_store(tmp_path / "judge") as store:
        again, progress = checkpoint(store, uploads_of(catalogue))
    assert sum(each.uploaded for each in progress) == again.bytes
    young = time.time() - UPLOAD_SECONDS
    assert all(files(objects)[each.digest].stat().st_mtime > young for each in again.files)


@pytest.mark.parametrize("hours", [-20, 20])
def test_only_the_clock_of_the_store_says_which_files_may_be_removed(
    tmp_path: Path,
    objects: Path,
    catalogue: Catalogue,
    made: Manifest,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    """Not that of this machine, which may be wrong."""
    (objects / made.name.object).unlink()
    old, *young = (files(objects)[each.digest] for each in made.files)
    age(old, UPLOAD_SECONDS + 60)
    for each in young:
        age(each, UPLOAD_SECONDS - 3600)
    now = time.time
    monkeypatch.setattr("stream.checkpoints.uploads.time.time", lambda: now() + 3600 * hours)
    with open_store(tmp_path / "judge") as store:
        checkpoint(store, uploads_of(catalogue))
    assert old.stat().st_mtime > now() - 3600
    assert all(each.stat().st_mtime < now() - 3600 for each in young)


def test_a_file_that_nothing_names_goes_a_day_after_its_upload(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    left = objects / made.name.file("00" * 32)
    left.write_bytes(b"of an upload that did not end")
    with open_store(tmp_path / "judge") as store:
        for applied, seconds in ((2, SPARED_SECONDS - 60), (3, SPARED_SECONDS + 60)):
            age(left, seconds)
            assert left.exists()
            write(store, applied)
            checkpoint(store, uploads_of(catalogue))
    assert not left.exists()


def test_a_manifest_that_cannot_be_read_keeps_its_files(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    (objects / made.name.object).write_bytes(b"of a later version")
    for each in files(objects).values():
        age(each, SPARED_SECONDS + 60)
    before = set(files(objects))
    with open_store(tmp_path / "judge") as store:
        write(store, 2)
        newest, _ = checkpoint(store, uploads_of(catalogue))
    assert before <= set(files(objects))
    verify(catalogue, newest)


def test_two_directories_upload_at_once_and_share_nothing(
    tmp_path: Path, objects: Path, catalogue: Catalogue
) -> None:
    errors: list[BaseException] = []

    def run(chain: str) -> None:
        try:
            uploads = uploads_of(Catalogue(str(objects)), chain, kept=2)
            with open_store(tmp_path / chain) as store:
                for applied in range(1, 6):
                    write(store, applied)
                    checkpoint(store, uploads)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(chain,)) for chain in (CHAIN, OTHER_CHAIN)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    kept = catalogue.kept(JOURNAL, JUDGE)
    assert {(each.applied, each.chain) for each in kept} == {
        (applied, chain) for applied in (4, 5) for chain in (CHAIN, OTHER_CHAIN)
    }
    for name in kept:
        restore(catalogue, catalogue.read(name), tmp_path / str(name))
    shutil.rmtree(objects / JOURNAL / OTHER_CHAIN)
    for name in kept:
        if name.chain == CHAIN:
            verify(catalogue, catalogue.read(name))


def test_a_state_that_was_built_again_keeps_its_own_checkpoints(
    tmp_path: Path, objects: Path, catalogue: Catalogue
) -> None:
    with open_store(tmp_path / "lost") as store:
        for applied in (7, 8):
            write(store, applied)
            further, _ = checkpoint(store, uploads_of(catalogue, kept=2))
            age(objects / further.name.object, 60)
    with open_store(tmp_path / "again") as store:
        for applied in (2, 3):
            write(store, applied)
            checkpoint(store, uploads_of(catalogue, kept=2))
            assert applied in {each.applied for each in catalogue.kept(JOURNAL, JUDGE)}
    assert [each.applied for each in catalogue.kept(JOURNAL, JUDGE)] == [3, 2]


def test_a_clock_that_is_ahead_removes_nothing(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = set(files(objects)), time.time
    with open_store(tmp_path / "other") as store:
        write(store, 2)
        monkeypatch.setattr("stream.checkpoints.pruning.time.time", lambda: now() + 2 * ABANDONED_SECONDS)
        checkpoint(store, uploads_of(catalogue, OTHER_CHAIN))
    assert made.name in catalogue.kept(JOURNAL, JUDGE)
    assert set(files(objects)) == before


def test_a_checkpoint_stands_though_older_ones_cannot_be_pruned(
    tmp_path: Path, catalogue: Catalogue, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise CheckpointError("checkpoints: denied")

    monkeypatch.setattr(catalogue, "prune", refuse)
    with open_store(tmp_path / "judge") as store, structlog.testing.capture_logs() as logs:
        write(store, 2)
        newest, _ = checkpoint(store, uploads_of(catalogue, kept=1))
    assert {newest.name, made.name} == set(catalogue.kept(JOURNAL, JUDGE))
    assert [each["event"] for each in logs] == ["checkpoint_not_pruned"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"last": "zz"}, "has the digest 'zz'"),
        ({"last": "abc"}, "has the digest 'abc'"),
        ({"time": 10**18}, "has time 1000000000000000000"),
        ({"time": -1}, "has time -1"),
        ({"decided": -2}, "decided -2"),
        ({"decided": 7, "ledger": 7}, "decided 7, ledger 7"),
        ({"decided": 7, "erased": 8}, "decided 7, erased 8"),
    ],
)
def test_a_manifest_with_values_that_cannot_be_is_refused(
    made: Manifest, fields: dict[str, object], said: str
) -> None:
    with pytest.raises(DamagedCheckpointError, match=said):
        decode(encode(msgspec.structs.replace(made, **fields)), made.name)


def test_checkpoints_of_a_directory_that_is_gone_go_after_a_week(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    with open_store(tmp_path / "other") as store:
        for applied, seconds, stays in (
            (2, ABANDONED_SECONDS - 60, True),
            (3, ABANDONED_SECONDS + 60, False),
        ):
            age(objects / made.name.object, seconds)
            write(store, applied)
            checkpoint(store, uploads_of(catalogue, OTHER_CHAIN))
            assert (made.name in catalogue.kept(JOURNAL, JUDGE)) is stays
        for each in (*files(objects).values(), *objects.glob(f"{JOURNAL}/pruned/*")):
            age(each, SPARED_SECONDS + 60)
        write(store, 4)
        checkpoint(store, uploads_of(catalogue, OTHER_CHAIN))
    assert files(objects) == {}
    assert {each.chain for each in catalogue.kept(JOURNAL, JUDGE)} == {OTHER_CHAIN}


def test_directories_to_which_nothing_comes_do_not_count_each_other_as_gone(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    with open_store(tmp_path / "other") as store:
        write(store, 1)
        other, _ = checkpoint(store, uploads_of(catalogue, OTHER_CHAIN))
    for each in (made, other):
        age(objects / each.name.object, 2 * ABANDONED_SECONDS)
    for chain, each in ((CHAIN, made), (OTHER_CHAIN, other)):
        uploads_of(catalogue, chain).prune(each.name)
    assert set(catalogue.kept(JOURNAL, JUDGE)) == {made.name, other.name}


def test_what_one_that_is_gone_has_not_erased_goes_a_week_after_another_has(
    tmp_path: Path, objects: Path, catalogue: Catalogue, made: Manifest
) -> None:
    with open_store(tmp_path / "other") as store:
        write(store, 1, forgetting=Forgetting(decided=2, erased=2))
        other, _ = checkpoint(store, uploads_of(catalogue, OTHER_CHAIN))
    for ours, theirs, stays in ((-60, 60, True), (60, -60, True), (60, 120, False)):
        age(objects / other.name.object, ABANDONED_SECONDS + ours)
        age(objects / made.name.object, ABANDONED_SECONDS + theirs)
        uploads_of(catalogue, OTHER_CHAIN).prune(other.name)
        assert (made.name in catalogue.kept(JOURNAL, JUDGE)) is stays
    assert catalogue.kept(JOURNAL, JUDGE) == [other.name]


def test_a_state_that_was_built_again_and_erases_again_keeps_its_newest_checkpoint(
    tmp_path: Path, objects: Path, catalogue: Catalogue
) -> None:
    with open_store(tmp_path / "lost") as store:
        write(store, 1, forgetting=Forgetting(decided=2, erased=2))
        before, _ = checkpoint(store, uploads_of(catalogue))
    age(objects / before.name.object, SPARED_SECONDS + 60)
    with open_store(tmp_path / "again") as store:
        write(store, 1)
        again, _ = checkpoint(store, uploads_of(catalogue))
    assert catalogue.kept(JOURNAL, JUDGE) == [before.name, again.name]


@pytest.mark.parametrize(
    ("numbers", "is_name"),
    [
        ((7,), True), ((7, 3), True), ((7, 3, 2), True), ((7, 0, 2), True),
        ((7, 0), False), ((7, 3, 0), False), ((7, 0, 0), False), ((7, 3, 2, 1), False),
    ],
)  # fmt: skip
def test_names_of_checkpoints_leave_out_what_is_0(numbers: tuple[int, ...], is_name: bool) -> None:
    text = "".join(f"{each:020d}-" for each in numbers) + CHAIN
    name = checkpoint_of(JOURNAL, text)
    assert (name is not None) == is_name
    if name is not None:
        assert str(name) == text
        assert (name.applied, name.ledger, name.erased) == (*numbers, 0, 0)[:3]


def test_damage_is_noted_by_the_content_of_the_file(tmp_path: Path) -> None:
    directory = tmp_path / "judge"
    directory.mkdir()
    (directory / "000012.sst").write_bytes(b"damaged")
    for name in ("000012.sst", "000012.sst", "000013.sst"):  # the last one is not there
        note_damage(directory, DamagedStateError(f"state directory {directory}: damaged: {name}: why"))
    note_damage(directory, DamagedStateError(f"state directory {directory}: damaged: 3 anchors of 4"))
    assert known_damage(directory) == {digest_of_file(directory / "000012.sst")}
    assert known_damage(tmp_path / "other") == set()


def test_damage_that_names_no_file_is_that_of_the_checkpoint_that_was_restored(
    tmp_path: Path, catalogue: Catalogue, made: Manifest
) -> None:
    directory = tmp_path / "restored"
    restore(catalogue, made, directory)
    for what in ("3 anchors of 4", "3 anchors of 4", "000099.sst: No such file"):
        note_damage(directory, DamagedStateError(f"state directory {directory}: damaged: {what}"))
    assert known_damage(directory) == {str(made.name)}
    assert len(directory.with_suffix(RECORD).read_text().splitlines()) == 1


def test_a_store_that_is_away_is_named(tmp_path: Path, made: Manifest) -> None:
    away = Catalogue(str(tmp_path / "unmounted" / "objects"))
    for call in (lambda: away.kept(JOURNAL, JUDGE), lambda: away.contents(JOURNAL), away.journals):
        with pytest.raises(CheckpointError, match=f"checkpoints: {tmp_path}/unmounted/objects"):
            call()
    with (
        open_store(tmp_path / "judge") as store,
        pytest.raises(CheckpointError, match="unmounted"),
    ):
        checkpoint(store, uploads_of(away))
    assert not scratch(tmp_path)


def test_the_digest_is_of_the_whole_content(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"x" * (3 << 20))
    other.write_bytes(b"x" * ((3 << 20) - 1) + b"y")
    turns: list[None] = []
    digests = {digest_of_file(each, lambda: turns.append(None)) for each in (one, other)}
    assert len(digests) == 2
    assert len(turns) == 6


UPLOADS = [
    ("checkpoint.linked", 0), ("checkpoint.linked:2", 1), ("checkpoint.file", 0), ("checkpoint.file:3", 0),
    ("checkpoint.file:7", 1), ("checkpoint.manifest", 1), ("checkpoint.manifest:2", 2),
    ("checkpoint.pruned", 1), ("checkpoint.pruned:2", 1),
]  # fmt: skip
"""Failpoints of uploads, and how many checkpoints are whole after them."""


@pytest.mark.chaos
@pytest.mark.parametrize(("failpoint", "kept"), cases(UPLOADS, by_day=UPLOADS[3::2]))
def test_a_killed_upload_leaves_whole_checkpoints_and_the_next_one_goes_on(
    tmp_path: Path, objects: Path, catalogue: Catalogue, failpoint: str, kept: int
) -> None:
    directory = tmp_path / "judge"
    kills.killed(failpoint, make_checkpoints, directory, objects)
    assert len(catalogue.kept(JOURNAL, JUDGE)) == kept
    for name in catalogue.kept(JOURNAL, JUDGE):
        restore(catalogue, catalogue.read(name), tmp_path / str(name))
    make_checkpoints(directory, objects)
    (newest,) = catalogue.kept(JOURNAL, JUDGE)
    restore(catalogue, catalogue.read(newest), tmp_path / "restored")
    assert digest_of(tmp_path / "restored") == digest_of(directory)
    assert not scratch(tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize(
    "failpoint",
    cases(["restore.file", "restore.file:3", "restore.renamed"], by_day=["restore.file:3"]),
)
def test_a_killed_restore_leaves_the_whole_state_or_none(
    tmp_path: Path, objects: Path, failpoint: str, made: Manifest
) -> None:
    directory = tmp_path / "restored"
    kills.killed(failpoint, restore_newest, directory, objects)
    if failpoint == "restore.renamed":
        assert digest_of(directory) == digest_of(tmp_path / "judge")
        shutil.rmtree(directory)
    assert not directory.exists()
    restore_newest(directory, objects)
    assert digest_of(directory) == digest_of(tmp_path / "judge")
    assert not scratch(tmp_path)
