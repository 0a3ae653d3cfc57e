"""Commands print the texts of pages in every locale, also in one that lacks their letters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = "港务局将在冬季风暴来临之前修复北码头上的旧灯塔，工程将于星期一开始。 Ремонт маяка, café 🗼 "
URLS = ["http://a.example/灯塔", "http://b.example/é🗼"]
LATIN, ASCII, C = (
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "ascii:strict"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
)
COMMANDS = [
    (LATIN, ["explain", "--diff", "pages.jsonl#1", "pages.jsonl#2"], "{+"),
    (C, ["explain", "--diff", "--verbose", "pages.jsonl#1", "pages.jsonl#2"], "\\u6e2f"),
    (ASCII, ["explain", "--diff", "pages.jsonl#1", "pages.jsonl#2"], "\\u6e2f"),
    ({"PYTHONIOENCODING": "gbk"}, ["explain", "--diff", "pages.jsonl#1", "pages.jsonl#2"], ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("locales")
    texts = (TEXT * 3, TEXT * 3 + " 市政府支付一半费用 🗼")
    lines = [json.dumps({"url": url, "text": text}) for url, text in zip(URLS, texts, strict=True)]
    (made / "pages.jsonl").write_text("\n".join(lines))
    return made


def run(folder: Path, environment: dict[str, str], *arguments: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "stream.cli", *arguments],
        env=os.environ | environment, cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr[-500:]
    return done.stdout


@pytest.mark.parametrize(("environment", "arguments", "printed"), COMMANDS)
def test_letters_that_a_locale_lacks_are_escaped(
    folder: Path, environment: dict[str, str], arguments: list[str], printed: str
) -> None:
    assert printed.encode() in run(folder, environment, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "--json", "pages.jsonl#1", "pages.jsonl#2"],
        ["scan", "pages.jsonl", "-o", "-"],
    ],
)
def test_json_is_utf_8_in_every_locale(folder: Path, arguments: list[str]) -> None:
    lines = run(folder, LATIN, *arguments).splitlines()
    assert "灯塔" in "".join(map(bytes.decode, lines))
    assert all(map(json.loads, lines))
