"""The public names exist, are typed, and are loaded on first access only."""

from __future__ import annotations

import doctest
import pydoc
import subprocess
import sys
from importlib import import_module

import pytest

import stream


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


def test_the_help_can_be_read() -> None:
    """Three quarters of it are what the base classes of structs and exceptions have."""
    told = pydoc.plain(pydoc.render_doc(stream)).splitlines()
    assert len(told) < 1300
    for name in ("Index", "Page", "Scheme", "VerdictOptions"):
        assert any(f"class {name}(" in line for line in told)
    assert not any("class Judge(" in line for line in told)


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


def _loaded(statement: str) -> str:
    """Which of these modules a fresh interpreter has after the statement."""
    asked = "('stream', 'stream.errors', 'numpy', 'msgspec', 'xxhash', 'rocksdict', 'aiokafka')"
    program = f"import sys; {statement}; print(*(name for name in {asked} if name in sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()
