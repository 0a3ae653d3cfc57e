"""A demonstration crawl: real documentation pages fetched as packages, and Chinese pages written for it."""

from __future__ import annotations

from collections.abc import Iterable

from stream.demo.chinese import EXPECTED, chinese_messages
from stream.demo.crawl import Crawl, prepare
from stream.errors import CrawlError
from stream.sources import Message

__all__ = ["EXPECTED", "Crawl", "CrawlError", "chinese_messages", "demo_messages", "prepare"]


def demo_messages() -> Iterable[Message]:
    """The whole crawl, fetched first where it is not cached; `prepare` says more of it."""
    return prepare()
