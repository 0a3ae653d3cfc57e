"""Import structure: no two packages import each other, and there are no import cycles between modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import stream

ROOT = Path(stream.__file__).parent
COMMON = ("contracts", "errors", "failpoints", "output", "private", "settings", "suggest")
"""Modules beside the packages that every package may import; they import no package."""


def _name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {_name(file): file for file in ROOT.rglob("*.py")}


def _imported(module: str) -> Iterator[str]:
    """Modules of ours that it imports, inside functions too."""
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module in FILES:
            names = {f"{node.module}.{each.name}" for each in node.names}
            yield from names & FILES.keys()
            if names - FILES.keys():
                yield node.module


IMPORTS = {module: set(_imported(module)) - {module} for module in FILES}


def _package(module: str) -> str | None:
    """The package that a module is in; None for one beside them."""
    _, *inside = module.split(".")
    return inside[0] if inside and (ROOT / inside[0]).is_dir() else None


def test_no_two_packages_import_each_other() -> None:
    imports = defaultdict(set)
    for module, imported in IMPORTS.items():
        for other in imported:
            packages = _package(module), _package(other)
            if None not in packages and packages[0] != packages[1]:
                imports[packages].add(f"{module} imports {other}")
    assert len(imports) > 20
    both = [imports[packages] | imports[packages[::-1]] for packages in imports if packages[::-1] in imports]
    assert not both


def test_what_every_package_may_import_imports_none() -> None:
    for name in COMMON:
        assert not [each for each in IMPORTS[f"stream.{name}"] if _package(each)], name


def test_no_module_is_imported_in_a_circle() -> None:
    left = {module: set(imported) for module, imported in IMPORTS.items()}
    while free := [module for module, imported in left.items() if not imported]:
        for module in free:
            del left[module]
        for imported in left.values():
            imported.difference_update(free)
    # Whoever only leads into a circle is not part of one.
    while leads := [module for module in left if not any(module in other for other in left.values())]:
        for module in leads:
            del left[module]
    assert not left
