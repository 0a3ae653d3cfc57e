"""The public names exist, are typed, and are loaded on first access only."""

from __future__ import annotations

import doctest
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import stream
from stream.errors import SettingsError
from stream.sinks.open import open_sink
from tests.documented import ROOT


@pytest.mark.parametrize("module", ["stream", "stream.local.index", "stream.fingerprint.fingerprinter"])
def test_the_examples_run(module: str) -> None:
    outcome = doctest.testmod(import_module(module))
    assert outcome.attempted
    assert not outcome.failed


@pytest.mark.parametrize("name", stream._HOME_OF)
def test_a_public_name_is_what_its_module_defines(name: str) -> None:
    home = import_module(stream._HOME_OF[name])
    assert getattr(stream, name) is getattr(home, name)
    assert getattr(stream, name).__doc__


def test_every_public_name_is_listed_once_and_has_a_home() -> None:
    assert set(stream.__all__) <= set(stream._HOME_OF)
    assert set(stream.__all__) <= set(dir(stream))


def test_other_names_are_an_attribute_error() -> None:
    unknown = "Simhash"
    with pytest.raises(AttributeError, match=f"no attribute '{unknown}'"):
        getattr(stream, unknown)


def test_importing_the_package_loads_nothing_of_it() -> None:
    assert _loaded("import stream") == "stream"


def test_the_public_api_needs_no_kafka_client() -> None:
    loaded = _loaded("from stream import *").split()
    assert "numpy" in loaded
    assert "aiokafka" not in loaded


@pytest.mark.parametrize("hiding", ["stream.py", "stream/__init__.py", "other.py"])
def test_neardup_has_the_public_names_and_names_a_file_that_hides_them(tmp_path: Path, hiding: str) -> None:
    shutil.copytree(ROOT / "stream" / "neardup", tmp_path / "neardup")  # as it is installed
    (tmp_path / hiding).parent.mkdir(exist_ok=True)
    (tmp_path / hiding).write_text("name = 7\n")
    (tmp_path / "program.py").write_text(
        "import neardup as n; print(all(hasattr(n, name) for name in dir(n)))"
    )
    outcome = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    if hiding == "other.py":
        assert (outcome.stdout, outcome.stderr) == ("True\n", "")
    else:
        assert f"ImportError: {tmp_path / hiding} hides the package `stream` of neardup" in outcome.stderr


def test_type_checkers_see_the_public_names(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from neardup import Index, Simhash\nIndex().add('a', 'b').verdict.upper().nothing\n"
    )
    arguments = ("--strict", "--cache-dir", str(ROOT / ".mypy_cache"), "program.py")
    command = [sys.executable, "-m", "mypy", *arguments]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert [line.partition("error: ")[2].rpartition("  ")[0] for line in told.splitlines()[:-1]] == [
        'Module "neardup" has no attribute "Simhash"',
        '"str" has no attribute "nothing"',
    ]


def test_without_the_extra_an_export_to_postgresql_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with (
        pytest.raises(SettingsError, match=r"target postgresql: pip install 'neardup-stream\[export\]' \("),
        open_sink("postgresql://someone@db.example/crawl"),
    ):
        pass


def _loaded(statement: str) -> str:
    """Which of these modules a fresh interpreter has after the statement."""
    asked = "('stream', 'stream.errors', 'numpy', 'msgspec', 'xxhash', 'rocksdict', 'aiokafka')"
    program = f"import sys; {statement}; print(*(name for name in {asked} if name in sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()
