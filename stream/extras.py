"""Says which optional packages are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream.errors import SettingsError


@contextmanager
def needs_export(what: str) -> Iterator[None]:
    """Import packages of the extra `export` in this block. Raises SettingsError, which begins with `what` and
    says how to install them, if one is missing."""
    try:
        yield
    except ImportError as error:
        raise SettingsError(f"{what}: pip install 'neardup-stream[export]' ({error})") from error
