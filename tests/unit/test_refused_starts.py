"""A start that is refused leaves nothing: the next one may have other options, and others' files stay."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from stream.errors import NeardupError, SettingsError, StateBusyError, StateError
from stream.fingerprint.scheme import Scheme
from stream.local.index import Index, RowsId
from stream.messages.verdict_options import VerdictOptions
from stream.rows.fingerprint import fingerprint_batch
from stream.sources.rows import RowsSource
from stream.tables.store.rocks import Store
from tests.commands import neardup
from tests.unit.test_rows import directory, jsonl, table

pytestmark = pytest.mark.usefixtures("no_children")

DIGEST = "seed_digest=" + "ab" * 16


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "pages.jsonl", 20)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return directory(tmp_path / "rows", fingerprint_batch(table(20)))


def scan(*arguments: str | Path) -> Any:
    return neardup("scan", "--worker-processes", "1", *arguments)


REFUSED: dict[str, list[str]] = {
    "options that allow no tables": [
        "{pages}", "--mode", "strict", "--option", "blocks=40", "--option", "choose=37",
    ],
    "options that do not fit the scheme": [
        "{pages}", "--mode", "strict", "--option", "short_distance=3", "--scheme", "short_tokens=0",
    ],
    "a width without tables": ["{pages}", "--scheme", "width=128", "--mode", "strict"],
    "a digest without a seed": ["{pages}", "--scheme", DIGEST],
    "rows of another scheme": ["{rows}", "--scheme", "features=ngrams"],
    "rows of another scheme behind pages": ["{pages}", "{rows}", "--scheme", "features=ngrams"],
    "an output that cannot be written": ["{pages}", "-o", "{missing}/verdicts.jsonl", "--mode", "strict"],
    "a table that cannot be written": ["{pages}", "-o", "{missing}/verdicts.duckdb", "--mode", "strict"],
    "a table of another index": ["{pages}", "-o", "{other}", "--mode", "strict"],
    "a damaged source": ["{damaged}", "--mode", "strict"],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_refused_scan_leaves_no_index(
    pages: Path, rows: Path, tmp_path: Path, name: str, is_there: bool
) -> None:
    index = tmp_path / "new" / "index"
    if is_there:
        index.mkdir(parents=True)
    (tmp_path / "damaged.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00")
    if "other" in name:
        scan(pages, "-o", tmp_path / "other.parquet")
    places = {
        "pages": pages, "rows": rows, "missing": tmp_path / "missing", "other": tmp_path / "other.parquet",
        "damaged": tmp_path / "damaged.jsonl.gz",
    }  # fmt: skip
    with pytest.raises(NeardupError):
        scan(*(each.format_map(places) for each in REFUSED[name]), "--index", index)
    assert index.exists() == is_there
    assert not is_there or not list(index.iterdir())
    assert scan(pages, "--index", index, "-o", tmp_path / "verdicts.jsonl").exit_code == 0
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 20


def test_a_refused_index_leaves_nothing_and_one_with_an_item_is_kept(tmp_path: Path) -> None:
    for options in (
        VerdictOptions.paper(k=3, blocks=40),
        VerdictOptions(mode="strict", distance=1, short_distance=3),
    ):
        with pytest.raises(SettingsError):
            Index(tmp_path / "index", options=options, scheme=Scheme(short_tokens=0))
    with pytest.raises(ZeroDivisionError), Index(tmp_path / "index", generation=7):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())

    def add_and_fail() -> None:
        with Index(tmp_path / "index") as index:
            index.add("name", "text")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        add_and_fail()
    with pytest.raises(ZeroDivisionError), Index(tmp_path / "index"):
        raise ZeroDivisionError
    with Index(tmp_path / "index") as index:
        assert len(index) == 1


def test_of_two_that_make_an_index_one_is_refused_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds no genesis, before the first writes one."""
    from stream.local import index as module

    found = module._genesis

    def found_and_then_made(*arguments: Any) -> Any:
        answer = found(*arguments)
        monkeypatch.setattr(module, "_genesis", found)
        opened.append(Index(tmp_path / "index"))
        return answer

    opened: list[Index] = []
    monkeypatch.setattr(module, "_genesis", found_and_then_made)
    with pytest.raises(StateBusyError, match="another process"):
        Index(tmp_path / "index", options=VerdictOptions(baselines=3))
    with opened[0] as index:
        index.add("name", "text")
    with Index(tmp_path / "index") as index:
        assert len(index) == 1


def make_rows(source: Path, output: Path, *arguments: str) -> Any:
    return neardup("fingerprint", source, "-o", output, "--worker-processes", "1", *arguments)


@pytest.mark.parametrize("arguments", [["{pages}", "--scheme", DIGEST], ["{rows}"], ["{damaged}"]])
def test_a_refused_run_leaves_no_plan_of_rows(
    pages: Path, rows: Path, tmp_path: Path, arguments: list[str]
) -> None:
    output, damaged = tmp_path / "made", tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(NeardupError):
        neardup(
            "fingerprint", "-o", output, "--worker-processes", "1",
            *(each.format(pages=pages, rows=rows, damaged=damaged) for each in arguments),
        )  # fmt: skip
    assert not list(output.iterdir()) if output.exists() else True
    make_rows(pages, output)
    assert "20 pages" in scan(output).stderr


@pytest.mark.parametrize(
    "write",
    [
        lambda pages, folder: make_rows(pages, folder),
        lambda pages, folder: scan(pages, "--index", folder),
        lambda pages, folder: scan(pages, "-o", folder),
        lambda pages, folder: scan(pages, "--index", folder.with_name("index"), "-o", folder),
    ],
)
def test_a_directory_of_others_stays_as_it_is(
    pages: Path, tmp_path: Path, write: Callable[[Path, Path], Any]
) -> None:
    folder = tmp_path / "others.parquet"
    folder.mkdir(mode=0o755)
    for name in ("notes.txt", ".upload.part", "verdicts-of-mine.parquet"):
        (folder / name).write_text("mine")
        (folder / name).chmod(0o644)
    with pytest.raises(NeardupError, match=r"others\.parquet"):
        write(pages, folder)
    assert {(each.name, each.read_text()) for each in folder.iterdir()} == {
        (name, "mine") for name in ("notes.txt", ".upload.part", "verdicts-of-mine.parquet")
    }
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o644}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in (directory, *directory.rglob("*"))}


def test_a_damaged_index_stays_as_it_is(tmp_path: Path) -> None:
    """Its genesis may be a file of others."""
    (tmp_path / "others").mkdir()
    for name in ("genesis", "exodus"):
        (tmp_path / "others" / name).write_text("In the beginning")
    for each in (tmp_path / "others", *(tmp_path / "others").iterdir()):
        each.chmod(0o755)
    with pytest.raises(StateError, match="damaged: genesis"):
        Index(tmp_path / "others")
    assert modes(tmp_path / "others") == {0o755}


def test_a_store_of_others_stays_as_it_is(tmp_path: Path) -> None:
    others = Rdict(str(tmp_path / "others"), Options(raw_mode=True))
    others.put(b"key", b"value")
    others.close()
    for each in (tmp_path / "others", *(tmp_path / "others").iterdir()):
        each.chmod(0o755)
    with pytest.raises(StateError, match="is not a judge's"):
        Store(tmp_path / "others", 1 << 20)
    assert modes(tmp_path / "others") == {0o755}


def test_a_refused_output_is_not_made(rows: Path, tmp_path: Path) -> None:
    """Also if only the index can tell that it would lack verdicts."""
    index = tmp_path / "index"
    with Index(index) as opened:
        source = RowsSource(str(rows))
        opened.judge([each.row for each in source.placed(opened.scheme)][:5], RowsId("rows", source.digest))
    for name in ("verdicts.jsonl", "verdicts.duckdb", "verdicts.parquet"):
        with pytest.raises(SettingsError, match="would lack the first verdicts of"):
            scan(rows, "--index", index, "-o", tmp_path / name)
        assert not (tmp_path / name).exists()
