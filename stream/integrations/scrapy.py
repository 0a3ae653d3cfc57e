"""A Scrapy item pipeline: crawled pages go to the pages topic, and their verdicts come back to the crawl.

    # settings.py of a Scrapy project; pip install 'neardup-stream[scrapy]'
    ITEM_PIPELINES = {"stream.integrations.scrapy.NeardupPipeline": 300}
    NEARDUP_BOOTSTRAP_SERVERS = "kafka-1:9092"
    NEARDUP_NAMESPACE = "crawl"
    NEARDUP_WAIT = True                        # items come out with `neardup`, the verdict record
    NEARDUP_DROP = ["duplicate", "recrawl"]    # and these do not come out

An item is a page when it has `url` and one of `html`, `text` and `body` (bytes); it may have `content_type`,
`charset` and `fetched_at`. Other items pass untouched. Dropped ones are counted in `neardup/duplicate` and so
on, and logged at level DEBUG. Every setting of neardup can be given as `NEARDUP_*`.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any, Final, Self

import msgspec
from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem, NotConfigured

from stream.errors import BrokerError
from stream.kafka import clients, topics
from stream.kafka.names import Names
from stream.kafka.publish import BATCH_BYTES, LINGER_MS, key_of
from stream.kafka.verdict_values import VerdictReader
from stream.messages.verdict import Verdict
from stream.pages.page import Page
from stream.settings import PREFIX, Settings, load
from stream.sources.encode import encode_page
from stream.sources.source import MAX_MESSAGE, Message

WAIT_SECONDS: Final = 60.0
"""Default of NEARDUP_WAIT_SECONDS: how long an item waits for its verdict before it passes without one."""
FIELD: Final = "neardup"
_VERDICTS: Final = {each.name.lower() for each in Verdict}
_Place = tuple[int, int]


class NeardupPipeline:
    """Publishes pages, at least once: an item goes on, or is dropped, after its page was acknowledged.

    A spider that closes waits for its items, and so for their acknowledgements and verdicts. A page that is
    not acknowledged is an error of its item, which Scrapy logs and counts. Counters are `neardup/*`.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Raises NotConfigured and SettingsError."""
        given = crawler.settings
        flags = {
            name: given[PREFIX + name.upper()]
            for name in Settings.model_fields
            if PREFIX + name.upper() in given
        }
        self.settings = load(**flags)
        self._names = Names(self.settings.namespace)
        self._stats: Any = crawler.stats
        self._drop = set(given.getlist("NEARDUP_DROP"))
        if unknown := self._drop - _VERDICTS:
            raise NotConfigured(f"NEARDUP_DROP: {', '.join(sorted(unknown))} is no verdict")
        self._wait = bool(self._drop) or given.getbool("NEARDUP_WAIT")
        self._seconds = given.getfloat("NEARDUP_WAIT_SECONDS", WAIT_SECONDS)
        self._waiting: dict[_Place, asyncio.Future[dict[str, Any]]] = {}
        self._early: dict[_Place, dict[str, Any]] = {}
        """Verdicts that came before the acknowledgement of their pages was seen."""
        self._unacknowledged = 0
        self._following: asyncio.Task[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """As Scrapy makes pipelines."""
        return cls(crawler)

    def page_of(self, item: Any) -> Page | None:
        """The page in an item; None where it holds none. To be overridden for items of another form."""
        fields = ItemAdapter(item)
        url, body = fields.get("url"), fields.get("body")
        html, text = fields.get("html"), fields.get("text")
        if isinstance(body, str):
            html, body = body if html is None else html, None
        content = {"html": html, "text": text, "body": body}
        present = [name for name, value in content.items() if value is not None]
        if not isinstance(url, str) or not present:
            return None
        return Page(
            url=url,
            content_type=fields.get("content_type"),
            charset=fields.get("charset"),
            fetched_at=_milliseconds(fields.get("fetched_at")),
            **{present[0]: content[present[0]]},
        )

    async def open_spider(self) -> None:
        """Connect. Raises BrokerError and TopicError: a crawl without its broker does not begin."""
        await topics.check(self.settings, "publish")
        self._producer = clients.producer(
            self.settings,
            enable_idempotence=True,
            acks="all",
            compression_type="zstd",
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
            max_request_size=2 * MAX_MESSAGE,
        )
        await clients.start(self.settings, self._producer)
        if self._wait:
            await topics.check(self.settings, "follow")
            self._consumer = clients.consumer(
                self.settings,
                self._names.verdicts,
                isolation_level="read_committed",
                auto_offset_reset="latest",
                enable_auto_commit=False,
            )
            await clients.start(self.settings, self._consumer)
            for partition in self._consumer.assignment():  # "latest" is now, before the first page
                await self._consumer.position(partition)
            self._following = asyncio.create_task(self._follow())

    async def process_item(self, item: Any) -> Any:
        """Publish the item's page and return when it is acknowledged, or when its verdict is there.

        Raises DropItem for the verdicts of NEARDUP_DROP, BrokerError for a page that was not acknowledged.
        """
        page = self.page_of(item)
        if page is None:
            return item
        verdict = await self._publish(page)
        if not self._wait:
            return item
        if verdict is None:
            self._stats.inc_value("neardup/no_verdict")
            return item
        name = str(verdict["verdict"])
        self._stats.inc_value(f"neardup/{name}")
        if name in self._drop:
            other = verdict["duplicate_of"]
            like = f" is like {other['url']}" if other else ""
            # Scrapy's line holds the whole item; dropping is what the crawl was told to do, and is counted.
            raise DropItem(f"{name}: {page.url}{like}", log_level="DEBUG")
        ItemAdapter(item)[FIELD] = verdict
        return item

    async def close_spider(self) -> None:
        """Send what is left, and leave."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            await clients.end(self._consumer)
        await clients.end(self._producer)

    async def _publish(self, page: Page) -> dict[str, Any] | None:
        """The page's verdict, if it is waited for and comes in time."""
        message = Message(encode_page(page), page.url, page.url)
        self._unacknowledged += 1
        try:
            sent = await self._producer.send(self._names.pages, message.value, key=key_of(message, "url"))
            async with clients.acknowledged(f"topic {self._names.pages}"):
                acknowledged = await sent
        except Exception as error:
            raise BrokerError(
                f"{page.url}: not acknowledged by topic {self._names.pages} ({error!r})"
            ) from error
        finally:
            self._unacknowledged -= 1
        self._stats.inc_value("neardup/published")
        if not self._wait:
            return None
        place = (acknowledged.partition, acknowledged.offset)
        if place in self._early:
            return self._early.pop(place)
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[place] = waiting
        following = self._following
        assert following is not None  # noqa: S101 (as we wait)
        try:
            ends: set[asyncio.Future[Any]] = {waiting, following}
            done, _ = await asyncio.wait(ends, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[place]
        if waiting in done:
            return waiting.result()
        if following in done:
            following.result()  # raises why no verdict will come
        return None

    async def _follow(self) -> None:
        """Hand verdicts to the items that wait for them."""
        reader = VerdictReader(self.settings)
        async for message in self._consumer:
            verdict = msgspec.json.decode(reader.json(message))
            place = (verdict["source"]["partition"], verdict["source"]["offset"])
            waiting = self._waiting.get(place)
            if waiting is not None and not waiting.done():
                waiting.set_result(verdict)
            elif self._unacknowledged:
                self._early[place] = verdict
            else:
                self._early.clear()


def _milliseconds(moment: object) -> int:
    if isinstance(moment, datetime):
        return int(moment.timestamp() * 1000)
    return moment if isinstance(moment, int) else int(time.time() * 1000)
