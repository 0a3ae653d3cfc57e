"""The demo crawl as a source: documentation releases and Chinese pages, interleaved."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal, NamedTuple

from stream.demo.chinese import chinese_messages
from stream.demo.fetch import Say, cache_directory, fetch, is_cached
from stream.demo.order import shuffled
from stream.demo.releases import MAVEN, PIP, Release
from stream.errors import CrawlError
from stream.pages.page import Page
from stream.sources.encode import encode_page
from stream.sources.source import Message, Source

Origin = Literal["auto", "maven", "pip", "none"]


class _Entry(NamedTuple):
    """A page in an archive that is not read yet, or a complete message."""

    archive: int
    path: str
    size: int
    message: Message | None
    url: str | None


_NO_ARCHIVE: Final = -1


class Crawl(Source):
    """Yields each page once, in a reproducible order. Archives are read page by page."""

    def __init__(self, releases: Sequence[Release], archives: Sequence[Path]) -> None:
        super().__init__("demo crawl")
        self._releases = releases
        self._archives = archives
        self._bytes_read = 0
        entries = [
            _Entry(_NO_ARCHIVE, "", len(message.value), message, message.url_hint)
            for message in chinese_messages()
        ]
        for number, (release, archive) in enumerate(zip(releases, archives, strict=True)):
            with zipfile.ZipFile(archive) as pages:
                entries += [
                    _Entry(number, info.filename, info.file_size, None, release.url(info.filename))
                    for info in sorted(pages.infolist(), key=lambda info: info.filename)
                ]
        self._entries = shuffled(entries, lambda entry: entry.url)

    def __len__(self) -> int:
        """Return the number of messages, including the malformed one."""
        return len(self._entries)

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self._entries)

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    def _read(self) -> Iterator[Message]:
        self._bytes_read = 0
        with ExitStack() as stack:
            archives = [stack.enter_context(zipfile.ZipFile(archive)) for archive in self._archives]
            for entry in self._entries:
                self._bytes_read += entry.size
                if entry.message is not None:
                    yield entry.message
                else:
                    release = self._releases[entry.archive]
                    html = archives[entry.archive].read(entry.path).decode("utf-8", "replace")
                    page = Page(
                        url=release.url(entry.path),
                        html=html,
                        content_type="text/html",
                        fetched_at=release.fetched_at,
                    )
                    yield Message(encode_page(page), page.url, f"{release.name} {entry.path}")


def prepare(progress: Say | None = None, *, origin: Origin = "auto", cache: Path | None = None) -> Crawl:
    """Download the documentation unless it is cached. Blocks; `progress` is called with lines of text.

    `origin` is `maven` for two releases of Kafka's Java documentation, `pip` for documentation in Python
    packages, `auto` for whichever is cached or else can be downloaded, and `none` for the Chinese pages
    alone. Raises CrawlError.
    """
    say = progress or (lambda _: None)
    directory = cache or cache_directory()
    if origin == "none":
        return Crawl((), ())
    if origin != "auto":
        releases = MAVEN if origin == "maven" else PIP
        return Crawl(releases, fetch(releases, directory, say))
    choices = [MAVEN, PIP] if shutil.which("mvn") else [PIP, MAVEN]
    choices.sort(key=lambda releases: not is_cached(releases, directory))
    failures = []
    for releases in choices:
        try:
            return Crawl(releases, fetch(releases, directory, say))
        except CrawlError as error:
            failures.append(str(error))
            say(f"download failed: {error}")
    raise CrawlError("; ".join(failures))
