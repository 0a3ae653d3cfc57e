"""Commands that the documentation shows do what it says: those that need no broker.

Those that do are run by tests/kafka/test_documented_deployment.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import (
    NOT_RUN,
    PAGES,
    PAGES_NOT_RUN,
    ROOT,
    blocks,
    fences,
    furnish,
    needs_kafka,
    run_page,
    run_python,
)
from tests.night import cases

WITHOUT_KAFKA = [page for page in PAGES if blocks(page) and not needs_kafka(page)]
WITH_PYTHON = [page for page in PAGES if any(language == "python" for _, language, _ in fences(page))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    furnish(tmp_path / "sandbox")
    return tmp_path / "sandbox"


@pytest.mark.parametrize("page", cases(WITHOUT_KAFKA, by_day=WITHOUT_KAFKA[::3]), ids=name)
def test_commands_do_what_their_page_says(page: Path, sandbox: Path) -> None:
    run_page(page, sandbox, {})


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_on_a_page_runs(page: Path, sandbox: Path) -> None:
    run_python(page, sandbox)


def test_a_block_has_a_language_and_only_shell_has_commands() -> None:
    """So that no command hides from these tests in a block that is not run."""
    commands = (
        "neardup ",
        "python ",
        "pip ",
        "make ",
        "export ",
        "docker ",
        "kubectl ",
        "kafka-",
        "NEARDUP_",
    )
    for page in PAGES:
        for line, language, content in fences(page):
            assert language, f"{name(page)}:{line} has no language"
            if language != "sh":
                hidden = [each for each in content.splitlines() if each.startswith(commands)]
                assert hidden == [], f"{name(page)}:{line}"


def test_what_is_not_run_is_there() -> None:
    shown = "\n".join(content for page in PAGES for _, _, content in fences(page))
    assert [start for start in NOT_RUN if f"\n{start}" not in f"\n{shown}"] == []
    assert PAGES_NOT_RUN.keys() <= {name(page) for page in PAGES}
