"""Every stage of `python -m tests.bench` that needs no broker, in small, so that none rots; and what a
failure of one does to the others. `tests/kafka/test_bench_on_kafka.py` has the rest."""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.local import scan
from stream.messages.verdict_options import VerdictOptions
from tests.bench import __main__ as bench
from tests.bench import growth as growth_of_many
from tests.bench import report
from tests.bench.quality import chrome
from tests.bench.quality.templates import plant

WITH_A_BROKER = {"judge", "dashboard", "worker", "end_to_end", "latency"}
"""In tests/kafka."""

Change = Callable[..., None]


def fingerprint(patch: Change) -> dict[str, Any]:
    patch("TEXTS", 4)
    return {"rounds": 1}


def tables(patch: Change) -> dict[str, Any]:
    patch("GENERATION", 4000)
    patch("WARM", 2)
    patch("WARM_BEYOND", 2)
    return {"anchors": 20_000, "beyond": 20_000, "turns": 2}


def table_peers(patch: Change) -> dict[str, Any]:
    patch("ROUNDS", 1)
    patch("TURNS", 1)
    return {"thousands": 2, "many": 1, "of_sets": 1}


def backfill(patch: Change) -> dict[str, Any]:
    patch("PAGES", {"text": 64, "html": 48})
    patch("ROUNDS", 1)
    patch("GROUP_ROWS", 4)
    return {}


def growth(patch: Change) -> dict[str, Any]:
    patch("POINT", 2000)
    patch("REBUILT_ROWS", 2048)
    patch("FRESH_ROWS", 1024)
    patch("CALM_SECONDS", 0.05)
    return {"anchors": 4000}


def quality(patch: Change) -> dict[str, Any]:
    patch("LANGUAGES", ("zh",))
    patch("OURS", {"default": (Scheme(), VerdictOptions())})
    patch("DRAWS", 1)
    patch("MEAN", "default, mean of 1 seeds")
    return {}


def templates(patch: Change) -> dict[str, Any]:
    patch("templates", SimpleNamespace(rust_pages=lambda: [words(n) for n in range(8)], plant=plant))
    patch("DRAWS", 1)
    return {"copies": 4}


SMALL: dict[str, Callable[[Change], dict[str, Any]]] = {
    "fingerprint": fingerprint,
    "extract": lambda _: {"count": 8, "rounds": 1},
    "extract_quality": lambda _: {},
    "tables": tables,
    "table_peers": table_peers,
    "judge_hostile": lambda _: {"rows": 512},
    "growth": growth,
    "lifetime": lambda _: {"pages": 8192, "window": 2000, "executor": lambda: ThreadPoolExecutor(1)},
    "match": lambda _: {"batch": 1000, "corpus": 10_000, "millions": (0.01,)},
    "backfill": backfill,
    "dedup": lambda _: {"pages": 200, "tools": ("neardup stars",)},
    "start": lambda patch: patch("ROUNDS", 2) or {},
    "quality": quality,
    "templates": templates,
}
"""Part -> its arguments, after its constants are made small."""
NEED_DATA = {"extract_quality", "quality"}


def words(number: int, count: int = 60) -> str:
    return " ".join(f"word{(number * 37 + at * at) % 400}" for at in range(count))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with texts as those of the benchmark's."""
    texts = [words(number) for number in range(8)]
    pairs = [{"a": text, "b": f"{text} more"} for text in texts]
    pages = [
        {"html": f"<html><body><nav>menu</nav><main><p>{text}</p></main></body></html>", "text": text}
        for text in texts
    ]
    files = {"revisions-zh": pairs, "revisions-en": pairs, "web-html": pages, "readability-html": pages}
    for name, lines in files.items():
        with lzma.open(tmp_path / f"{name}.jsonl.xz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    return tmp_path


def test_every_part_is_run_in_small() -> None:
    assert {part for parts in bench.STAGES.values() for part in parts} == SMALL.keys() | WITH_A_BROKER


class Sketch:
    def __init__(self, *_: int) -> None:
        pass

    def update(self, *_: Any) -> None:
        pass

    @staticmethod
    def digest_matrix_from_token_sets(*_: Any) -> None:
        pass


PEERS: dict[str, dict[str, Any]] = {
    "simhash": {"Simhash": Sketch},
    "rensa": {"RMinHash": Sketch},
    "fast_dedup": {"MinHash": Sketch, "SimHash": Sketch},
}


@pytest.mark.night
@pytest.mark.parametrize("part", SMALL)
def test_a_part_runs(part: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(f"tests.bench.bench_{part}")
    monkeypatch.setattr(scan, "ROWS", 16)
    monkeypatch.setattr(chrome, "LENGTHS", (30,))
    # The peers of fingerprints, where `make bench` has not installed them; other peers are left out by name.
    for name, content in PEERS.items():
        if name not in sys.modules:
            monkeypatch.setitem(sys.modules, name, cast(ModuleType, SimpleNamespace(**content)))
    arguments = SMALL[part](lambda name, value: monkeypatch.setattr(module, name, value))
    if part in NEED_DATA:
        arguments["data"] = data
    found = module.run(**arguments)
    json.dumps(found)
    assert report.tables(found)


@pytest.mark.night
def test_growth_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_of_many, "SLICE", 40_000)
    monkeypatch.setattr(growth_of_many, "COPIES", 1024)
    for anchors in (2000, 90_000):
        arguments = ["--anchors", f"{anchors}", "--directory", f"{tmp_path}", "--sketch-bins", "64"]
        found = json.loads(CliRunner().invoke(growth_of_many.command, arguments).stdout)
        assert found["anchors"] >= anchors
        assert found["recall"] >= 0.99
    assert len(found["rows_per_second"]) == 2, "slices of what was left"
    done = CliRunner().invoke(growth_of_many.command, arguments)
    assert "the state in" in str(done.exception)


def test_a_stage_that_fails_is_listed_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> dict[str, Any]:
        raise IndexError("too many indices")

    def refuses() -> dict[str, Any]:
        raise NeardupError("the peer is missing")

    for part, run in (("judge", fails), ("judge_hostile", refuses), ("start", lambda: {"figure": 7})):
        monkeypatch.setattr(import_module(f"tests.bench.bench_{part}"), "run", run)
    done = CliRunner().invoke(bench.command, ["judge", "start", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout.splitlines()[0]) == {"stage": "start", "part": "start", "figure": 7}
    assert "bench judge: judge failed: IndexError('too many indices')" in done.stderr
    assert "the peer is missing" in done.stderr
    assert "Traceback" in done.stderr
