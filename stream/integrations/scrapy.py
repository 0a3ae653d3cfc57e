"""A Scrapy item pipeline that publishes crawled pages and can tag or drop items by their verdicts.

    # settings.py of a Scrapy project; pip install 'neardup-stream[scrapy]'
    ITEM_PIPELINES = {"stream.integrations.scrapy.NeardupPipeline": 300}
    NEARDUP_BOOTSTRAP_SERVERS = "kafka-1:9092"
    NEARDUP_NAMESPACE = "crawl"
    NEARDUP_WAIT = True                        # adds the verdict record to items, as the field `neardup`
    NEARDUP_DROP = ["duplicate", "recrawl"]    # drops items with these verdicts

An item is published as a page if it has `url` and one of `html`, `text` and `body` (bytes). It may also have
`content_type`, `charset`, `redirected_from`, `canonical_url`, `quality` (a number) and `fetched_at`: RFC
3339, milliseconds since the epoch or a datetime; the present time if absent. Other items pass unchanged.
Dropped items are counted in the stats `neardup/duplicate` and so on, and logged at level DEBUG. All settings
of neardup can be given as `NEARDUP_*`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Self

import msgspec
from aiokafka.errors import KafkaError
from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem, NotConfigured

from stream.errors import BrokerError, PageError, TopicError
from stream.kafka import clients, topics
from stream.kafka.broker_metadata import topic_id_at_leaders
from stream.kafka.names import TopicNames
from stream.kafka.topic_subscription import TopicSubscription
from stream.kafka.verdict_values import VerdictReader
from stream.messages.verdict import Verdict
from stream.pages.page import Page, quality_of
from stream.pages.times import page_time
from stream.roles.publisher import key_of, page_producer
from stream.settings import PREFIX, Settings, load
from stream.sources.encode import encode_page
from stream.sources.source import Message

WAIT_SECONDS: Final = 60.0
"""Default of NEARDUP_WAIT_SECONDS: how long an item waits for its verdict before it passes without it."""
FIELD: Final = "neardup"
_HEADERS: Final = ("content_type", "charset", "redirected_from", "canonical_url")
_VERDICTS: Final = {each.name.lower() for each in Verdict}
_Place = tuple[str, int, int]
"""Topic id, partition and offset of a page. Pages of an earlier topic of the same name, and rows that are
loaded, have the same partitions and offsets."""


class NeardupPipeline:
    """Publishes pages at least once: an item passes, or is dropped, only after its page was acknowledged.

    A closing spider waits for its items, and hence for acknowledgements and verdicts. A page that is not
    acknowledged is an error of its item, which Scrapy logs and counts. Stats are named `neardup/*`.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings. Raises NotConfigured and SettingsError."""
        given = crawler.settings
        flags = {
            name: given[PREFIX + name.upper()]
            for name in Settings.model_fields
            if PREFIX + name.upper() in given
        }
        self.settings = load(**flags)
        self._names = TopicNames(self.settings.namespace)
        self._stats: Any = crawler.stats
        self._drop = set(given.getlist("NEARDUP_DROP"))
        if unknown := self._drop - _VERDICTS:
            raise NotConfigured(f"NEARDUP_DROP: not a verdict: {', '.join(sorted(unknown))}")
        self._wait = bool(self._drop) or given.getbool("NEARDUP_WAIT")
        self._seconds = given.getfloat("NEARDUP_WAIT_SECONDS", WAIT_SECONDS)
        self._topic_id = ""
        """Id of the pages topic, from the latest answer of its leaders."""
        self._waiting: dict[_Place, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._sends: dict[int, None] = {}
        """Numbers of the sends whose places are not known yet, in ascending order."""
        self._early: dict[_Place, tuple[int, dict[str, Any]]] = {}
        """Verdicts that arrived before the place of their page was known, in order of arrival, and the number
        of the last send before each."""
        self._following: asyncio.Task[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Create the pipeline; called by Scrapy."""
        return cls(crawler)

    def page_of(self, item: Any) -> Page | None:
        """Return the page in an item, or None if it has none. Override this for items with other fields.

        Raises PageError that names a field of the item with a value of another type, or a time that is none.
        """
        fields = ItemAdapter(item)
        url, body = fields.get("url"), fields.get("body")
        html, text = fields.get("html"), fields.get("text")
        if isinstance(body, str):
            html, body = body if html is None else html, None
        content = {"html": html, "text": text, "body": body}
        present = [name for name, value in content.items() if value is not None]
        if not isinstance(url, str) or not present:
            return None
        headers = {name: fields.get(name) for name in _HEADERS}
        if isinstance(headers["content_type"], bytes):  # as Scrapy has headers
            headers["content_type"] = headers["content_type"].decode("latin-1")
        for name, value in ((present[0], content[present[0]]), *headers.items()):
            wanted = bytes if name == "body" else str
            if value is not None and not isinstance(value, wanted):
                raise PageError("wrong_type", f"{name}: is {type(value).__name__}, not {wanted.__name__}")
        fetched_at = page_time(fields.get("fetched_at"))
        return Page(
            url=url,
            fetched_at=int(time.time() * 1000) if fetched_at is None else fetched_at,
            quality=quality_of(fields.get("quality")),
            **{present[0]: content[present[0]]},
            **headers,
        )

    async def open_spider(self) -> None:
        """Connect. Raises BrokerError and TopicError, so that a crawl does not start without its broker."""
        await topics.check(self.settings, "publish")
        async with AsyncExitStack() as stack:
            self._producer = page_producer(self.settings)
            await stack.enter_async_context(clients.open_client(self.settings, self._producer))
            if self._wait:
                await topics.check(self.settings, "follow")
                # Its positions are known before the first page is published.
                verdicts = await stack.enter_async_context(
                    TopicSubscription(self.settings, self._names.verdicts)
                )
                partitions = await self._producer.partitions_for(self._names.pages)
                self._topic_id = await self._topic_id_at_leaders(partitions)
                self._following = asyncio.create_task(self._follow(verdicts))
            self._clients = stack.pop_all()

    async def process_item(self, item: Any) -> Any:
        """Publish the item's page, and wait for its acknowledgement or, if configured, for its verdict.

        Raises DropItem for the verdicts of NEARDUP_DROP, BrokerError for a page that was not acknowledged,
        and PageError for an item of which no page message can be made.
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
            # Scrapy logs the whole item. A drop was requested and is counted, so DEBUG is enough.
            raise DropItem(f"{name}: {page.url}{like}", log_level="DEBUG")
        ItemAdapter(item)[FIELD] = verdict
        return item

    async def close_spider(self) -> None:
        """Flush the producer and disconnect."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._clients.aclose()

    async def _publish(self, page: Page) -> dict[str, Any] | None:
        """Publish a page, and return its verdict if the pipeline waits for one and it arrives in time."""
        number, topic_id = next(self._numbers), self._topic_id
        self._sends[number] = None
        try:
            partition, offset = await self._send(Message(encode_page(page), page.url, page.url))
            self._stats.inc_value("neardup/published")
            deadline = asyncio.get_running_loop().time() + self._seconds
            if not self._wait or not await self._is_in_topic(topic_id, partition, deadline):
                return None
            place = (topic_id, partition, offset)
            if place in self._early:
                return self._early.pop(place)[1]
            waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._waiting[place] = waiting
        finally:
            del self._sends[number]
            self._drop_early()
        following = self._following
        assert following is not None  # noqa: S101 (it runs whenever `_wait` is set)
        try:
            ends: set[asyncio.Future[Any]] = {waiting, following}
            left = deadline - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[place]
        if waiting in done:
            return waiting.result()
        if following in done:
            following.result()  # raises the reason why no verdict will arrive
        return None

    async def _send(self, message: Message) -> tuple[int, int]:
        """Send a message, and return its partition and offset. Raises BrokerError."""
        try:
            sent = await self._producer.send(self._names.pages, message.value, key=key_of(message, "url"))
            async with clients.acknowledgement_limit(f"topic {self._names.pages}"):
                acknowledged = await sent
        except Exception as error:
            raise BrokerError(
                f"{message.origin}: not acknowledged by topic {self._names.pages} ({error!r})"
            ) from error
        return acknowledged.partition, acknowledged.offset

    async def _is_in_topic(self, topic_id: str, partition: int, deadline: float) -> bool:
        """Whether a page that was just acknowledged is in the topic with this id, known before it was sent.

        Acknowledgements name topics, not their ids. If the topic is recreated in between, either one may have
        the page.
        """
        with suppress(TopicError, BrokerError, KafkaError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                self._topic_id = await self._topic_id_at_leaders([partition])
                return self._topic_id == topic_id
        return False

    async def _topic_id_at_leaders(self, partitions: Iterable[int]) -> str:
        return await topic_id_at_leaders(self._producer.client, self._producer, self._names.pages, partitions)

    async def _follow(self, verdicts: TopicSubscription) -> None:
        """Pass verdicts to the items that wait for them."""
        reader = VerdictReader(self.settings)
        async for message in verdicts:
            verdict = msgspec.json.decode(reader.json(message))
            source = verdict["source"]
            if source["topic"] != self._names.pages:  # a row that was loaded
                continue
            place = (source["topic_id"], source["partition"], source["offset"])
            waiting = self._waiting.get(place)
            if waiting is not None and not waiting.done():
                waiting.set_result(verdict)
            elif self._sends:
                self._early[place] = next(reversed(self._sends)), verdict

    def _drop_early(self) -> None:
        """Drop early verdicts that are on no page of the present sends, which all began after them."""
        oldest = next(iter(self._sends), None)
        while self._early:
            place = next(iter(self._early))
            if oldest is not None and self._early[place][0] >= oldest:
                return
            del self._early[place]
