"""Names that say nothing of a value do not come back: a value is named by a noun, an act by a verb."""

from __future__ import annotations

import ast
from pathlib import Path

STREAM = Path(__file__).parents[2] / "stream"
NAMES = {"asked", "found", "known", "met", "said", "theirs", "told"}
WRITTEN = {"judge/explain/explain.py", "states/scrubs.py"}
"""Where one is the name of a field in JSON."""


def named(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names


def test_values_are_named_by_nouns_and_functions_by_verbs() -> None:
    sources = {path.relative_to(STREAM).as_posix(): path for path in STREAM.rglob("*.py")}
    assert len(sources) > 300
    bad = {
        file: sorted(names)
        for file, path in sources.items()
        if file not in WRITTEN
        and (names := {name for name in named(ast.parse(path.read_bytes())) if name.strip("_") in NAMES})
    }
    assert bad == {}
