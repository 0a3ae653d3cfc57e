"""The demo crawl: real documentation pages, downloaded as packages, and Chinese pages written for the
demo."""

from __future__ import annotations

from collections.abc import Iterable

from stream.demo.chinese import EXPECTED, chinese_messages
from stream.demo.crawl import Crawl, prepare
from stream.errors import CrawlError
from stream.sources.source import Message

__all__ = ["EXPECTED", "Crawl", "CrawlError", "chinese_messages", "demo_messages", "prepare"]


def demo_messages() -> Iterable[Message]:
    """Return the whole crawl, downloading what is not cached; see `prepare`."""
    return prepare()
