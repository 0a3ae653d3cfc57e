"""The files in `schemas/`, which programs in other languages read too: the code has no copies of them."""

from __future__ import annotations

from pathlib import Path

from stream.errors import NeardupError


def contracts() -> list[str]:
    """Names of the files. Raises NeardupError where an installation has none."""
    return sorted(file.name for file in _directory().iterdir() if file.name != "README.md")


def contract(name: str) -> str:
    """The text of one. Raises NeardupError."""
    if name not in contracts():
        raise NeardupError(f"no schema {name}; there are {', '.join(contracts())}")
    return (_directory() / name).read_text("utf-8")


def _directory() -> Path:
    """In a wheel, or in a checkout."""
    package = Path(__file__).parent
    for directory in (package / "schemas", package.parent / "schemas"):
        if (directory / "verdict.avsc").is_file():
            return directory
    raise NeardupError("this installation lacks the directory schemas")
