"""Checkpoints in one store: marks of those that were verified, and kinds, which do not mix."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from stream.checkpoints.catalogue import Catalogue, Contents, Known
from stream.checkpoints.kinds import JUDGE, is_kind, meta_of
from stream.checkpoints.known_damage import RECORD
from stream.checkpoints.manifest import (
    PRUNED,
    VERIFIED,
    CheckpointName,
    Manifest,
    checkpoint_of,
    decode,
    encode,
)
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.restoring import restore, verify
from stream.checkpoints.uploads import Uploads, linked
from stream.checkpoints.verification import verify_whole
from stream.elector.elector import Elector
from stream.elector.state import FORMAT, State
from stream.errors import DamagedCheckpointError, DiskError, SettingsError, StateError
from stream.roles.forgetter import status as statuses
from stream.roles.forgetter.status import _checkpoints, _Decided, _directories
from stream.settings import Settings
from stream.tables.store.failures import translate
from stream.tables.store.rocks import DUE
from tests.checkpointed import OTHERS, Place, age
from tests.commands import neardup
from tests.elected import decided_of, open_elector
from tests.genesis import JOURNAL, genesis_of
from tests.property.best_oracle import crawl

ELECTOR = "elector"
PAGES = crawl(1, 200)


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


def elect(path: Path, policy: str = "longest") -> Elector:
    """An elector with a state in a directory that has applied some pages."""
    elector = open_elector(path, policy)
    elector.apply(decided_of(PAGES, 1))
    return elector


def upload(state: State, catalogue: Catalogue, kind: str = ELECTOR) -> Manifest:
    with linked(state.store, kind) as moment:
        assert moment is not None
        return Uploads(catalogue, kind, OTHERS, 1).upload(moment)


def test_kinds_share_a_store_and_nothing_else(place: Place) -> None:
    elector, named = elect(place.path / ELECTOR), elect(place.path / "elector-b", "newest")
    first, second = upload(elector.state, place.catalogue), upload(named.state, place.catalogue, "elector-b")
    *_, last = place.make(1, 2, kept=1)
    assert [each.kind for each in place.catalogue.contents(JOURNAL).kept] == [JUDGE, "elector-b", ELECTOR]
    for each in (first, second, last):
        assert place.catalogue.kept(JOURNAL, each.kind) == [each.name]
        assert checkpoint_of(JOURNAL, str(each.name)) == each.name
        assert place.catalogue.read(each.name) == each
        assert place.catalogue.contents(JOURNAL).lacking(each) is None
    assert second.elect == "newest"
    with pytest.raises(DamagedCheckpointError, match=f"its manifest is of {first.name}"):
        decode(encode(first), second.name)
    for role in (elector, named):
        role.state.close()


@pytest.mark.parametrize(
    "text", ["", "judge-b", "elector-", "elector-A", "elector/", "elector--", "dashboard-", "query"]
)
def test_other_names_are_no_kinds(text: str) -> None:
    assert not is_kind(text)


@pytest.mark.parametrize(
    ("elected", "requests", "left"), [(2, 3, []), (7, 3, [ELECTOR]), (2, 4, ["dashboard-b"])]
)
def test_those_of_electors_are_old_until_what_was_named_alone_is_erased(
    monkeypatch: pytest.MonkeyPatch, elected: int, requests: int, left: list[str]
) -> None:
    """With a lifetime, electors erase by what requests name, though the judge has no such page. Dashboards
    say up to which request."""
    kinds = (JUDGE, ELECTOR, "dashboard-b")
    names = [CheckpointName(JOURNAL, kind, "20010909T014640.007Z", 3, OTHERS) for kind in kinds]
    contents = Contents(dict.fromkeys(names, 1.0), {}, {}, {}, {}, 0.0)
    stored = SimpleNamespace(
        contents=lambda journal: contents, read_once=lambda name: Known("here", frozenset())
    )
    monkeypatch.setattr(statuses, "Catalogue", lambda url: stored)
    found = _checkpoints(
        "store", genesis_of(), _Decided(pages={}, offset=2, elected=elected, requests=requests)
    )
    assert [each.why[: len("1 checkpoints")] for each in found] == ["1 checkpoints" for _ in left]


def test_a_state_that_its_role_would_not_open_is_damaged(place: Place) -> None:
    elector = elect(place.path / ELECTOR)
    store = elector.state.store
    writes = store.batch()
    writes.delete(DUE, elector.state.due(1)[0].to_bytes(8, "big"))
    store.write(writes)
    manifest = upload(elector.state, place.catalogue)
    elector.state.close()
    with pytest.raises(DamagedCheckpointError, match=r"was uploaded like this: .*clusters that are due"):
        verify_whole(place.catalogue, manifest, genesis_of(), place.path / "scratch")


def test_a_judges_files_are_no_electors_state(place: Place) -> None:
    (manifest,) = place.make(1, kept=1)
    foreign = msgspec.structs.replace(manifest, kind=ELECTOR, format=FORMAT)
    with pytest.raises(DamagedCheckpointError, match=f"format 8; this program reads {FORMAT}"):
        restore(place.catalogue, foreign, place.path / "new")
    assert not (place.path / "new").exists()


def test_commands_name_the_kind(tmp_path: Path) -> None:
    directory = tmp_path / "crawl" / "elector-b"
    elector = elect(directory)
    elector.state.close()
    at = ("--checkpoints", tmp_path / "objects")
    asked = (*at, "--state-dir", tmp_path, "--namespace", "crawl", "--kind", "elector-b")
    made = neardup("checkpoint", "now", *asked)
    name = made.output.strip()
    assert name.startswith("elector-b/")
    assert neardup("checkpoint", "now", *asked).output == made.output
    assert f"  {name}  made " in (listed := neardup("checkpoint", "list", *at).output)
    assert f"  elect=longest  format {FORMAT}  " in listed
    for chosen in (("--kind", "elector-b"), ("--checkpoint", name), ("--all",)):
        assert f"{name}: " in neardup("checkpoint", "verify", *at, *chosen).output
    restored = neardup("checkpoint", "restore", tmp_path / "new", *at, "--kind", "elector-b")
    assert restored.output.startswith(f"{name}: ")
    assert meta_of(tmp_path / "new", "elector") == meta_of(directory, "elector")
    with pytest.raises(SettingsError, match=f"has none of journal {JOURNAL}, kind judge"):
        neardup("checkpoint", "restore", tmp_path / "newer", *at)
    wrong = neardup("checkpoint", "now", *at, "--kind", "x")
    assert "write judge, elector, dashboard, elector-NAME or dashboard-NAME" in wrong.output


def test_a_foreign_format_is_refused_before_the_state_is_opened(tmp_path: Path) -> None:
    elector = elect(tmp_path / "neardup" / ELECTOR)
    state = elector.state
    state.write(state.store.batch(), msgspec.structs.replace(state.meta, version=9))
    state.close()
    at = ("--checkpoints", tmp_path / "objects", "--state-dir", tmp_path, "--kind", ELECTOR)
    with pytest.raises(StateError, match=f"format 9; this program reads {FORMAT}"):
        neardup("checkpoint", "now", *at)


def test_what_is_noted_of_damage_is_no_directory_that_was_set_aside(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, namespace="crawl")
    moved = tmp_path / "crawl" / "judge.damaged-20260101T000000Z"
    moved.mkdir(parents=True)
    (tmp_path / "crawl" / f"judge{RECORD}").write_text("digest file\n")
    (delay,) = _directories(settings, genesis_of(), _Decided())
    assert (delay.what, delay.why) == (str(moved), "was set aside: delete it")
