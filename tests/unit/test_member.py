"""A role and a copy of its state are two members of their group."""

from __future__ import annotations

import shutil
from pathlib import Path

from stream.kafka.member import member_id


def test_rule_12_a_copied_state_directory_is_no_longer_the_same_member(tmp_path: Path) -> None:
    """Otherwise the roles of both would fence each other."""
    kept = tmp_path / "a" / "judge.instance"
    kept.parent.mkdir()
    name = member_id(kept)
    assert member_id(kept) == name
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copied = member_id(tmp_path / "b" / "judge.instance")
    assert copied != name
    assert member_id(tmp_path / "b" / "judge.instance") == copied
    (tmp_path / "a").rename(tmp_path / "moved")
    assert member_id(tmp_path / "moved" / "judge.instance") == name


def test_a_damaged_file_gets_another_id(tmp_path: Path) -> None:
    path = tmp_path / "judge.instance"
    whole = member_id(path)
    inode = path.stat().st_ino
    for damaged in (b"", b"\xe1" * 43, f"{whole[:-1]}\n {inode}".encode(), whole.encode()):
        path.write_bytes(damaged)
        assert member_id(path) != whole
        assert member_id(path) == member_id(path)
