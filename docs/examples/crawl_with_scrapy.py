"""Crawl a site with Scrapy and write its pages with their verdicts:
`python crawl_with_scrapy.py https://example.com/ items.jsonl`.

Broker and namespace come from NEARDUP_BOOTSTRAP_SERVERS and NEARDUP_NAMESPACE. Scrapy settings of the same
names, such as NEARDUP_NAMESPACE, work too.
"""

import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor


class Site(scrapy.Spider):
    """Follows the links of one host."""

    name = "site"

    def __init__(self, start: str) -> None:
        super().__init__()
        self.start_urls = [start]
        self.allowed_domains = [urlsplit(start).hostname or ""]

    def parse(self, response: Response) -> Iterator[Any]:
        if isinstance(response, HtmlResponse):
            yield {"url": response.url, "html": response.text}
            # It leaves out what is no page, such as `mailto:` and images.
            yield from response.follow_all(LinkExtractor().extract_links(response))


def main(start: str, items: str) -> None:
    process = AsyncCrawlerProcess(
        {
            "ITEM_PIPELINES": {"stream.integrations.scrapy.NeardupPipeline": 300},
            "NEARDUP_WAIT": True,  # each item waits for its verdict, in the field `neardup`
            "NEARDUP_DROP": ["recrawl"],  # and items with this verdict are dropped
            "FEEDS": {items: {"format": "jsonlines"}},
            "LOG_LEVEL": "WARNING",
            "TELNETCONSOLE_ENABLED": False,
        }
    )
    process.crawl(Site, start)
    process.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
