"""Publish page messages from JSON Lines, as a crawler would: `python publish_pages.py pages.jsonl`."""

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaProducer

SERVERS = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("NEARDUP_NAMESPACE", "neardup") + ".pages"


async def main(path: str) -> None:
    # Idempotent, so that a retry publishes nothing twice; acks=all, so that an acknowledged page is safe.
    async with AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True, acks="all") as producer:
        acknowledgements = []
        with open(path, "rb") as lines:
            for line in lines:
                url = json.loads(line)["url"]
                # With the URL as key, all pages of one URL are in one partition, in their order.
                acknowledgements.append(await producer.send(TOPIC, line.strip(), key=url.encode()))
        await asyncio.gather(*acknowledgements)
    print(f"published {len(acknowledgements)} pages to {TOPIC}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
