"""Crawl a site and publish its pages as plain JSON: `python crawl_to_topic.py https://example.com/`.

This is what a crawler in any language has to do. It needs a Kafka client and nothing of neardup.
"""

import asyncio
import base64
import json
import os
import re
import sys
from datetime import UTC, datetime
from urllib.parse import urldefrag, urljoin, urlsplit

import aiohttp
from aiokafka import AIOKafkaProducer

SERVERS = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("NEARDUP_NAMESPACE", "neardup") + ".pages"
LINK = re.compile(rb"""<a\s[^>]*?href=["']?([^"'\s>]+)""", re.IGNORECASE)


async def main(start: str) -> None:
    frontier, seen, published = [start], {start}, 0
    async with (
        aiohttp.ClientSession() as session,
        AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True, acks="all") as producer,
    ):
        while frontier:
            asked = frontier.pop(0)
            async with session.get(asked) as response:
                if not response.ok:
                    continue  # a dead link
                body, url = await response.read(), str(response.url)
            message = {
                "url": url,
                "redirected_from": asked if asked != url else None,
                "fetched_at": datetime.now(UTC).isoformat(),
                "content_type": response.headers.get("Content-Type"),
                "body": base64.b64encode(body).decode(),  # as fetched: workers find out the charset
            }
            # With the URL as key, all versions of a page are in one partition, in their order.
            await producer.send_and_wait(TOPIC, json.dumps(message).encode(), key=url.encode())
            published += 1
            for link in LINK.findall(body):
                found = urldefrag(urljoin(url, link.decode(errors="replace"))).url
                if urlsplit(found).netloc == urlsplit(start).netloc and found not in seen:
                    seen.add(found)
                    frontier.append(found)
    print(f"published {published} pages to {TOPIC}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
