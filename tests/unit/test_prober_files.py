"""The files of segments in a prober's directory: verified at each start, fetched again if they are damaged,
and removed once they are of no use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.digests import new_hash
from stream.errors import DamagedCheckpointError, SegmentFileError, StateBusyError
from stream.judge.segments.answer import Segment
from stream.judge.segments.dead_file import encode_dead
from stream.messages.segments import SegmentRecord
from stream.roles.prober.segment_files import SegmentFiles
from stream.stores import files as store_files
from stream.stores.open import store_of

JOURNAL, CONTENT = "0a" * 16, b"the anchors of a segment" * 1000
DEAD = encode_dead(JOURNAL, Segment(64, 128), np.array([70, 71]))


@pytest.fixture
def segment(tmp_path: Path) -> SegmentRecord:
    """A segment whose objects are in the store `objects`."""
    record = SegmentRecord(
        journal=JOURNAL,
        scheme="1b" * 8,
        first=64,
        end=128,
        oldest=64,
        digest=new_hash(CONTENT).hexdigest(),
        size=len(CONTENT),
        dead=new_hash(DEAD).hexdigest(),
        dead_size=len(DEAD),
        decided=7,
        exported_at="2026-11-26T00:00:00Z",
    )
    store = store_of(str(tmp_path / "objects"))
    store.put(record.object, CONTENT)
    store.put(record.dead_object, DEAD)
    return record


@pytest.fixture
def files(tmp_path: Path) -> SegmentFiles:
    return SegmentFiles(tmp_path / "prober", Catalogue(str(tmp_path / "objects")))


class _StoppedError(Exception):
    pass


def never() -> None:
    raise AssertionError("nothing is read")


def test_a_file_is_fetched_once(files: SegmentFiles, segment: SegmentRecord, tmp_path: Path) -> None:
    turns = list[int]()
    with files:
        path = files.fetch(segment, lambda: turns.append(1))
        assert path.read_bytes() == CONTENT
        (tmp_path / "objects" / segment.object).unlink()
        assert files.fetch(segment, lambda: turns.append(1)) == path
    assert turns


@pytest.mark.parametrize("method", ["fetch", "fetch_dead"])
def test_a_download_ends_once_it_is_stopped(
    files: SegmentFiles, segment: SegmentRecord, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a rebalance nor SIGTERM waits for the rest of it, which may be gigabytes."""
    monkeypatch.setattr(store_files, "BLOCK", 16)
    turns = list[int]()

    def stop_at_the_second() -> None:
        turns.append(1)
        if len(turns) > 1:
            raise _StoppedError

    with files:
        with pytest.raises(_StoppedError):
            getattr(files, method)(segment, stop_at_the_second)
        assert list(files.directory.iterdir()) == []


@pytest.mark.parametrize("damage", [CONTENT[:-1], b"", b"x" + CONTENT[1:]])
def test_a_damaged_file_is_fetched_again(
    files: SegmentFiles, segment: SegmentRecord, damage: bytes, tmp_path: Path
) -> None:
    with files:
        path = files.fetch(segment, lambda: None)
        path.write_bytes(damage)
        assert files.fetch(segment, lambda: None).read_bytes() == CONTENT
        path.write_bytes(damage)
        store_of(str(tmp_path / "objects")).put(segment.object, damage)
        with pytest.raises(DamagedCheckpointError, match=f"{segment.object} in .* is damaged"):
            files.fetch(segment, lambda: None)
        assert list(files.directory.iterdir()) == []


def test_a_missing_object_is_no_damage(files: SegmentFiles, segment: SegmentRecord, tmp_path: Path) -> None:
    with files:
        for name in (segment.object, segment.dead_object):
            (tmp_path / "objects" / name).unlink()
        with pytest.raises(FileNotFoundError):
            files.fetch(segment, lambda: None)
        with pytest.raises(FileNotFoundError):
            files.fetch_dead(segment, lambda: None)


def test_the_dead_are_those_of_the_segment(
    files: SegmentFiles, segment: SegmentRecord, tmp_path: Path
) -> None:
    store = store_of(str(tmp_path / "objects"))
    with files:
        assert files.fetch_dead(segment, lambda: None).tolist() == [70, 71]
        other = encode_dead("ff" * 16, Segment(64, 128), np.array([70]))
        record = SegmentRecord(
            **{name: getattr(segment, name) for name in SegmentRecord.__struct_fields__}
            | {"dead": new_hash(other).hexdigest()}
        )
        store.put(record.dead_object, other)
        with pytest.raises(SegmentFileError, match="is of journal ffff"):
            files.fetch_dead(record, lambda: None)
        store.put(segment.dead_object, other)
        with pytest.raises(DamagedCheckpointError, match=f"{segment.dead_object} in .* is damaged"):
            files.fetch_dead(segment, lambda: None)
        assert list(files.directory.iterdir()) == []


def test_only_what_is_wanted_is_kept(files: SegmentFiles, segment: SegmentRecord) -> None:
    with files:
        kept = {files.fetch(segment, lambda: None), files.tables(segment)}
        files.tables(segment).mkdir()
        (files.directory / ("ab" * 32)).write_bytes(b"of another")
        (files.directory / ("ab" * 32 + ".tables")).mkdir()
        (files.directory / ("ab" * 32 + ".tables") / "CURRENT").write_bytes(b"")
        (files.directory / (segment.digest + ".partial")).write_bytes(b"of a killed process")
        files.keep_only([segment.digest])
        assert set(files.directory.iterdir()) == kept


def test_a_directory_is_of_one_prober(files: SegmentFiles, tmp_path: Path) -> None:
    other = SegmentFiles(tmp_path / "prober", Catalogue(str(tmp_path / "objects")))
    with files, pytest.raises(StateBusyError, match="another prober uses it"), other:
        never()
    with other:
        pass
