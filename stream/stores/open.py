"""Opens a store by its URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from stream.errors import SettingsError
from stream.stores.bucket import address_of
from stream.stores.cloud import CloudStore
from stream.stores.directory import DirectoryStore
from stream.stores.store import Store, is_name


def store_of(url: str) -> Store:
    """The store at `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///directory`
    or a directory. Nothing is asked of it yet.

    Credentials are those of the provider's own clients, in the environment or in files, or the machine's.
    Raises SettingsError.
    """
    path = url
    if url.startswith("file://"):
        _, machine, path, _, _ = urlsplit(url)
        if machine not in ("", "localhost"):
            raise SettingsError("file://...: names a machine; a directory of this one is file:///directory")
        for mark, what in (("?", "query"), ("#", "fragment")):
            if mark in url:
                raise SettingsError(f"file://...: has a {what} ({mark}...); in a name, it is {quote(mark)}")
        path = unquote(path)
    elif address := address_of(url):
        prefix = address.key.strip("/")
        if prefix and not is_name(prefix):
            raise SettingsError(
                f"{address.scheme}://{address.bucket}/...: a prefix has letters, digits and ._=- between"
                " single slashes, and nothing follows it"
            )
        return CloudStore(address.scheme, address.bucket, prefix)
    if not path or "\0" in path:
        raise SettingsError(f"{url!r}: names no directory")
    return DirectoryStore(Path(path).absolute())
