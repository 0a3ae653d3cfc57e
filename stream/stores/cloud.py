"""A store that is a bucket, or a part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stream.stores.bucket import BLOCK, Bucket
from stream.stores.store import Entry, Store, checked, is_name


class CloudStore(Store):
    """The objects of a bucket below a prefix."""

    def __init__(self, scheme: str, bucket: str, prefix: str) -> None:
        """`prefix` has no slash at its ends, and may be empty."""
        self._bucket = Bucket(scheme, bucket)
        self._prefix = f"{prefix}/" if prefix else ""
        super().__init__(f"{self._bucket.url}/{prefix}".rstrip("/"))

    def put(self, name: str, content: bytes | Path, turn: Callable[[], None] = lambda: None) -> None:
        if isinstance(content, bytes):
            self._bucket.put(self._key(name), content)
        else:
            self._bucket.put_file(self._key(name), content, turn)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        within = self._key(prefix) + "/" if prefix else self._prefix
        for each in self._bucket.list_all(within):
            name = each.name[len(self._prefix) :]
            if is_name(name):
                yield Entry(name, each.size, each.modified)

    def delete(self, names: Iterable[str]) -> None:
        self._bucket.delete([self._key(name) for name in names])

    def _key(self, name: str) -> str:
        return self._prefix + checked(name)

    def _blocks(self, name: str) -> Iterator[bytes]:
        key = self._prefix + name
        info = self._bucket.head(key)
        for start in range(0, info.size, BLOCK):
            yield self._bucket.read(key, start, min(start + BLOCK, info.size), info.etag)
