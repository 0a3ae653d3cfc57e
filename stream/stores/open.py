"""Opens a store by its URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from stream.errors import SettingsError
from stream.stores.bucket import CLOUDS
from stream.stores.cloud import CloudStore
from stream.stores.directory import DirectoryStore
from stream.stores.store import Store, is_name

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.DOTALL | re.IGNORECASE)


def store_of(url: str) -> Store:
    """The store at `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///directory`
    or a directory. Nothing is asked of it yet.

    Credentials are those of the provider's own clients, in the environment or in files, or the machine's. A
    URL has none of them, for it stands in logs. Raises SettingsError.
    """
    if not _URL.fullmatch(url):
        return DirectoryStore(_absolute(url, url))
    scheme, place, path, query, fragment = urlsplit(url)
    if "@" in place:
        raise SettingsError(f"{scheme}://...: has credentials in it; give them in the environment or a file")
    if query or fragment:
        raise SettingsError(f"{scheme}://...: has a query or fragment; only a path may follow the bucket")
    if scheme == "file":
        if place not in ("", "localhost"):
            raise SettingsError(f"{url}: names a machine; a directory of this one is file:///directory")
        return DirectoryStore(_absolute(unquote(path), url))
    prefix = path.strip("/")
    if scheme not in CLOUDS or not place or (prefix and not is_name(prefix)):
        raise SettingsError(
            f"{url}: not s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or a directory; a"
            " prefix has letters, digits and ._=- between single slashes"
        )
    return CloudStore(scheme, place, prefix)


def _absolute(path: str, url: str) -> Path:
    if not path or "\0" in path:
        raise SettingsError(f"{url!r}: names no directory")
    return Path(path).absolute()
