"""Completion in a real bash: files where files are meant, and the values that options may have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def completed(tmp_path: Path, *words: str) -> list[str]:
    """What bash offers for the last word: its own files where completion says so."""
    program = tmp_path / "bin" / "neardup"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nfrom stream.cli import main\nmain()\n")
        program.chmod(0o755)
    script = """
    eval "$(_NEARDUP_COMPLETE=bash_source neardup)"
    compopt() { [ "$2" = default ] && files=yes; [ "$2" = dirnames ] && files=yes; }
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    "$(complete -p neardup | sed 's/.*-F \\([^ ]*\\).*/\\1/')" neardup "${COMP_WORDS[COMP_CWORD]}"
    [ "$files" ] && compgen -f -- "${COMP_WORDS[COMP_CWORD]}"
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script, "bash", "neardup", *words],
        env=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_file_names_are_completed(tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").touch()
    (tmp_path / "pages-2.jsonl").touch()
    for words in (
        ("scan", "pag"),
        ("match", "x", "--against", "pag"),
        ("explain", "pag"),
        ("publish", "x", "pag"),
    ):
        assert {"pages.jsonl", "pages-2.jsonl"} <= set(completed(tmp_path, *words)), words


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sc",), ["scan", "schema"]),
        (("scan", "--forma"), ["--format"]),
        (("scan", "--format", "par"), ["parquet"]),
        # As bash cuts words; what it sees as the last one is replaced.
        (("scan", "--scheme", "features", "=", "t"), ["tfidf", "textrank"]),
        (("scan", "--option", "disclosure", "="), ["internal", "public"]),
        (("scan", "--option", "disclosure", "=", "public", "--format", "=", "par"), ["parquet"]),
        (("scan", "--option", "disclosure=p"), ["disclosure=public"]),
        (("tail", "--verdict", "du"), ["duplicate"]),
        (("judge", "--verdict-format", ""), ["json", "avro"]),
    ],
)
def test_values_are_completed(tmp_path: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(tmp_path, *words) == offered


def test_nothing_is_said_after_a_mistyped_command(tmp_path: Path) -> None:
    assert completed(tmp_path, "verdcts", "zzz") == []  # `completed` asserts that nothing is printed
