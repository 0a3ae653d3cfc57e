"""The files in `schemas/`, which programs in other languages read too: the code has no copies of them."""

from __future__ import annotations

from pathlib import Path

from stream.errors import NeardupError


def contract(name: str) -> str:
    """The text of such a file, in a wheel or in a checkout. Raises NeardupError."""
    package = Path(__file__).parent
    for directory in (package / "schemas", package.parent / "schemas"):
        if (directory / name).is_file():
            return (directory / name).read_text("utf-8")
    raise NeardupError(f"this installation lacks schemas/{name}")
