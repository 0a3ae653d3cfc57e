"""Commands that read files refuse to write where they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.errors import SettingsError
from tests.commands import neardup
from tests.unit.test_dedup import pages, write


@pytest.mark.parametrize(
    "command",
    [
        "scan pages.jsonl -o pages.jsonl",
        "scan pages.jsonl -o link.jsonl",
        "scan dump -o dump/verdicts.jsonl",
        "scan dump/ -o dump/verdicts.parquet",
        "scan dump -o verdicts.jsonl --index dump/index",
        "scan saved -o saved/verdicts.jsonl",
        "fingerprint dump -o dump/rows",
        "match pages.jsonl --verified -o pages.jsonl",
        "match pages.jsonl --against dump/a.jsonl --verified -o dump/a.jsonl",
    ],
)
def test_an_output_that_is_read_or_in_what_is_read_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would replace its source, or be a source of the next run."""
    monkeypatch.chdir(tmp_path)
    for folder in ("dump", "saved"):
        Path(folder).mkdir()
    for name in ("pages", "dump/a", "dump/b"):
        write(Path(f"{name}.jsonl"), pages(3))
    Path("saved/a.html").write_text("<p>a page")
    Path("link.jsonl").symlink_to("pages.jsonl")
    before = {each: each.lstat().st_mtime_ns for each in Path().rglob("*")}
    with pytest.raises(SettingsError, match=r"(output|index) .*: would change"):
        neardup(*command.split())
    assert {each: each.lstat().st_mtime_ns for each in Path().rglob("*")} == before
