"""Read verdicts and act on each: `python read_verdicts.py`, or `python read_verdicts.py 5` for five."""

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaConsumer

SERVERS = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("NEARDUP_NAMESPACE", "neardup") + ".verdicts"


async def main(limit: int | None) -> None:
    read = 0
    async with AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=SERVERS,
        group_id="indexer",
        isolation_level="read_committed",  # without it, verdicts of aborted transactions are seen too
        auto_offset_reset="earliest",
    ) as verdicts:
        async for record in verdicts:
            verdict = json.loads(record.value)
            match verdict["verdict"]:
                case "unique":
                    print("index", verdict["url"])
                case "duplicate":
                    print("skip", verdict["url"], "which is like", verdict["duplicate_of"]["url"])
                case "recrawl" if verdict["cluster"] == verdict["id"]:
                    print("index", verdict["url"], "whose cluster had ended")
                case "recrawl":
                    print("refresh the date of", verdict["url"])
                case "insufficient":
                    print("look at", verdict["url"], "by its text hash", verdict["text_hash"])
                case "rejected":
                    print("mend", verdict["url"], "because of", verdict["reason"])
            read += 1
            if read == limit:
                return


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
