"""Saved pages: one file, or all files below a directory with the suffix of a page, in sorted order. Each may
be compressed, as `page.html.gz`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from stream.errors import PageError, SettingsError
from stream.pages.fields import fields_of_page
from stream.pages.members import DAMAGED, Members
from stream.pages.page import Page
from stream.sources.encode import encode_fields
from stream.sources.source import MAX_BODY, Message, Source

FILE_URL: Final = "file://localhost"
"""Prefix of an absolute path (RFC 8089). It has a host because URLs of pages need one."""
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
"""The suffixes of pages and their content types. Plain-text markup such as Markdown is read as text."""


COMPRESSED: Final = frozenset({".gz", ".bz2", ".xz", ".zst"})
"""Suffixes behind that of a page."""


def page_name(name: str) -> str:
    """The name of a page without the suffix of its compression."""
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in COMPRESSED else name


def page_type(name: str) -> str | None:
    """The content type of a file with this name; None if it is no page."""
    return CONTENT_TYPES.get(os.path.splitext(page_name(name))[1].lower())


class DirectorySource(Source):
    """Pages from the files below a directory, or from one file. `fetched_at` is the modification time.

    The URL of a page is `base_url` and the path relative to the directory. Without a base it is a `file:`
    URL, so that files of the same name in different directories are different pages. Directories are walked
    depth-first in name order, without following links to directories. Files with other suffixes are counted
    in `passed_over`. A file that cannot be read is damage of its own: the others are read.
    """

    def __init__(self, path: str, base_url: str | None = None) -> None:
        super().__init__(path)
        if base_url is not None and "://" not in base_url:
            raise SettingsError(f"base-url: {base_url!r} is not a URL such as https://example.com/")
        self._root = Path(path)
        whole = self._root.is_dir()
        if base_url is None:
            directory = os.path.abspath(self._root if whole else self._root.parent)
            base_url = FILE_URL + quote(os.fsencode(directory))
        self._base = base_url if base_url.endswith("/") else base_url + "/"
        self.begins = self._base if whole else self._url(self._root)
        """The common prefix of all its URLs; for a single page, the page's URL."""
        self._bytes_read = 0
        self._total: int | None = None

    @property
    def total_bytes(self) -> int | None:
        if self._total is None:
            self._total = 0
            for file in self._files():
                with suppress(OSError):  # reading it names the damage
                    self._total += file.stat().st_size
        return self._total

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    def urls(self) -> Iterator[str]:
        """The URLs of all pages, in order, without reading the pages."""
        return map(self._url, self._files())

    def files(self) -> Iterator[Path]:
        """The pages' files, in order."""
        return self._files()

    def _read(self) -> Iterator[Message]:
        self._bytes_read = 0
        for file in self._files(reading=True):
            try:
                status = file.stat()
                body, size = _read(file, status.st_size)
            except DAMAGED as error:
                why = getattr(error, "strerror", None) or error
                self._note_damage(PageError("damaged_source", f"{file}: {why}"))
                continue
            self._bytes_read += status.st_size
            page = Page(
                url=self._url(file),
                body=body,
                content_type=page_type(file.name),
                fetched_at=status.st_mtime_ns // 1_000_000,
            )
            fields = fields_of_page(page)
            if body is None:
                fields["omitted_bytes"] = size
            yield Message(encode_fields(fields), page.url, str(file))

    def _url(self, file: Path) -> str:
        relative = page_name(file.name if file == self._root else file.relative_to(self._root).as_posix())
        return self._base + quote(os.fsencode(relative))

    def _files(self, *, reading: bool = False) -> Iterator[Path]:
        if not self._root.is_dir():
            yield self._root
            return
        # A stack of sorted listings: memory for one path down the tree, not for the whole tree.
        stack = [iter(self._entries(self._root, reading))]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif entry.is_dir(follow_symlinks=False):
                stack.append(iter(self._entries(Path(entry.path), reading)))
            elif page_type(entry.name) and _may_be_file(entry):
                yield Path(entry.path)
            elif reading:
                self.passed_over["suffix"] += 1

    def _entries(self, directory: Path, reading: bool) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if reading:
                self._note_damage(PageError("damaged_source", f"{directory}: {error.strerror}"))
            return []


def _read(file: Path, size: int) -> tuple[bytes | None, int]:
    """Return the content of a file, and its size; of content that is too large for a message, a size that it
    exceeds. Raises one of DAMAGED."""
    if page_name(file.name) == file.name:
        return (None, size) if size > MAX_BODY else (file.read_bytes(), size)
    with file.open("rb") as raw, io.BufferedReader(Members(raw)) as content:
        body = content.read(MAX_BODY + 1)
        return (None, len(body)) if len(body) > MAX_BODY else (body, len(body))


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # of a link; reading it names the damage
        return True
