"""Commands, exit codes, alerts and files in the documentation agree with the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from jsonschema import Draft202012Validator

from stream import Index, Page
from stream.cli import COMMANDS, cli
from stream.errors import EXIT_ERROR, EXIT_REFUSED
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.sinks.base import COLUMNS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "schemas").glob("*.md"))]
RULES = ROOT / "docs" / "architecture" / "rules.md"
OPERATIONS = ROOT / "docs" / "operations.md"
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def typed() -> Iterator[tuple[str, list[str]]]:
    """Commands of ours in blocks of code: where, and their arguments."""
    for page in PAGES:
        for block in FENCE.findall(page.read_text("utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                words = line.split(" #")[0].split(" >")[0].split(" 2>")[0].split(" | ")[0]
                if words.startswith("neardup "):
                    yield f"{page.name}: {line}", shlex.split(words)[1:]


def parsed(arguments: list[str]) -> None:
    command: click.Command = cli
    context = click.Context(cli, info_name="neardup")
    while isinstance(command, click.Group):
        name, *arguments = arguments
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    with command.make_context(name, arguments):
        pass


def test_commands_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # click opens the files that are written to
    commands = list(typed())
    assert len(commands) > 15
    for where, arguments in commands:
        try:
            parsed(arguments)
        except click.ClickException as error:
            pytest.fail(f"{where}: {error.format_message()}")


def test_every_command_is_told_of() -> None:
    told = {arguments[0] for _, arguments in typed()}
    prose = "".join(page.read_text("utf-8") for page in PAGES)
    assert [name for name in COMMANDS if name not in told and f"`neardup {name}" not in prose] == []


def test_columns_of_verdict_tables_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "inputs-and-outputs.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page.split("### Columns of verdict tables")[1], re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == list(COLUMNS)


def test_every_alert_has_a_line_in_the_guide() -> None:
    rules = re.findall(r"alert: (\w+)", (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))
    lines = re.findall(r"^\| `(Neardup\w+)` \|", OPERATIONS.read_text("utf-8"), re.MULTILINE)
    assert rules == lines


def test_exit_codes_are_those_of_the_code() -> None:
    guide = OPERATIONS.read_text("utf-8").split("## Exit codes")[1]
    assert {EXIT_ERROR, EXIT_REFUSED} <= {
        int(code) for code in re.findall(r"^\| (\d+) \|", guide, re.MULTILINE)
    }


def test_make_targets_are_sound_shell() -> None:
    """Nothing is executed: make prints its commands, and bash parses them."""
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"demo", "test", "lint", "docs"} <= set(targets)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    for target in targets:
        command = ["make", "--always-make", "--dry-run", target]
        would = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert would.returncode == 0, would.stderr
        read = subprocess.run(["bash", "-n"], input=would.stdout, capture_output=True, text=True, check=False)
        assert read.returncode == 0, f"make {target}: {read.stderr}"


def test_files_that_are_named_are_there() -> None:
    named = re.compile(r"`((?:stream|tests|docs|schemas|deploy)/[\w./-]+)`|\]\(([\w./-]+)(?:#[\w-]+)?\)")
    missing = []
    for page in PAGES:
        for path, link in named.findall(page.read_text("utf-8")):
            if not (ROOT / path if path else page.parent / link).exists():
                missing.append(f"{page.name}: {path or link}")
    assert missing == []


def test_every_rule_names_its_test_files_and_their_tests() -> None:
    numbered: dict[str, set[str]] = {}
    known = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        names = re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
        known.update(names)
        for name in (path.stem, *names):
            if number := re.match(r"test_rule_(\d+)_", name):
                numbered.setdefault(number[1], set()).add(path.relative_to(ROOT).as_posix())
    rules = re.split(r"^\*\*(\d+)\. ", RULES.read_text("utf-8"), flags=re.MULTILINE)
    named = dict(zip(rules[1::2], rules[2::2], strict=True))
    assert list(named) == [str(number) for number in range(1, len(named) + 1)]
    assert numbered.keys() == named.keys()
    for number, text in named.items():
        tests = text.split("\nTests: ")[1]
        files = set(re.findall(r"`(tests/[\w/]+\.py)`", tests))
        assert files, f"rule {number}"
        assert numbered.get(number, set()) - files == set(), f"rule {number}"
        assert set(re.findall(r"`(test_\w+)`", tests)) - known == set(), f"rule {number}"


def test_the_code_that_a_rule_names_is_there() -> None:
    named: list[tuple[str, str]] = []
    for code in re.findall(r"^Code: (.*?)\nTests: ", RULES.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for path, names in re.findall(r"`(stream/[\w/]+\.py)`\s\(([^)]*)\)", code):
            named += [(path, name) for name in re.findall(r"`(?:\w+\.)?(\w+)`", names)]
    assert len(named) > 10
    defined = r"^\s*(?:async )?(?:def|class) {0}\b|^{0}\b.* = "
    assert [
        (path, name)
        for path, name in named
        if not re.search(defined.format(name), (ROOT / path).read_text("utf-8"), re.MULTILINE)
    ] == []


def test_every_rule_is_named_where_it_is_coded() -> None:
    rules = re.findall(r"^\*\*(\d+)\. ", RULES.read_text("utf-8"), re.MULTILINE)
    named: set[str] = set()
    for path in (ROOT / "stream").rglob("*.py"):
        for numbers in re.findall(
            r"\brules? ((?:\d+(?:,\s+|\s+and\s+)?)+)", path.read_text("utf-8"), re.IGNORECASE
        ):
            named.update(re.findall(r"\d+", numbers))
    assert set(rules) - named == set()


def test_the_readmes_example_is_what_its_page_gets() -> None:
    """The example is the verdict on the README's page, except for ids, times and source."""
    blocks = re.findall(r"^```json\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    message, verdict = (json.loads(block) for block in blocks)
    for name, content in (("page", message), ("verdict", verdict)):
        schema = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text("utf-8"))
        Draft202012Validator(schema).validate(content)
    with Index() as index:
        first = Page(url=verdict["duplicate_of"]["url"], text=message["text"])
        index.add_page(first)
        rows = [PageFingerprinter().message(json.dumps(message).encode(), 1 << 20)]
        (found,) = msgspec.to_builtins(list(index.judge(rows).verdict_records()))
    assert list(found) == list(verdict)
    for field in ("id", "cluster", "duplicate_of", "source", "decided_at"):
        del found[field], verdict[field]
    assert found == verdict


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """mkdocs does not notice, as the pages are not in its directory of documents."""
    navigation = (ROOT / "docs" / "site" / "mkdocs.yml").read_text("utf-8")
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES]
    assert [
        page for page in pages if not re.search(rf"[ ]{re.escape(page)}$", navigation, re.MULTILINE)
    ] == []
