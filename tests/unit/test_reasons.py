"""The documented reject reasons are exactly those in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from stream.messages.reasons import REASONS

ROOT = Path(__file__).parents[2]
OF_SOURCES = {"damaged_source"}
"""Ends `publish` and `scan`; no verdict has it."""


def given(tree: ast.AST) -> Iterator[str]:
    """Reasons in calls: the first argument of a page's error, the keyword `reason` of a row."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name.endswith("PageError") and call.args:
            yield from constant(call.args[0])
        if name == "Row":
            for keyword in call.keywords:
                if keyword.arg == "reason":
                    yield from constant(keyword.value)


def constant(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def test_every_reason_in_the_code_is_listed_and_no_other() -> None:
    used = set()
    for file in (ROOT / "stream").rglob("*.py"):
        used.update(given(ast.parse(file.read_text("utf-8"))))
    assert used - OF_SOURCES == set(REASONS)
