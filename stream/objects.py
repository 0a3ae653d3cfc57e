"""Objects of an S3 store, named `s3://bucket/key`, which may stand where a file or directory is named.

Credentials, region and endpoint are those of every S3 client: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION,
AWS_ENDPOINT_URL and so on, a profile in ~/.aws, or the machine's role. A URL has none of them, for names of
sources stand in rows, logs and messages. Needs the extra `export` (pyarrow, which rows need as well).

obstore 0.12 reads no profiles, takes markers of directories for objects, and fails to list a prefix below
which one key has two slashes in a row.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from stream.errors import SettingsError
from stream.extras import needs_export

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

PREFIX: Final = "s3://"
BLOCK: Final = 4 << 20
"""Bytes of a request. One whose connection breaks is repeated."""
ATTEMPTS: Final = 4
CONNECT_SECONDS: Final = 10.0
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+)://(.*)", re.DOTALL | re.IGNORECASE)
_PLACE: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
_DENIED: Final = "access denied to these credentials"
_ERRORS: Final = {
    "NO_SUCH_BUCKET": (errno.ENOENT, "no such bucket"),
    "Bucket '": (errno.ENOENT, "no such bucket"),
    "NO_SUCH_KEY": (errno.ENOENT, "no such object"),
    "ACCESS_DENIED": (errno.EACCES, _DENIED),
    "HTTP status 403": (errno.EACCES, _DENIED),
    "INVALID_ACCESS_KEY_ID": (errno.EACCES, "the store does not know these credentials"),
    "INVALID_CLIENT_TOKEN_ID": (errno.EACCES, "the store does not know these credentials"),
    "UNRECOGNIZED_CLIENT": (errno.EACCES, "the store does not know these credentials"),
    "SIGNATURE_DOES_NOT_MATCH": (errno.EACCES, "the secret key is wrong"),
    "EXPIRED_TOKEN": (errno.EACCES, "the credentials have expired"),
    "REQUEST_TIMEOUT": (errno.EIO, "the store does not answer"),
    "NETWORK_CONNECTION": (errno.EIO, "the store cannot be reached, or closed the connection"),
    "Empty path component": (errno.EINVAL, "two slashes in a row in the key, which pyarrow does not read"),
}
"""What an error of pyarrow or the AWS SDK has in it -> what is said instead: its own words may quote the id
of a key."""


def is_url(name: str) -> bool:
    """Whether a source or output is an object. Raises SettingsError for other URLs, and for credentials."""
    match = _URL.fullmatch(name)
    if match is None:
        return False
    scheme, rest = match.groups()
    bucket = rest.partition("/")[0]
    if "@" in bucket:
        raise SettingsError(
            f"{scheme}://...: has credentials in it; give them as AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, or as a profile"
        )
    if scheme != "s3" or not bucket:
        raise SettingsError(f"{scheme}://...: the only URLs are such as s3://bucket/key")
    return True


def path_of(name: str) -> AnyPath:
    """The file, directory or object of that name. Raises SettingsError for a URL that is none of S3."""
    return ObjectPath(name) if is_url(name) else Path(name)


class ObjectStat(NamedTuple):
    """What is known of an object."""

    st_size: int


class ObjectPath:
    """An object, or the objects below a prefix, with some methods of `pathlib.Path`.

    They raise OSError, whose `strerror` has no words of the store's own.
    """

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix(PREFIX).rstrip("/")

    def __str__(self) -> str:
        return PREFIX + self._path

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self._path}/{name}")

    def __lt__(self, other: ObjectPath) -> bool:
        return self._path < other._path

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self._path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name."""
        return Path(self.name).suffix

    def is_file(self) -> bool:
        """Whether there is such an object."""
        return bool(self._info().is_file)

    def is_dir(self) -> bool:
        """Whether there are objects below this prefix."""
        return not self.is_file() and bool(self._info().type)

    def exists(self) -> bool:
        """Whether there is such an object or prefix."""
        return self.is_file() or self.is_dir()

    def stat(self) -> ObjectStat:
        """The size of the object."""
        info = self._info()
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, "no such object")
        return ObjectStat(info.size)

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects one slash below this prefix."""
        return (each for each in self._below(recursive=False))

    def files(self) -> list[ObjectPath]:
        """All objects below this prefix, in order."""
        return sorted(self._below(recursive=True))

    def open(self, mode: str = "rb") -> BinaryIO:
        """The object, to be read from any place."""
        if mode != "rb":
            raise ValueError(mode)
        with _translated_errors():
            file = self._store().open_input_file(self._path)
        return cast(BinaryIO, io.BufferedReader(_Object(file), BLOCK))

    def read_bytes(self) -> bytes:
        """The whole object."""
        with self.open() as file:
            return file.read()

    def write_bytes(self, content: bytes) -> None:
        """Make the object, which appears whole or not at all, or replace it."""
        with _translated_errors(), self._store().open_output_stream(self._path, compression=None) as file:
            file.write(content)

    def unlink(self) -> None:
        """Remove the object."""
        with _translated_errors():
            self._store().delete_file(self._path)

    def _info(self) -> FileInfo:
        with _translated_errors():
            return self._store().get_file_info(self._path)

    def _below(self, *, recursive: bool) -> list[ObjectPath]:
        from pyarrow.fs import FileSelector

        with _translated_errors():
            selector = FileSelector(self._path, recursive=recursive, allow_not_found=True)
            entries = self._store().get_file_info(selector)
            bucket = self._path.partition("/")[0]
            if not entries and not self._store().get_file_info(bucket).type:
                raise FileNotFoundError("NO_SUCH_BUCKET")
        return [ObjectPath(each.path) for each in entries if each.is_file]

    def _store(self) -> Any:
        with needs_export(str(self)):
            return _store_of(self._path.partition("/")[0], tuple(map(os.environ.get, _PLACE)))


AnyPath: TypeAlias = Path | ObjectPath
"""Where a source or rows may be."""


class _Object(io.RawIOBase):
    """An object whose errors are explained."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with _translated_errors():
            return cast(int, self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _translated_errors():
            return cast(int, self._file.seek(offset, whence))

    def tell(self) -> int:
        return cast(int, self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@functools.lru_cache(maxsize=16)
def _store_of(bucket: str, place: tuple[str | None, ...]) -> Any:
    """The store of a bucket: where the environment says, or else in the bucket's own region."""
    from pyarrow import fs

    endpoint = urlsplit(place[0] or place[1] or "")
    region = None if any(place) else fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        scheme=endpoint.scheme or None,
        endpoint_override=endpoint.netloc or None,
        connect_timeout=CONNECT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        text = str(error)
        number, meaning = next((cause for sign, cause in _ERRORS.items() if sign in text), (errno.EIO, ""))
        if isinstance(error, FileNotFoundError):
            number, meaning = errno.ENOENT, meaning or "no such object"
        raise OSError(number, meaning or "the store answers with an error") from None
