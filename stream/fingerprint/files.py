"""Files that a scheme names. Their content is part of the scheme, their path is not."""

from __future__ import annotations

from pathlib import Path

import xxhash

from stream.errors import SettingsError


def digest(option: str, path: str) -> str:
    """xxh3-128 of the file's bytes, in 32 hex digits. Raises ValueError, which names the option."""
    try:
        return xxhash.xxh3_128_hexdigest(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"{option}={path}: {error.strerror}") from None


def refuse_changed(option: str, path: str, expected: str) -> None:
    """Raise SettingsError if the file is missing, or has changed since the scheme was made."""
    try:
        current = digest(option, path)
    except ValueError as error:
        raise SettingsError(f"scheme option {error}") from None
    if current != expected:
        raise SettingsError(
            f"scheme option {option}={path}: its content has digest {current},"
            f" but the scheme was made with {expected}"
        )
