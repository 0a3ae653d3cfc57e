"""A directory of saved pages (or one such file): every file with a suffix of a web page, in sorted order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from stream.errors import PageError, SettingsError
from stream.messages.page import Page
from stream.sources.encode import encode_page
from stream.sources.source import MAX_MESSAGE, Message, Source

BASE_URL: Final = "http://localhost/"
"""Stands before the relative path: URLs stay the same wherever the directory lies."""
CONTENT_TYPES: Final = {
    ".html": "text/html",
    ".htm": "text/html",
    ".shtml": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".xht": "application/xhtml+xml",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".md": "text/plain",
    ".markdown": "text/plain",
    ".rst": "text/plain",
}
"""Which files are pages. Markup of plain text is read as text."""


class DirectorySource(Source):
    """Files below a directory: URL = base + relative path, `fetched_at` = modification time, body as stored.

    Directories are walked depth-first in name order; links to directories are not followed, other files are
    passed over.
    """

    def __init__(self, path: str, base_url: str = BASE_URL) -> None:
        super().__init__(path)
        if "://" not in base_url:
            raise SettingsError(f"base-url: {base_url!r} is no URL")
        self._root = Path(path)
        self._base = base_url if base_url.endswith("/") else base_url + "/"
        self._bytes_read = 0
        self._total: int | None = None

    @property
    def total_bytes(self) -> int | None:
        if self._total is None:
            self._total = sum(file.stat().st_size for file in self._files())
        return self._total

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    def __iter__(self) -> Iterator[Message]:
        self._bytes_read = 0
        for file in self._files():
            try:
                status = file.stat()
                if status.st_size > MAX_MESSAGE // 2:
                    raise PageError("too_large", f"{file}: over {MAX_MESSAGE // 2} bytes")
                body = file.read_bytes()
            except OSError as error:
                raise PageError("damaged_source", f"{file}: {error.strerror}") from error
            self._bytes_read += len(body)
            relative = file.name if file == self._root else file.relative_to(self._root).as_posix()
            page = Page(
                url=self._base + quote(os.fsencode(relative)),
                body=body,
                content_type=CONTENT_TYPES[file.suffix.lower()],
                fetched_at=status.st_mtime_ns // 1_000_000,
            )
            yield Message(encode_page(page), page.url, str(file))

    def _files(self) -> Iterator[Path]:
        if not self._root.is_dir():
            yield self._root
            return
        # A stack of sorted directories: memory for one path down the tree, not for the tree.
        stack = [iter(_entries(self._root))]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif entry.is_dir(follow_symlinks=False):
                stack.append(iter(_entries(Path(entry.path))))
            elif Path(entry.name).suffix.lower() in CONTENT_TYPES and entry.is_file():
                yield Path(entry.path)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise PageError("damaged_source", f"{directory}: {error.strerror}") from error
