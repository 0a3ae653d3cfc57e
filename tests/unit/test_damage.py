"""Bits flipped in any file of a state directory, and files cut, emptied, zeroed or removed, are refused with
the file's name, or have no effect. They never change a verdict."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream.errors import EXIT_REFUSED, DamagedStateError, DiskError, StateBusyError, StateError
from stream.judge.state.live import live_anchors
from stream.local.index import Answer, Index
from stream.messages.verdict_options import VerdictOptions
from stream.tables.store.failures import CURE, damaged_file, set_aside, translate
from stream.tables.store.meta_record import META
from stream.tables.store.rocks import Store, Writes
from stream.tables.store.scrub_child import ScrubResult, scrub
from tests.night import cases

ITEMS, AFTER, GENERATION = 400, 60, 40
Contents = list[tuple[bytes, bytes]]


def items(count: int) -> list[tuple[str, str]]:
    """Texts with near copies among them, pages of one template, and new versions of some."""
    rng = random.Random(5)
    words = [f"word{i}" for i in range(3000)]
    template = rng.choices(words, k=60)
    made: list[tuple[str, str]] = []
    for number in range(count):
        name, text = f"n{number}", " ".join(rng.choices(words, k=80))
        if made and rng.random() < 0.4:
            old, text = rng.choice(made)
            name = old if rng.random() < 0.5 else name
            text = " ".join([rng.choice(words), *text.split()[1:]])
        elif rng.random() < 0.4:
            text = " ".join([*template, *rng.choices(words, k=30)])
        if rng.random() < 0.1 and made:
            name = rng.choice(made)[0]  # its anchor is superseded
        made.append((name, text))
    return made


def opened(path: Path) -> Index:
    return Index(path, generation=GENERATION, memory=0, cache=1 << 20)


def added(path: Path) -> tuple[list[Answer], Contents]:
    """The answers to the next texts, and then the content of all files except times."""
    with opened(path) as index:
        answers = list(index.add_all(items(ITEMS + AFTER)[ITEMS:]))
        index._state.tables.maintain(wait=True)
        contents = [list(index._state.store.scan(family)) for family in index._state.store.families]
    return answers, [each for content in contents for each in content if each[0] != META]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of several runs and flushes, with dead anchors and full buckets."""
    path = tmp_path_factory.mktemp("whole") / "index"
    Index(path, options=VerdictOptions(bucket_cap=2), generation=GENERATION).close()
    for start in range(0, ITEMS, 100):
        with opened(path) as index:
            for first in range(start, start + 100, 50):
                list(index.add_all(items(ITEMS)[first : first + 50]))
                index.flush()
            index._state.tables.maintain(wait=True)
    with Store(path / "state", 1 << 20, read_only=True) as store:
        keys = [key for key, _ in store.scan("default")]
    for prefix in (b"tables/dead/", b"tables/skipped/", b"run/", b"source/"):
        assert any(key.startswith(prefix) for key in keys), prefix
    return path


@pytest.fixture(scope="module")
def expected(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Answer], Contents]:
    copy = tmp_path_factory.mktemp("expected") / "index"
    shutil.copytree(whole, copy)
    return added(copy)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def changed(path: Path, change: Callable[[Writes, dict[bytes, bytes]], None], prefix: bytes) -> None:
    """Change records of an index's state, of which those with a prefix are given."""
    with Store(path / "state", 1 << 20) as store:
        batch = store.batch()
        change(batch, {key: value for key, value in store.scan("default", prefix) if key.startswith(prefix)})
        store.write(batch)


def flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def cut(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size))


def empty(file: Path, _: random.Random) -> None:
    os.truncate(file, 0)


def zero(file: Path, _: random.Random) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def zero_end(file: Path, rng: random.Random) -> None:
    """As a file system leaves a file whose length it wrote and whose data it did not."""
    size = file.stat().st_size
    cut(file, rng)
    os.truncate(file, size)


def lengthen(file: Path, _: random.Random) -> None:
    with file.open("ab") as end:
        end.write(bytes(100))


def remove(file: Path, _: random.Random) -> None:
    file.unlink()


KINDS_OF_FILES = ("sst", "MANIFEST", "CURRENT", "OPTIONS", "IDENTITY", "config", "flushed")
FLIPS = (50, 20, 4, 4, 2, 4, 4)
"""How many of each kind."""
HARMS = {cut: 25, empty: 3, zero: 3, zero_end: 5, lengthen: 3, remove: 3}
"""How many of the tables each is done to, and to three files of each other kind."""
FLIPPED = [(flip, kind, times) for kind, times in zip(KINDS_OF_FILES, FLIPS, strict=True)]
HARMED = [
    (harm, kind, times if kind == "sst" else 3) for harm, times in HARMS.items() for kind in KINDS_OF_FILES
]


@pytest.mark.parametrize(("harm", "kind", "times"), cases([*FLIPPED, *HARMED], by_day=FLIPPED))
def test_a_harmed_file_is_refused_by_name_or_changes_nothing(
    whole: Path,
    expected: tuple[list[Answer], Contents],
    kind: str,
    harm: Callable[[Path, random.Random], None],
    times: int,
    tmp_path: Path,
) -> None:
    rng, refusals = random.Random(f"{kind} {harm.__name__}"), []
    for number in range(times):
        path = tmp_path / f"{number}"
        shutil.copytree(whole, path)
        files = sorted(each for each in (path / "state").iterdir() if kind in each.name)
        harm(file := rng.choice([each for each in files if each.stat().st_size]), rng)
        uses = [added] if harm is flip else [added, lambda path: live_anchors(path / "state")]
        refused = []
        for use in uses:
            try:
                result = use(path)
            except DamagedStateError as error:
                refused.append(error)
            else:  # their difference would fill pages
                unnoticed = kind == "flushed" and harm is not flip
                assert use is not added or (result == expected) is True or unnoticed, file
        for said in map(str, refused):
            assert said.startswith(f"state directory {path / 'state'}: damaged: ")
            assert said.endswith(CURE)
            assert file.name in said or "a file that it names" in said or kind != "sst", said
        if harm is not flip and (
            kind in ("sst", "CURRENT") or (kind, harm) in {("MANIFEST", empty), ("MANIFEST", remove)}
        ):
            assert len(refused) == len(uses), file
        refusals += refused
        shutil.rmtree(path)
    if kind in ("sst", "MANIFEST", "CURRENT") and harm is flip:
        assert len(refusals) > times / 2
        assert {error.exit_code for error in refusals} == {EXIT_REFUSED}


DAMAGE = (
    "Corruption: truncated block read from /x/000012.sst offset 99, expected 9 bytes, got 0",
    "Corruption: While creating a new Db, wal_dir contains existing log file: : 000012.log",
)
SURROUNDINGS = (
    "IO error: While open a file for random read: /x/000012.sst: Permission denied",
    "Corruption: Corruption: IO error: While open: /x/000012.sst: Permission denied",
    "IO error: While open a file for random read: /x/000012.sst: Too many open files",
    "Corruption: Corruption: IO error: While open: /x/000012.sst: Too many open files",
    "IO error: While pread offset 0 len 9: /x/000012.sst: Cannot allocate memory",
    "IO error: While open a file for appending: /x/000013.sst: Read-only file system",
)
DISK = (
    "IO error: While appending to file: /x/000012.sst: No space left on device",
    "IO error: While fsync: /x/000012.sst: Input/output error",
)
LOCK = (
    "IO error: While lock file: /x/LOCK: Resource temporarily unavailable",
    "IO error: lock hold by current process, acquire time 1 acquiring thread 2: /x/LOCK: No locks available",
)
KINDS = {DamagedStateError: DAMAGE, StateError: SURROUNDINGS, DiskError: DISK, StateBusyError: LOCK}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in KINDS.items() for text in texts])
def test_damage_is_told_from_a_disk_a_lock_a_limit_and_a_permission(
    tmp_path: Path, kind: type[Exception], text: str
) -> None:
    error = translate(tmp_path, Exception(text))
    assert type(error) is kind
    assert (CURE in str(error)) == (kind is DamagedStateError)


def test_a_file_is_not_named_by_a_directory_that_is_called_like_one() -> None:
    path = Path("/srv/CURRENT/state")
    error = translate(path, Exception(f"Corruption: block checksum mismatch in {path}/000123.sst offset 9"))
    assert isinstance(error, DamagedStateError)
    assert damaged_file(error) == "000123.sst"
    unnamed = translate(path, Exception(f"Corruption: something below {path}"))
    assert isinstance(unnamed, DamagedStateError)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("what", ["sst", "MANIFEST", "CURRENT", "LOCK", "state"])
def test_files_that_may_not_be_read_are_no_damage(whole: Path, what: str, tmp_path: Path) -> None:
    """Neither is a directory: nothing is to be set aside that a chown mends."""
    script = (
        "import os, pickle, sys; from pathlib import Path;"  # the binding imports pickle when it opens
        "from stream.tables.store.rocks import Store;"
        "from stream.errors import StateError; path = Path(sys.argv[1]);"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: Store(path, 1 << 20)\n"
        "except StateError as error: print(type(error).__name__, error)"
    )
    path = tmp_path / "copy" / "state"
    shutil.copytree(whole, path.parent)
    for each in [path, *path.iterdir()]:
        os.chown(each, 65534, 65534)
    forbidden = path if what == "state" else next(each for each in path.iterdir() if what in each.name)
    os.chown(forbidden, 0, 0)
    forbidden.chmod(0)
    for above in path.parents:
        if above.is_relative_to(tmp_path.parents[1]):
            above.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"StateError state directory {path}: "), done
    assert "Permission denied" in done.stdout


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store(tmp_path / "state", 1 << 20) as made:
        batch = made.batch()
        for number in range(2000):
            batch.put("log", number.to_bytes(8, "big"), random.Random(number).randbytes(100))
        made.write(batch)
        made.flush()
    return made


def test_a_scan_does_not_end_at_a_damaged_block(store: Store) -> None:
    (file,) = store.path.glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with Store(store.path, 1 << 20) as damaged:
        seen = []
        with pytest.raises(DamagedStateError, match=file.name):
            seen += [key for key, _ in damaged.scan("log")]
        with pytest.raises(DamagedStateError, match=file.name):
            damaged.digest()
    with Store(store.path, 1 << 20):  # and nothing of it is held open
        pass


def test_a_file_that_is_cut_while_it_is_open_is_damage(store: Store) -> None:
    with Store(store.path, 1 << 20) as damaged:
        (file,) = store.path.glob("*.sst")
        os.truncate(file, file.stat().st_size // 4)
        with pytest.raises(DamagedStateError, match=file.name):
            damaged.get("log", [number.to_bytes(8, "big") for number in range(0, 2000, 50)])


@pytest.mark.night
def test_a_scrub_names_any_file_that_is_damaged(copy: Path) -> None:
    path = copy / "state"
    files = sorted(path.glob("*.sst"))
    assert scrub(path, lambda: None) == ScrubResult(bytes=sum(file.stat().st_size for file in files))
    led = []
    for file in [*files, *path.glob("MANIFEST-*")]:
        content = bytearray(file.read_bytes())
        # A record's: the middle may be of a Bloom filter, without which RocksDB reads on if it is damaged.
        content[len(content) // 4] ^= 1
        file.write_bytes(content)
        found = scrub(path, lambda: None)
        assert found.damage is not None, file
        assert found.damage.endswith(CURE)
        if "or a file that it names" in found.damage:  # of damaged properties, RocksDB does not name the file
            led.append(file)
        else:
            assert found.file == file.name
            assert found.damage.startswith(f"state directory {path}: damaged: {file.name}: ")
        content[len(content) // 4] ^= 1
        file.write_bytes(content)
    assert len(led) < len(files) / 4
    assert scrub(path, lambda: None).damage is None


def test_a_scrub_takes_what_is_written_meanwhile_for_no_damage(copy: Path) -> None:
    path, found = copy / "state", []
    with opened(copy) as index, ThreadPoolExecutor(1) as beside:
        texts = iter(items(ITEMS + 10 * GENERATION)[ITEMS:])
        while some := list(islice(texts, 20)):  # files are made, merged and removed
            scrubbing = beside.submit(scrub, path, lambda: None)
            while not scrubbing.done() and some:
                index.add(*some.pop())
                index.flush()
                index._state.tables.maintain()
            found.append(scrubbing.result())
            index._state.store.reclaim("log", b"", bytes([255]))
    assert [each.damage for each in found] == [None] * len(found)


def test_a_disk_that_cannot_be_read_is_damage(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "IO error: Input/output error: While pread offset 0 len 4096: /x/000012.sst: Input/output error"
    tries = []

    def fails(path: Path, *_: object) -> int:
        tries.append(path)
        error = Exception(said)
        raise translate(path, error) from error

    monkeypatch.setattr("stream.tables.store.scrub_child.read_from_disk", fails)
    found = scrub(whole / "state", lambda: None)
    assert found.file == "000012.sst"
    assert found.damage == f"state directory {whole / 'state'}: damaged: 000012.sst: {said}; {CURE}"
    assert len(tries) == 2


def test_an_older_state_of_an_index_is_refused(whole: Path, copy: Path) -> None:
    """An Index has no journal from which to restore what is missing."""
    with opened(copy) as index:
        index.add("one more", "of which the older state knows nothing")
    flushed = (copy / "state" / "flushed").read_bytes()
    shutil.rmtree(copy / "state")
    shutil.copytree(whole / "state", copy / "state")
    (copy / "state" / "flushed").write_bytes(flushed)
    with pytest.raises(DamagedStateError, match=f"has {ITEMS} items, flushed says {ITEMS + 1}"):
        opened(copy)
    shutil.rmtree(copy / "state")  # the cure
    opened(copy).close()


def test_what_comes_during_a_flush_is_not_noted_as_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "index") as index:
        flush = index._state.store.flush

        def flush_and_add() -> None:
            flush()
            index.add("one more", "a text that came while the others were made durable")

        index.add(*items(1)[0])
        with monkeypatch.context() as patch:
            patch.setattr(index._state.store, "flush", flush_and_add)
            index.flush()
        shutil.copytree(tmp_path / "index", tmp_path / "crashed")
    with opened(tmp_path / "crashed") as index:
        assert len(index) == 1


def one_row_less(source: bytes) -> bytes:
    *others, expected, last = msgspec.msgpack.decode(source)
    return msgspec.msgpack.encode([*others, expected - 1, last])


def other_anchors(dead: bytes) -> bytes:
    return np.packbits(np.roll(np.unpackbits(np.frombuffer(dead, np.uint8)), 1)).tobytes()


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        (b"run/", lambda _: None, "runs hold anchors up to"),
        (b"meta", lambda _: None, "records, but no meta record"),
        *((key, lambda _: None, "has LoadedRecords.dead=") for key in (b"tables/dead/", b"tables/skipped/")),
        (b"source/", lambda _: None, "has LoadedRecords.dead="),
        *(
            (b"tables/skipped/", lambda _, marks=marks: marks, "marks of skipping anchors")
            for marks in (b"", bytes(7), (3).to_bytes(8, "little") + bytes(16))
        ),
        # An older value, or another anchor's, so that their number is right.
        (b"source/", one_row_less, "digest="),
        (b"tables/dead/", other_anchors, "digest="),
        (b"tables/skipped/", lambda marks: marks[:16] + bytes([marks[16] ^ 1]) + marks[17:], "digest="),
    ],
)
def test_a_record_that_does_not_fit_the_others_is_refused(
    copy: Path, key: bytes, change: Callable[[bytes], bytes | None], said: str
) -> None:
    def change_first(batch: Writes, found: dict[bytes, bytes]) -> None:
        name, value = next(iter(found.items()))
        if (new := change(value)) is None:
            batch.delete("default", name)
        else:
            batch.put("default", name, new)

    changed(copy, change_first, key)
    with pytest.raises(DamagedStateError, match=said):
        opened(copy)


def test_the_last_run_is_built_anew_if_its_record_is_missing(
    copy: Path, expected: tuple[list[Answer], Contents]
) -> None:
    """As after a crash between building and recording it."""

    def remove_last(batch: Writes, runs: dict[bytes, bytes]) -> None:
        batch.delete("default", max(each for each in runs if not each[len(b"run/")]))

    changed(copy, remove_last, b"run/")
    assert (added(copy) == expected) is True


@pytest.mark.parametrize("harm", [cut, empty, zero])
def test_a_damaged_genesis_of_an_index_is_damage(
    copy: Path, harm: Callable[[Path, random.Random], None]
) -> None:
    harm(copy / "genesis", random.Random(1))
    with pytest.raises(DamagedStateError, match="damaged: genesis: ") as refused:
        opened(copy)
    assert str(refused.value).endswith(CURE)


def test_a_damaged_directory_is_set_aside_whole(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "judge"
    shutil.copytree(whole / "state", path)
    names = {file.name for file in path.iterdir()}
    moved = [set_aside(path)]
    path.mkdir()
    (path / "LOCK").touch()
    moved.append(set_aside(path))
    assert not path.exists()
    assert len(set(moved)) == 2
    assert all(each.parent == tmp_path and each.name.startswith("judge.damaged-") for each in moved)
    assert {file.name for file in moved[0].iterdir()} == names
