"""The RocksDB directory: its options, its atomicity, its lock."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from stream.errors import StateBusyError, StateError
from stream.fingerprint.scheme import Scheme
from stream.judge.state.state import State
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store import rocks
from stream.tables.store.failures import MISSING_FILE, set_aside
from stream.tables.store.rocks import LOG, RUNS, Store, sst_writer
from tests.genesis import genesis_of

CACHE = 8 << 20
WRITTEN = ("default", "log", "anchors", "duplicates", "urls")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state", CACHE) as opened:
        yield opened


def crashed(store: Store, to: Path) -> Store:
    """A copy of what another process would find if this one were killed now."""
    shutil.copytree(store.path, to)
    return Store(to, CACHE)


def put_everywhere(store: Store, key: bytes, value: bytes) -> None:
    batch = store.batch()
    for family in WRITTEN:
        batch.put(family, key, value)
    store.write(batch)


def options_on_disk(path: Path) -> dict[str, str]:
    """The newest OPTIONS file, by section."""
    newest = max(path.glob("OPTIONS-*"), key=lambda file: int(file.name.split("-")[1]))
    sections = re.split(r"^\[(.*)\]$", newest.read_text(), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.parametrize("opens", [1, 2, 3])
def test_reopening_keeps_the_options_of_every_family(tmp_path: Path, opens: int) -> None:
    for _ in range(opens):
        store = Store(tmp_path, CACHE)
        families = store.families
        for family in families:
            capacity = store._read[family].property_value("rocksdb.block-cache-capacity")
            assert capacity == (None if family == RUNS else str(CACHE)), family
        store.close()
    sections = options_on_disk(tmp_path)
    assert "atomic_flush=true" in sections["DBOptions"]
    for family in families:
        text = sections[f'CFOptions "{family}"']
        table = sections[f'TableOptions/BlockBasedTable "{family}"']
        of_runs = family == RUNS
        assert ("compression=kNoCompression" if of_runs else "compression=kLZ4Compression") in text
        assert ("compaction_style=kCompactionStyleUniversal" in text) == (family == "urls")
        assert f" block_size={8192 if family == 'urls' else 4096}\n" in table
        assert ("filter_policy=bloomfilter" in table) == (family in ("default", "urls")), table


@pytest.mark.parametrize(("lifetime", "percent"), [(None, 200), (86_400, 50)])
def test_urls_that_expire_take_little_more_disk_than_those_that_are_left(
    tmp_path: Path, lifetime: int | None, percent: int
) -> None:
    genesis = genesis_of(Scheme(), VerdictOptions(lifetime=lifetime))
    for _ in range(2):
        State(tmp_path, genesis, "c", memory=1 << 20, generation=1 << 16, cache=CACHE).close()
    text = options_on_disk(tmp_path)['CFOptions "urls"']
    assert f"max_size_amplification_percent={percent};" in text


def test_all_families_share_one_cache(store: Store) -> None:
    put_everywhere(store, b"key", b"value" * 100)
    store.flush()
    assert store.get("anchors", [b"key"]) == [b"value" * 100]
    usage = {store._read[family].property_value("rocksdb.block-cache-usage") for family in WRITTEN}
    assert len(usage - {None}) == 1  # None of tables, which are read where they lie
    assert "0" not in usage


def test_list_get_keeps_the_order_and_marks_what_is_missing(store: Store) -> None:
    batch = store.batch()
    batch.put("urls", b"b", b"2")
    batch.put("urls", b"a", b"1")
    batch.put("urls", b"c", b"3")
    batch.delete("urls", b"c")
    store.write(batch)
    assert store.get("urls", [b"b", b"x", b"a", b"c", b"b"]) == [b"2", None, b"1", None, b"2"]
    assert store.get("urls", []) == []
    assert list(store.scan("urls")) == [(b"a", b"1"), (b"b", b"2")]
    assert list(store.scan("urls", b"b")) == [(b"b", b"2")]


def test_rule_13_crash_loses_what_was_not_flushed_in_all_families(store: Store, tmp_path: Path) -> None:
    put_everywhere(store, b"kept", b"1")
    store.flush()
    before = store.digest()
    put_everywhere(store, b"lost", b"2")
    with crashed(store, tmp_path / "crash") as left:
        for family in WRITTEN:
            assert left.get(family, [b"kept", b"lost"]) == [b"1", None]
        assert left.digest() == before


def test_ingested_file_is_durable_and_may_be_ingested_again(store: Store, tmp_path: Path) -> None:
    for turn in range(2):
        writer = sst_writer(RUNS)
        writer.open(str(tmp_path / "file.sst"))
        writer[b"a"] = b"1"
        writer[b"b"] = b"2"
        writer.finish()
        store.ingest(RUNS, [tmp_path / "file.sst"])
        assert not (tmp_path / "file.sst").exists()
        with crashed(store, tmp_path / f"crash{turn}") as left:
            assert list(left.scan(RUNS)) == [(b"a", b"1"), (b"b", b"2")]
    assert store.disk_bytes() > 0


def test_removing_the_first_keys_leaves_the_files_of_others_as_they_are(store: Store) -> None:
    """Wherever the keys of a family ascend, only those files are written anew that have removed keys."""
    keys = [number.to_bytes(8, "big") for number in range(500)]

    def files() -> dict[str, int]:
        """Name of each file -> its first key."""
        return {each["name"]: int.from_bytes(each["start_key"], "big") for each in store._db.live_files()}

    for first in range(0, 400, 100):
        batch = store.batch()
        batch.put_many(LOG, ((key, b"row") for key in keys[first : first + 100]))
        store.write(batch)
        store.flush()
    before = files()
    assert sorted(before.values()) == [0, 100, 200, 300]
    batch = store.batch()
    batch.put_many(LOG, ((key, b"row") for key in keys[400:]))
    store.write(batch)
    store.remove(LOG, keys[0], keys[150])
    assert [key for key, _ in store.scan(LOG)] == keys[150:]
    after = files()
    assert {name for name, first in before.items() if first >= 200} <= after.keys()
    assert not {name for name, first in before.items() if first < 200} & after.keys()
    store.remove(LOG, keys[0], keys[150])  # again, as by the next process
    assert [key for key, _ in store.scan(LOG)] == keys[150:]


def test_digest_sees_family_key_and_value_but_not_history(tmp_path: Path) -> None:
    contents = [
        [("log", b"k", b"v")],
        [("urls", b"k", b"v")],
        [("log", b"kv", b"")],
        [("log", b"k", b"w")],
        [],
    ]
    digests = []
    for number, content in enumerate(contents):
        with Store(tmp_path / f"{number}", CACHE) as store:
            for family, key, value in content:
                batch = store.batch()
                batch.put(family, key, b"before")
                batch.put(family, b"other", b"gone")
                store.write(batch)
                store.flush()
                batch = store.batch()
                batch.put(family, key, value)
                batch.delete(family, b"other")
                store.write(batch)
            digests.append(store.digest())
    assert len(set(digests)) == len(contents)
    with Store(tmp_path / "direct", CACHE) as store:
        batch = store.batch()
        batch.put("log", b"k", b"v")
        store.write(batch)
        assert store.digest() == digests[0]


def test_directory_of_another_process_is_refused_by_name_and_not_set_aside(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from stream.tables.store.rocks import Store;"
        f"store = Store(Path(sys.argv[1]), {CACHE}); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StateError, match=re.escape(str(tmp_path))):
            Store(tmp_path, CACHE)
        with pytest.raises(StateBusyError, match="in use by another process"):
            set_aside(tmp_path)
        assert tmp_path.exists()
        other.kill()


def without(path: Path, family: str, *, filled: bool) -> None:
    """A directory that lacks a family."""
    with Store(path, CACHE) as store:
        if filled:
            put_everywhere(store, b"key", b"value")
        store._db.drop_column_family(family)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("duplicates", "another version made it"),
        ("urls", "is not a judge's"),
        (RUNS, "another version made it"),
    ],
)
def test_directory_that_lacks_a_family_is_refused_and_stays_as_it_is(
    tmp_path: Path, family: str, message: str, read_only: bool
) -> None:
    without(tmp_path, family, filled=True)
    had = Rdict.list_cf(str(tmp_path))
    with pytest.raises(StateError, match=message):
        Store(tmp_path, CACHE, read_only=read_only)
    assert Rdict.list_cf(str(tmp_path)) == had


@pytest.mark.parametrize("read_only", [True, False])
def test_a_rocksdb_of_another_program_is_refused(tmp_path: Path, read_only: bool) -> None:
    other = Rdict(str(tmp_path))  # of another comparator
    other["key"] = "value"
    other.close()
    with pytest.raises(StateError, match=re.escape(str(tmp_path))):
        Store(tmp_path, CACHE, read_only=read_only)


def test_directory_whose_making_was_cut_short_is_made_whole(tmp_path: Path) -> None:
    without(tmp_path, "urls", filled=False)
    with pytest.raises(StateError, match="nothing was flushed into it yet"):
        Store(tmp_path, CACHE, read_only=True)
    with Store(tmp_path, CACHE) as store:
        put_everywhere(store, b"key", b"value")
        assert store.get("urls", [b"key"]) == [b"value"]


def test_a_file_that_a_compaction_removes_while_a_reader_opens_is_no_damage(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_everywhere(store, b"key", b"value")
    store.flush()
    opens: list[str] = []

    class Racing:
        list_cf = staticmethod(Rdict.list_cf)

        def __new__(cls, path: str, *arguments: Any, **named: Any) -> Any:
            opens.append(path)
            if len(opens) == 1:  # what RocksDB says when it comes too late
                raise Exception(f"Corruption: Can't access /000296.sst: {MISSING_FILE}: {path}/000296.sst")
            return Rdict(path, *arguments, **named)

    monkeypatch.setattr(rocks, "Rdict", Racing)
    with Store(store.path, CACHE, read_only=True) as reader:
        assert reader.get("default", [b"key"]) == [b"value"]
    assert len(opens) == 2
