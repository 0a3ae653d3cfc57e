"""Digests of files, by which checkpoints name them.

Nobody can make two files of the same digest, not even who chooses the pages of a crawl.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_BLOCK: Final = 1 << 20


def new_hash(content: bytes = b"") -> hashlib._Hash:
    """A SHA-256 hash of this content and of what it is updated with. Processors have instructions for it, by
    which it takes half the time of BLAKE2b (1.7 and .9 GiB/s)."""
    return hashlib.sha256(content)


NOTHING: Final = new_hash().hexdigest()
"""Digest of an empty file."""


def digest_of_file(path: Path, turn: Callable[[], None] = lambda: None) -> str:
    """SHA-256 of a file's content, in hexadecimal digits. `turn` is called at every MiB. Releases the GIL."""
    hashed, block = new_hash(), bytearray(_BLOCK)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(block):
            hashed.update(memoryview(block)[:size])
            turn()
    return hashed.hexdigest()


class _Identity(NamedTuple):
    """What a file is recognised by: RocksDB never changes a data file."""

    inode: int
    changed: int
    size: int


class DigestCache:
    """Digests of a state directory's data files, which are hashed once in the life of a process."""

    def __init__(self) -> None:
        self._digests: dict[_Identity, str] = {}

    def digests(self, paths: list[Path], turn: Callable[[], None]) -> list[str]:
        """The digest of each file. Forgets all other files."""
        before, self._digests = self._digests, {}
        answer = []
        for path in paths:
            status = path.stat()
            identity = _Identity(status.st_ino, status.st_mtime_ns, status.st_size)
            digest = before.get(identity) or digest_of_file(path, turn)
            self._digests[identity] = digest
            answer.append(digest)
        return answer
