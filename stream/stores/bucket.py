"""Objects of a bucket by key, through obstore."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import SettingsError
from stream.stores.aws import profile_times, s3_options
from stream.stores.errors import refuse_edge_slashes, translated_errors
from stream.stores.store import Entry

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

BLOCK: Final = 8 << 20
"""Bytes of one request of an upload or download, more only for an upload of PARTS of them."""
PARTS: Final = 9000
"""Requests of an upload at most. S3 allows 10,000."""
AT_ONCE: Final = 4
"""Requests of an upload at the same time, each with BLOCK bytes in memory."""
_CLIENT: Final[ClientConfig] = {"connect_timeout": timedelta(seconds=10), "timeout": timedelta(seconds=60)}
"""So a request of BLOCK bytes needs 1.1 Mbit/s."""
_RETRIES: Final[RetryConfig] = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=120),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 3},
}
_DELETED_AT_ONCE: Final = 1000
_ANONYMOUS_SECONDS: Final = 60.0
"""After which credentials are looked for again: the machine may not have answered at once."""
TURN_SECONDS: Final = 0.1
CLOUDS: Final = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
"""Schemes of URLs, and how variables of their settings begin."""
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL | re.IGNORECASE)


class Address(NamedTuple):
    """Where an object is, or what is below a prefix."""

    scheme: str
    bucket: str
    key: str


def address_of(url: str) -> Address | None:
    """The address that a URL such as `s3://bucket/key` names; None for the path of a file or directory.

    A URL has no credentials, for it stands in rows, logs and messages. Raises SettingsError for those that
    have some, and for other URLs.
    """
    if (match := _URL.fullmatch(url)) is None:
        return None
    scheme, rest = match.groups()
    bucket, _, key = rest.partition("/")
    if "@" in bucket:
        raise SettingsError(
            f"{scheme}://...: has credentials in it; give them as variables, such as AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, or as a profile"
        )
    if scheme not in CLOUDS or not bucket:
        raise SettingsError(
            f"{scheme}://...: the only URLs are such as s3://bucket/key, gs://bucket/key and"
            " az://container/key"
        )
    return Address(scheme, bucket, key)


class Bucket:
    """A bucket of S3 or Google Cloud Storage, or a container of Azure.

    What fails raises OSError, as `stream.stores.store.Store` says, or SettingsError if a provider's settings
    cannot be used.
    """

    def __init__(self, scheme: str, name: str) -> None:
        """`scheme` is s3, gs or az. Nothing is asked of the store yet."""
        self.url = f"{scheme}://{name}"
        self._scheme = scheme
        self._name = name

    def head(self, key: str) -> Entry:
        """What is known of an object."""
        import obstore

        with self._object(key) as client:
            return _info(obstore.head(client, key))

    def read(self, key: str, start: int, end: int, etag: str | None = None) -> bytes:
        """Bytes `start` to `end` of an object, fewer if it ends before. With `etag`, it must be that one."""
        import obstore

        with self._object(key) as client:
            answer = obstore.get(client, key, options={"range": (start, end), "if_match": etag})
            return bytes(answer.bytes())

    def put(self, key: str, content: bytes) -> None:
        """Make an object, which appears whole or not at all, or replace it."""
        import obstore

        with self._object(key) as client:
            obstore.put(client, key, content, chunk_size=BLOCK, max_concurrency=AT_ONCE)

    def put_file(self, key: str, path: Path, turn: Callable[[], None] = lambda: None) -> None:
        """Make an object of a file, or replace it. A file that changes meanwhile makes an object of either
        content. `turn` is called every TURN_SECONDS. If it raises, requests that are under way end at once,
        and the store keeps parts of an upload that never ends."""
        block = max(BLOCK, -(-path.stat().st_size // PARTS))
        with self._object(key) as client:
            asyncio.run(_put_file(client, key, path, block, turn))

    def list_all(self, prefix: str) -> Iterator[Entry]:
        """All objects below a prefix, which ends at a slash, in the order of their keys' bytes."""
        import obstore

        with self._client(prefix) as client:
            for chunk in obstore.list(client, prefix):
                for each in chunk:
                    if self._is_object(client, each, prefix):
                        yield _info(each)

    def list_level(self, prefix: str) -> list[Entry]:
        """The objects one slash below a prefix."""
        import obstore

        with self._client(prefix) as client:
            objects = obstore.list_with_delimiter(client, prefix)["objects"]
            return [_info(each) for each in objects if self._is_object(client, each, prefix)]

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. Those that are not there count as removed."""
        import obstore

        rest = iter(keys)
        if self._scheme == "s3":
            while chosen := list(islice(rest, _DELETED_AT_ONCE)):
                with self._client(chosen[0]) as client:
                    obstore.delete(client, chosen)
            return
        for key in rest:  # the others answer with an error for a missing object
            with suppress(FileNotFoundError), self._client(key) as client:
                obstore.delete(client, key)

    @staticmethod
    def _is_object(client: ObjectStore, listed: ObjectMeta, prefix: str) -> bool:
        """Whether what is listed is no marker of a directory: an empty object with a slash at the end of its
        key, which obstore leaves out."""
        import obstore

        key = listed["path"]
        if key == prefix.strip("/"):
            return False
        if listed["size"]:
            return True
        try:
            obstore.head(client, key)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _object(self, key: str) -> Iterator[ObjectStore]:
        """The client, for a request of one object."""
        with self._client(key) as client:
            refuse_edge_slashes(key)
            yield client

    @contextmanager
    def _client(self, key: str) -> Iterator[ObjectStore]:
        """The client, with errors of the block translated."""
        start = CLOUDS[self._scheme]
        settings = frozenset((name, value) for name, value in os.environ.items() if name.startswith(start))
        parameters = (self._scheme, self._name, settings, profile_times())
        client = _client_of(*parameters)
        if client.anonymous and time.monotonic() - client.made >= _ANONYMOUS_SECONDS:
            _client_of.cache_clear()
            client = _client_of(*parameters)
        with translated_errors(f"{self.url}/{key}", anonymous=client.anonymous):
            yield client.store


async def _put_file(client: ObjectStore, key: str, path: Path, block: int, turn: Callable[[], None]) -> None:
    import obstore

    putting = asyncio.ensure_future(
        obstore.put_async(client, key, path, chunk_size=block, max_concurrency=AT_ONCE)
    )
    try:
        while not (await asyncio.wait([putting], timeout=TURN_SECONDS))[0]:
            turn()
        await putting
    finally:
        putting.cancel()


class _Client(NamedTuple):
    store: ObjectStore
    anonymous: bool
    made: float
    """By the monotonic clock."""


@functools.lru_cache(maxsize=16)
def _client_of(scheme: str, name: str, *_settings: object) -> _Client:
    """The client of a bucket, which keeps connections and credentials until settings change. Raises
    SettingsError, and OSError."""
    from obstore.store import AzureStore, GCSStore, S3Store

    if scheme == "s3":
        options = s3_options(name)
        with _usable(scheme):
            s3 = S3Store(
                name,
                config=options.config,
                client_options={**_CLIENT, **options.client},
                retry_config=_RETRIES,
                credential_provider=options.credentials,
            )
        return _Client(s3, options.config.get("skip_signature", False), time.monotonic())
    provider, endpoint = (
        (GCSStore, "GOOGLE_BASE_URL") if scheme == "gs" else (AzureStore, "AZURE_STORAGE_ENDPOINT")
    )
    client: ClientConfig = {**_CLIENT, "allow_http": os.environ.get(endpoint, "").startswith("http://")}
    with _usable(scheme):
        store = provider(name, client_options=client, retry_config=_RETRIES)
    return _Client(store, anonymous=False, made=time.monotonic())


@contextmanager
def _usable(scheme: str) -> Iterator[None]:
    try:
        yield
    except Exception:  # whatever it is, its words may quote a secret
        start = CLOUDS[scheme]
        raise SettingsError(
            f"{scheme}://...: variables {start}..., or files that they name, cannot be used"
        ) from None


def _info(listed: ObjectMeta) -> Entry:
    return Entry(listed["path"], listed["size"], listed["last_modified"].timestamp(), listed["e_tag"])
