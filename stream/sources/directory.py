"""Saved pages: one file, or all below a directory that are pages by suffix or content, in sorted order. Each
may be compressed, as `page.html.gz`."""

from __future__ import annotations

import io
import os
import re
import stat
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
from stream.sources.encoding import encoding_of
from stream.sources.source import MAX_BODY, Message, NoPage, Source

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
_SNIFFED: Final = 2048
"""Bytes of a file with another suffix in which it must begin as HTML, as a mirror's `view.php?id=7` does."""
_HTML: Final = re.compile(
    r"\s*+(?>(?:<\?xml\b[^>]*>|<!--.*?-->)\s*)*+"
    r"<(?:!doctype\s+html|html|head|body|title|meta|script|style|iframe|div|h1|table|font|p|br|a|b)[\s/>]",
    re.IGNORECASE | re.DOTALL,
)
_QUERY: Final = "/?:@!$&'()*+,;=%"
"""Characters of a query that stay as they are."""


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

    The URL of a page is `base_url` and the path relative to the directory, in whose last name `?` begins the
    query. Without a base it is a `file:` URL, so that files of the same name in different directories are
    different pages. Directories are walked depth-first in name order, without following links to directories.
    Files of other suffixes that do not begin as HTML are counted in `passed_over`. A file that cannot be read
    is damage of its own: the others are read.
    """

    def __init__(self, path: str, base_url: str | None = None) -> None:
        super().__init__(path)
        if base_url is not None and "://" not in base_url:
            raise SettingsError(f"base-url: {base_url!r} is not a URL such as https://example.com/")
        self._root = Path(path)
        self._is_mirror = base_url is not None
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
            for file in self.files():
                with suppress(OSError):  # reading it names the damage
                    self._total += file.stat().st_size
        return self._total

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    def urls(self) -> Iterator[str]:
        """The URLs of all pages, in order, without reading the pages."""
        return map(self._url, self.files())

    def files(self) -> Iterator[Path]:
        """The pages' files, in order."""
        for file in self._files():
            with suppress(OSError):  # reading it names the damage
                if self._is_page(file):
                    yield file

    def all_files(self) -> Iterator[Path]:
        """All files, pages or not, in order. A directory that cannot be read is damage."""
        return self._files(reading=True)

    def no_pages(self) -> Iterator[NoPage]:
        for file in self._files():
            with suppress(OSError):  # reading it names the damage
                if not self._is_page(file):
                    yield NoPage(self._url(file), str(file), None, "suffix")

    def _read(self) -> Iterator[Message]:
        self._bytes_read = 0
        for file in self._files(reading=True):
            try:
                if not self._is_page(file):
                    self.passed_over["suffix"] += 1
                    continue
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
                content_type=page_type(file.name) or "text/html",
                fetched_at=status.st_mtime_ns // 1_000_000,
            )
            fields = fields_of_page(page)
            if body is None:
                fields["omitted_bytes"] = size
            yield Message(encode_fields(fields), page.url, str(file))

    def _url(self, file: Path) -> str:
        relative = page_name(file.name if file == self._root else file.relative_to(self._root).as_posix())
        parent, _, name = relative.rpartition("/")
        if not self._is_mirror or "?" not in name:
            return self._base + quote(os.fsencode(relative))
        name, _, query = name.partition("?")
        path = f"{parent}/{name}" if parent else name
        return f"{self._base}{quote(os.fsencode(path))}?{quote(os.fsencode(query), _QUERY)}"

    def _is_page(self, file: Path) -> bool:
        return file == self._root or page_type(file.name) is not None or begins_as_html(file)

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
            elif _may_be_file(entry):
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


def begins_as_html(file: Path) -> bool:
    """Return whether the content of a file begins as HTML does. Raises OSError."""
    with file.open("rb") as opened:
        start = opened.read(_SNIFFED)
    return _HTML.match(start.decode(encoding_of(start), "replace")) is not None


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:  # of a link to nothing; reading it names the damage
        return True
