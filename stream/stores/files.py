"""Files on this machine that stores read and write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

BLOCK: Final = 1 << 20


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file with mode 0600, synced when the block ends and removed at an error."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def blocks_of(content: bytes | Path) -> Iterator[bytes]:
    """Bytes, or the content of a file in pieces."""
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while block := file.read(BLOCK):
            yield block
