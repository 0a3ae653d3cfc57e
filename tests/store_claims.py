"""What every store does. Tests of one inherit these in a class with a fixture `store`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stream.stores.store import Store

BIG = 20 << 20
"""Bytes of a file that takes several requests."""


def names(store: Store, prefix: str = "") -> list[str]:
    return [each.name for each in store.list(prefix)]


class StoreClaims:
    """Tests of one store."""

    def test_files_are_put_listed_read_and_removed(self, store: Store, tmp_path: Path) -> None:
        assert names(store) == []
        source = tmp_path / "source"
        source.write_bytes(os.urandom(BIG))
        store.put("a/files/2", source)
        store.put("a/files/10", b"")
        store.put("a.b/c", b"another")
        store.put("b", b"earlier")
        store.put("b", b"later")
        listed = list(store.list())
        assert [(each.name, each.size) for each in listed] == [
            ("a.b/c", 7),
            ("a/files/10", 0),
            ("a/files/2", BIG),
            ("b", 5),
        ]
        assert names(store, "a") == names(store, "a/files") == ["a/files/10", "a/files/2"]
        assert names(store, "a/f") == names(store, "b") == []
        assert store.get("b") == b"later"
        assert store.get("b", 3) == b"lat"
        assert store.get("b", 5) == store.get("b", 6) == b"later"
        assert store.get("a/files/2", BIG // 2) == source.read_bytes()[: BIG // 2]
        assert store.get("a/files/10") == b""
        pieces: list[bytes] = []
        store.download("a/files/2", tmp_path / "copy", pieces.append)
        assert b"".join(pieces) == source.read_bytes()
        assert (tmp_path / "copy").read_bytes() == source.read_bytes() == store.get("a/files/2")
        assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
        store.delete(["b", "missing", "a/files/2"])
        store.delete([])
        assert names(store) == ["a.b/c", "a/files/10"]

    def test_a_put_of_a_file_ends_when_its_turn_raises(self, store: Store, tmp_path: Path) -> None:
        class EndedError(Exception):
            pass

        def end() -> None:
            raise EndedError

        (tmp_path / "source").write_bytes(os.urandom(10 * BIG))
        with pytest.raises(EndedError):
            store.put("a", tmp_path / "source", turn=end)
        assert names(store) == []
        store.put("a", tmp_path / "source")
        assert [each.size for each in store.list()] == [10 * BIG]

    def test_what_is_not_there_is_named(self, store: Store, tmp_path: Path) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.get("a/missing"),
            lambda: store.download("a/missing", tmp_path / "copy"),
        ]
        for call in calls:
            with pytest.raises(FileNotFoundError) as error:
                call()
            assert error.value.filename == f"{store}/a/missing"
        assert not (tmp_path / "copy").exists()
        with pytest.raises(FileNotFoundError) as error:
            store.put("a/name", tmp_path / "copy")
        assert error.value.filename == str(tmp_path / "copy")
        assert names(store) == []

    def test_a_download_replaces_nothing(self, store: Store, tmp_path: Path) -> None:
        store.put("a", b"stored")
        (tmp_path / "here").write_bytes(b"ours")
        with pytest.raises(FileExistsError) as error:
            store.download("a", tmp_path / "here")
        assert error.value.filename == str(tmp_path / "here")
        assert (tmp_path / "here").read_bytes() == b"ours"

    def test_names_that_no_file_may_have_are_refused(self, store: Store) -> None:
        for name in ("", "/a", "a/", "a//b", "../a", "a/..", ".hidden", "a b", "a\n", "ä", "a/.b"):
            with pytest.raises(ValueError, match="is no name"):
                store.put(name, b"")
        assert names(store) == []
