"""Objects of a cloud store, which may stand where a file or directory is named: `s3://bucket/key`,
`gs://bucket/key` or `az://container/key`.

Credentials, region and endpoint are those of the provider's own clients: AWS_ACCESS_KEY_ID, AWS_PROFILE,
AWS_REGION, AWS_ENDPOINT_URL and so on, a profile in ~/.aws, or the machine's role.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeAlias, cast

from stream.stores.bucket import Bucket, address_of
from stream.stores.store import Entry

BLOCK: Final = 4 << 20
"""Bytes of a request."""


def is_url(name: str) -> bool:
    """Whether a source or output is an object. Raises as `address_of` does."""
    return address_of(name) is not None


def path_of(name: str) -> AnyPath:
    """The file, directory or object of that name. Raises SettingsError for a URL that is no object's."""
    return ObjectPath(name) if is_url(name) else Path(name)


class ObjectStat(NamedTuple):
    """What is known of an object."""

    st_size: int


class ObjectPath:
    """An object, or the objects below a prefix, with some methods of `pathlib.Path`.

    They raise OSError, whose `strerror` has no words of the store's own.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        scheme, _, path = self._url.partition("://")
        name, _, self._key = path.partition("/")
        self._bucket = Bucket(scheme, name)

    def __str__(self) -> str:
        return self._url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self._url}/{name}")

    def __lt__(self, other: ObjectPath) -> bool:
        return self._url < other._url

    @property
    def name(self) -> str:
        """The last part of the key, or the name of the bucket."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name."""
        return Path(self.name).suffix

    def is_file(self) -> bool:
        """Whether there is such an object."""
        try:
            return bool(self._key) and self._bucket.head(self._key) is not None
        except FileNotFoundError:
            return False

    def is_dir(self) -> bool:
        """Whether there are objects below this prefix, and none has its name."""
        return not self.is_file() and self._has_any()

    def exists(self) -> bool:
        """Whether there is such an object or prefix."""
        return self.is_file() or self._has_any()

    def stat(self) -> ObjectStat:
        """The size of the object."""
        return ObjectStat(self._bucket.head(self._key).size)

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects one slash below this prefix."""
        return iter(self._paths(self._bucket.list_level(self._prefix)))

    def files(self) -> list[ObjectPath]:
        """All objects below this prefix, in order."""
        return sorted(self._paths(self._bucket.list_all(self._prefix)))

    def open(self, mode: str = "rb") -> BinaryIO:
        """The object, to be read from any place."""
        if mode != "rb":
            raise ValueError(mode)
        return cast(BinaryIO, io.BufferedReader(_Object(self._bucket, self._bucket.head(self._key)), BLOCK))

    def read_bytes(self) -> bytes:
        """The whole object."""
        with self.open() as file:
            return file.read()

    def write_bytes(self, content: bytes) -> None:
        """Make the object, which appears whole or not at all, or replace it."""
        self._bucket.put(self._key, content)

    def write_file(self, file: Path) -> None:
        """Make the object of a file, in several requests if it is large. It appears whole or not at all."""
        self._bucket.put_file(self._key, file)

    def unlink(self) -> None:
        """Remove the object."""
        self._bucket.delete([self._key])

    @property
    def _prefix(self) -> str:
        return f"{self._key}/" if self._key else ""

    def _has_any(self) -> bool:
        """Whether there are objects below this prefix, and its bucket."""
        try:
            return next(self._bucket.list_all(self._prefix), None) is not None
        except FileNotFoundError:
            return False

    def _paths(self, infos: Iterable[Entry]) -> list[ObjectPath]:
        return [ObjectPath(f"{self._bucket.url}/{each.name}") for each in infos]


AnyPath: TypeAlias = Path | ObjectPath
"""Where a source or rows may be."""


class _Object(io.RawIOBase):
    """The bytes of an object, read by position. Raises OSError if another one takes its place."""

    def __init__(self, bucket: Bucket, info: Entry) -> None:
        self._bucket = bucket
        self._info = info
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._position + len(buffer), self._info.size)
        if end <= self._position:
            return 0
        content = self._bucket.read(self._info.name, self._position, end, self._info.etag)
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._info.size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "before the first byte")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position
