"""Cached machine code is never that of another source, setting or user."""

from __future__ import annotations

import fcntl
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import config
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError

import stream
from stream.compiled import borrowing, code_cache, compiled, copy_bytes, inlined
from stream.compiled.code_digest import code_digest
from tests.waiting import until

SOURCE = Path(stream.__file__).parent
LOCK = ".lock-0"
LIMIT = np.int64(10)
WORDS: dict[str, int] = {}


def make() -> Any:
    """Make a function as in a process that has just started."""

    @compiled
    def limited(number: int) -> int:
        return min(number, LIMIT)

    return limited


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of cached code during the test."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(code_cache, "LOCKS", 1)
    return tmp_path / "compiled"


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{code_cache.SUFFIX}"))


def test_next_process_compiles_nothing(kept: Path) -> None:
    assert [make()(3), make()(30)] == [3, 10]
    again = make()
    assert (again(30), hits(again)) == (10, 1)
    assert len(files(kept)) == 1
    assert {path.stat().st_mode & 0o022 for path in (kept, *files(kept))} == {0}


def test_constants_that_are_passed_have_no_code_of_their_own(kept: Path) -> None:
    inner = make()

    @compiled
    def outer(number: int) -> int:
        return inner(3) + inner(4) + inner(number)  # type: ignore[no-any-return]

    assert outer(30) == 17
    assert len(files(kept)) == 2


def test_constant_is_part_of_the_key(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make()(30) == 10
    monkeypatch.setattr(f"{__name__}.LIMIT", np.int64(20))
    changed = make()
    assert (changed(30), hits(changed)) == (20, 0)
    monkeypatch.undo()
    monkeypatch.setattr(config, "CACHE_DIR", str(kept.parent))
    restored = make()
    assert (restored(30), hits(restored)) == (10, 1)


@pytest.mark.parametrize("fields", ["first second", "second first"])
def test_order_of_a_named_tuples_fields_is_part_of_the_key(kept: Path, fields: str) -> None:
    """Arrays of one type in another order have the same types."""
    for names in ("first second", fields):
        pair = namedtuple("pair", names)(first=np.array([1]), second=np.array([2]))

        @compiled
        def first_of(of: Any) -> int:
            return int(of.first[0])

        function: Any = first_of
        assert function(pair) == 1
    assert hits(function) == (fields == "first second")


@pytest.mark.usefixtures("kept")
def test_constant_that_changes_under_compiled_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = make()
    inner(3)

    @compiled
    def outer(number: int) -> int:
        return inner(number) + 1  # type: ignore[no-any-return]

    monkeypatch.setattr(f"{__name__}.LIMIT", np.int64(20))
    with pytest.raises(RuntimeError, match=r"a constant that .*limited reads has changed"):
        outer(30)


@pytest.mark.parametrize(
    "place",
    [
        *(f"numba.core.config.{setting}" for setting in code_cache._CONFIGURED),
        *(f"{library}.__version__" for library in ("numba", "llvmlite", "numpy")),
    ],
)
def test_settings_and_versions_are_part_of_the_key(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = make()
    cache, codegen = function._cache, function.targetctx.codegen()
    before = cache._key((), codegen)
    monkeypatch.setattr(place, "another")
    assert cache._key((), codegen) != before


def test_global_that_no_digest_covers_is_refused(kept: Path) -> None:
    @compiled
    def reads_a_dict(number: int) -> int:
        return WORDS[str(number)]

    with pytest.raises(TypeError, match=r"WORDS in .*reads_a_dict"):
        reads_a_dict(3)


@pytest.mark.parametrize("place", [0, 31, 32, -1])
def test_damaged_file_is_compiled_again_and_mended(kept: Path, place: int) -> None:
    make()(3)
    (file,) = files(kept)
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 1
    for content in (bytes(damaged), whole[:20], b""):
        file.write_bytes(content)
        again = make()
        assert (again(30), hits(again)) == (10, 0)
        mended = make()
        assert (mended(30), hits(mended)) == (10, 1)


def test_file_of_another_function_is_not_taken(kept: Path) -> None:
    @compiled
    def doubled(number: int) -> int:
        return 2 * number

    doubled(3)
    (other,) = files(kept)
    make()(3)
    (file,) = set(files(kept)) - {other}
    shutil.copy(other, file)
    again = make()
    assert (again(30), hits(again)) == (10, 0)


def test_file_that_others_can_write_is_not_taken(kept: Path) -> None:
    make()(3)
    for file in files(kept):
        file.chmod(0o666)
    again = make()
    assert (again(30), hits(again)) == (10, 0)


def linked(kept: Path) -> None:
    kept.rename(kept.with_name("elsewhere"))
    kept.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "harm",
    [
        *(lambda kept, mode=mode: kept.chmod(mode) for mode in (0o777, 0o770, 0o702)),
        linked,
        lambda kept: os.chown(kept, 12345, 12345),
    ],
    ids=["777", "770", "702", "link", "another user's"],
)
def test_directory_that_others_can_write_is_not_used(
    kept: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    kept.mkdir(mode=0o700)
    try:
        harm(kept)
    except PermissionError:
        pytest.skip("only root can give a directory away")
    for _ in range(2):
        assert make()(30) == 10
    assert not list(kept.iterdir())
    assert f"other users can write to {kept}" in caplog.text


@pytest.mark.parametrize(
    "make_useless",
    [
        Path.touch,  # a file, so that it cannot be a directory
        lambda kept: kept.mkdir(mode=0o600),  # not to be searched, as root's may be, whose content is trusted
    ],
)
def test_works_where_nothing_can_be_kept(kept: Path, make_useless: Callable[[Path], None]) -> None:
    make_useless(kept)
    assert make()(30) == 10


def test_unused_code_goes_after_a_while(kept: Path) -> None:
    make()(3)
    (used,) = files(kept)
    unused, part = kept / f"old{code_cache.SUFFIX}", kept / "0.part"
    for path in (used, unused, part):
        path.touch()
        os.utime(path, (0, 0))
    code_cache._remove_unused.cache_clear()
    again = make()
    again(3)  # is used, so kept
    make()(3.0)
    assert hits(again) == 1
    assert used in files(kept)
    assert not unused.exists()
    assert not part.exists()


class Clock:
    """Replaces `time`: a sleep advances it and triggers an event."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.now, self._meanwhile = 0.0, meanwhile

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._meanwhile()


def test_process_that_is_at_work_is_waited_for_until_it_has_kept_what_is_needed(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.mkdir(mode=0o700)
    lock = kept / LOCK
    clock = Clock(lambda: os.utime(lock, (clock.now, clock.now)))
    monkeypatch.setattr(code_cache, "time", clock)
    monkeypatch.setattr(code_cache, "_POLL_SECONDS", 10.0)
    locks = code_cache._CompileLocks()
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with locks.hold(1, lambda: False):
            assert clock.now == 0  # another function has another lock
        with locks.hold(0, lambda: clock.now > 3600):
            assert 3600 < clock.now < 3700
        assert locks._patient
        os.utime(lock, (0, 0))
        clock._meanwhile = lambda: None  # the other is stopped
        with locks.hold(0, lambda: False):
            assert clock.now < 3900
        assert not locks._patient


async def test_process_that_compiles_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache, "_HEARTBEAT_SECONDS", 0.001)
    lock = tmp_path / "lock"
    lock.touch()
    os.utime(lock, (0, 0))
    with lock.open("rb") as file, code_cache._heartbeats(file.fileno()):
        await until(lambda: lock.stat().st_mtime_ns)


def test_an_error_while_compiling_leaves_the_lock_to_others(kept: Path) -> None:
    @compiled
    def broken(number: int) -> int:
        return number.nothing  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(Exception, match="nothing"):
        broken(3)
    with (kept / LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_copying_bytes_checks_bounds_under_boundscheck(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)

    @compiled
    def copy(out: Any, at: int, data: Any, first: int, size: int) -> None:
        copy_bytes(out, at, data, first, size)

    data = np.arange(4, dtype=np.uint8)
    for at, first, size in ((0, 0, 4), (4, 0, 0), (4, 4, 0), (1, 2, 2)):
        out = np.zeros(4, np.uint8)
        copy(out, at, data, first, size)
        assert out[at : at + size].tolist() == data[first : first + size].tolist()
    for at, first, size in ((1, 0, 4), (0, 1, 4), (-1, 0, 2), (0, -1, 2), (2, 2, -1), (5, 0, 0), (0, 5, 0)):
        with pytest.raises(IndexError, match="out of bounds"):
            copy(np.zeros(4, np.uint8), at, data, first, size)


def borrowed_array(array: Any) -> Any:
    return array


def borrowed_arrays(array: Any) -> Any:
    return 1, (array, 2)


def part_of_an_array(array: Any) -> Any:
    return array[1:]


def array_or_none(array: Any) -> Any:
    return array if len(array) else None


@pytest.mark.parametrize("decorator", [borrowing, inlined])
@pytest.mark.parametrize("function", [borrowed_array, borrowed_arrays, part_of_an_array, array_or_none])
def test_loop_that_borrows_arrays_may_return_none(
    decorator: Callable[..., Any], function: Callable[..., Any], kept: Path
) -> None:
    """The caller would release a reference that nobody took: memory is then free while it is used."""
    for _ in range(2):  # as in another process, which finds what this one kept
        borrows = decorator(function)

        @compiled
        def calls(array: Any, borrows: Any = borrows) -> int:
            borrows(array)
            return 1

        for call in (borrows, borrows, calls, calls):
            with pytest.raises((TypeError, TypingError), match="array"):
                call(np.arange(3))


def test_loop_that_borrows_arrays_makes_none(kept: Path) -> None:
    @borrowing
    def makes_one(count: int) -> int:
        return len(np.zeros(count))

    with pytest.raises(TypingError, match="Only accept returning of array passed"):
        makes_one(3)


@compiled
def makes_an_array(count: int) -> Any:
    return np.zeros(count)


@compiled
def makes_one_for_itself(count: int) -> int:
    return len(np.zeros(count))


def test_loop_that_borrows_arrays_calls_nothing_that_returns_one(kept: Path) -> None:
    """It would keep the array for ever."""

    def global_one() -> Any:
        @borrowing
        def calls(count: int) -> int:
            return len(makes_an_array(count))

        return calls

    def enclosed_one(makes: Any = makes_an_array) -> Any:
        @borrowing
        def calls(count: int) -> int:
            return len(makes(count))

        return calls

    for made in (global_one, enclosed_one):
        for _ in range(2):
            calls = made()
            for _ in range(2):
                with pytest.raises(TypeError, match="calls is borrowing, but makes_an_array returns an arr"):
                    calls(3)

    @borrowing
    def calls_another(count: int) -> int:
        return makes_one_for_itself(count) + 1

    assert calls_another(3) == 4


def test_read_only_tree_is_read_and_what_is_missing_goes_to_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, kept = tmp_path / "tree" / "compiled", tmp_path / "neardup" / "compiled"
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(code_cache, "_IN_TREE", tree)
    monkeypatch.setattr(code_cache.platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    tree.parent.touch()  # cannot be a directory: root could write to one that is read-only
    found = [make() for _ in range(3)]
    assert (found[0](30), hits(found[0]), len(files(kept))) == (10, 0, 1)
    assert kept.stat().st_mode & 0o777 == 0o700
    assert (found[1](30), hits(found[1])) == (10, 1)
    tree.parent.unlink()
    shutil.copytree(kept, tree)
    shutil.rmtree(kept)
    assert (found[2](30), hits(found[2])) == (10, 1)


def test_of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    script = "from tests.unit.test_code_cache import hits, make; made = make(); made(3); print(hits(made))"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": str(SOURCE.parent), "NUMBA_CACHE_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    assert sorted(process.communicate()[0].strip() for process in processes) == ["0", "1", "1"]


def test_processes_that_compile_together_say_so_once_in_a_while(
    kept: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    monkeypatch.setattr(code_cache.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(code_cache.time, "time", lambda: 1e9 + clock[0])
    first, second = code_cache._Progress(), code_cache._Progress()
    kept.mkdir()
    (kept / f"a-1{code_cache.SUFFIX}").touch()
    for now, reports, lines in (
        (0.0, [first, second, first], 1),
        (29.0, [second, first], 1),
        (31.0, [second, first], 2),
    ):
        clock[0] = now
        for each in reports:
            each.report()
        assert len(caplog.messages) == lines
    assert "1 so far" in caplog.text
    assert "python -m stream.precompile" in caplog.text


def digests() -> dict[str, str]:
    """Digests of all compiled functions of the program by their names."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if "stream.compiled import" in path.read_text() or path.parent.name == "compiled":
            module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
            for name, value in vars(importlib.import_module(module)).items():
                if isinstance(value, Dispatcher):
                    found[f"{module}.{name}"] = code_digest(value).hex()
    return found


def test_digests_of_all_compiled_functions_depend_on_neither_place_nor_process(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "stream", ignore=shutil.ignore_patterns("__pycache__", "static"))
    script = "import json; from tests.unit.test_code_cache import digests; print(json.dumps(digests()))"
    paths = {"PYTHONPATH": f"{tmp_path}:{SOURCE.parent}"}
    found = []
    for place, seed in ((tmp_path, "1"), (SOURCE.parent, "2")):
        environment = os.environ | paths | {"PYTHONHASHSEED": seed}
        found.append(subprocess.check_output([sys.executable, "-c", script], cwd=place, env=environment))
    assert found[0] == found[1]
    assert len(names := json.loads(found[0])) > 50
    assert "stream.tables.hot.buckets.enter" in names


def test_digest_covers_a_closure_and_defaults() -> None:
    """Also those of what is called."""

    def made(step: int, default: int) -> Any:
        @compiled
        def stepped(number: int, factor: int = default) -> int:
            return number * factor + step

        @compiled
        def calls(number: int) -> int:
            return int(stepped(number))

        return stepped, calls

    digests = {code_digest(each) for values in ((1, 1), (2, 1), (1, 2), (1, 1)) for each in made(*values)}
    assert len(digests) == 6


def test_digest_covers_slices_which_are_constants_from_python_3_14_on() -> None:
    def made(part: slice) -> Any:
        @compiled
        def cut(values: Any) -> Any:
            return values[part]

        return cut

    parts = slice(1, None), slice(None, 1), slice(1, None, 2), slice(1, None)
    assert len({code_digest(made(part)) for part in parts}) == 3


def test_digest_of_an_array_covers_its_type_and_content(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for limit in (np.int64(1), np.uint64(1), 1, 1.0, True, np.ones(1), np.ones((1, 1)), np.zeros(1)):
        monkeypatch.setattr(f"{__name__}.LIMIT", limit)
        digests.add(code_digest(make()))
    assert len(digests) == 8


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger=code_cache.__name__)
