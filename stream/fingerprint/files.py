"""Files that a scheme names: their content, not their place, is part of the scheme."""

from __future__ import annotations

from pathlib import Path

import xxhash

from stream.errors import SettingsError


def digest(option: str, path: str) -> str:
    """xxh3-128 of the file's bytes, 32 hex digits. Raises ValueError, naming the option."""
    try:
        return xxhash.xxh3_128_hexdigest(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"{option}={path}: {error.strerror}") from None


def refuse_changed(option: str, path: str, expected: str) -> None:
    """Raises SettingsError unless the file is there and is what the scheme was made with."""
    try:
        found = digest(option, path)
    except ValueError as error:
        raise SettingsError(f"scheme option {error}") from None
    if found != expected:
        raise SettingsError(
            f"scheme option {option}={path}: its content has digest {found},"
            f" the scheme was made with {expected}"
        )
