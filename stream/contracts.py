"""Access to the schema files in `schemas/`, which also serve programs in other languages."""

from __future__ import annotations

from pathlib import Path

from stream.errors import NeardupError


def contracts() -> list[str]:
    """Return the names of the schema files. Raises NeardupError if the installation lacks them."""
    return sorted(file.name for file in _directory().iterdir() if file.name != "README.md")


def contract(name: str) -> str:
    """Return the text of a schema file. Raises NeardupError for an unknown name."""
    if name not in contracts():
        raise NeardupError(f"no schema {name}; choose from {', '.join(contracts())}")
    return (_directory() / name).read_text("utf-8")


def _directory() -> Path:
    """Return the directory, inside the package of a wheel or beside that of a checkout."""
    package = Path(__file__).parent
    for directory in (package / "schemas", package.parent / "schemas"):
        if (directory / "verdict.avsc").is_file():
            return directory
    raise NeardupError("the installation is incomplete: it has no directory schemas")
