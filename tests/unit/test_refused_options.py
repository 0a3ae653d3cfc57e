"""What commands refuse before they read or make anything: mistyped, contradictory and impossible options, and
to write where they read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stream.errors import SettingsError
from tests.commands import neardup
from tests.unit.test_dedup import pages, write

TRIM, FORGET = (f"{command} --bootstrap-servers 127.0.0.1:1" for command in ("trim", "forget"))
DAYS = "--lifetime 90d --pages-a-day 1e6"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sacn", r"no such command: sacn; did you mean scan\?"),
        ("index export", "`neardup index` is now `neardup compress SOURCE FILE` and"),
        ("topics xyz", "no such command: xyz; choose from create, describe"),
        ("topics creat", r"no such command: creat; did you mean create\?"),
        ("scan --worker-proceses 2 x", r"Did you mean --worker-processes\?"),
        ("scan --mode strikt x", "'verified', 'strict'"),
        ("fingerprint --scheme featres=words -", r"--scheme featres=words: .*; did you mean features\?"),
        ("fingerprint --scheme x=1 -", "--scheme x=1: no such option; choose from width, "),
        ("fingerprint --scheme features=wrods -", r"not one of words, ngrams, .*; did you mean words\?"),
        ("fingerprint --scheme width=48 -", "--scheme width=48: not one of 32, 64, 128"),
        ("fingerprint --scheme sketch_bins=1 -", "--scheme sketch_bins=1: Expected `int` >= 64"),
        ("explain a b --option similarty=0.9", r"similarty=0\.9: no such option; did you mean similarity\?"),
        ("explain a b --option similarity=90%", "90%: write a number from 0 to 1 with at most four decimals"),
        ("explain a b --option mode=strickt", r"not one of verified, strict; did you mean strict\?"),
        ("explain a b --option distance=far", "--option distance=far: Expected `int | null`"),
        ("scan pages --mode strict --similarity .9", "--mode strict judges by distance alone"),
        ("scan pages --mode strict -k 0", "distance: 0 with --mode strict is not within 1 to 9"),
        ("scan pages --mode strict -k 10", "distance: 10 with --mode strict is not within 1 to 9"),
        ("scan pages --similarity 90", "write a number from 0 to 1"),
        ("scan pages -o x.tsv", "verdicts are not written as"),
        ("scan pages -o x.jsonl.gz", "verdicts are not written as"),
        ("scan pages -o x.PARQUET", "verdicts are not written as"),
        ("scan pages -o x.ddb", "verdicts are not written as"),
        ("scan pages --option lifetime=90d --index index", "lifetime=7776000s: only pages of a topic expire"),
        ("dedup pages --option lifetime=90d --index index -o kept.jsonl", "only pages of a topic expire"),
        ("match --verified pages.jsonl --layout '5 choose 2'", "layout, width"),
        ("match --verified pages.jsonl --width 64", "layout, width"),
        # A role would wait for a broker without limit.
        (TRIM, "checkpoints: not set"),
        (f"{TRIM} --every 1h", "checkpoints: not set"),
        (f"{TRIM} --checkpoints objects --every 0", "--every: 0 is no interval"),
        (f"{TRIM} --checkpoints objects --every 1h --json", "--every: trims again"),
        (FORGET, "name URLs, --host, --domain or --file"),
        (f"{FORGET} --status http://a.example/", "--status: shows all requests"),
        (f"{FORGET} --json http://a.example/", "--json: needs --status"),
        ("plan --pages many", "pages: 'many'"),
        ("plan --pages 1e6 --strict --memory big", "memory: 'big'"),
        ("plan --pages 1e6 --strict --distance 40", "distance: 40 bits of 64; .* within 0 to 31"),
        ("plan --pages 1e6 --strict --width 48", "width: 48"),
        ("plan --pages 1e6 --tables-memory big", "tables-memory: 'big' is not a size of 1 MiB or more"),
        ("plan --pages 1e6 -k 5", "--distance, --memory and --width are of table designs: add --strict"),
        ("plan --pages 1e8 --keep soon", "'soon' is not a duration"),
        ("plan", "name either --pages, or both --lifetime and --pages-a-day"),
        ("plan --pages 1e6 --pages-a-day 1e6", "name either --pages"),
        (f"plan {DAYS} --days 3", "in which --days"),
        ("plan --lifetime 90d --pages-a-day many", "pages-a-day: 'many' is not a number from 1 to 1e"),
        ("plan --lifetime soon --pages-a-day 1e6", "'soon' is not a duration"),
    ],
)
def test_what_a_command_cannot_do_is_refused(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pages").write_text('{"url": "http://a/", "text": "some words of a page"}\n')
    result = neardup(*shlex.split(command), input="{}", catch_exceptions=True)
    assert result.exit_code
    assert re.search(said, f"{result.stderr}{result.exception}"), result.output
    assert [each.name for each in tmp_path.iterdir()] == ["pages"]


@pytest.mark.parametrize(
    "command",
    [
        "scan pages.jsonl -o pages.jsonl",
        "scan pages.jsonl -o link.jsonl",
        "scan dump -o dump/verdicts.jsonl",
        "scan dump/ -o dump/verdicts.parquet",
        "scan dump -o verdicts.jsonl --index dump/index",
        "scan dump --index dump",
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
