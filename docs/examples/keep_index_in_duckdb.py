"""Keep an index in DuckDB right with verdicts and the topic `best`:
`python keep_index_in_duckdb.py index.duckdb`.

Reads what is new on both topics into the table `index_pages`, by the rules of `keep_index.sql`. The view
`index_urls` has the URLs that an index has. Positions in the topics are stored in the same transaction, so it
may be killed, and called as seldom or often as you like.
"""

import asyncio
import os
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
from aiokafka import AIOKafkaConsumer

SERVERS = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
NAMESPACE = os.environ.get("NEARDUP_NAMESPACE", "neardup")
VERDICTS, BEST = f"{NAMESPACE}.verdicts", f"{NAMESPACE}.best"
RULES = (Path(__file__).parent / "keep_index.sql").read_text()
NEW = {
    VERDICTS: "CREATE OR REPLACE TEMP TABLE verdicts AS SELECT value::JSON AS value, number FROM records",
    BEST: "CREATE OR REPLACE TEMP TABLE best AS SELECT value::JSON AS value, number FROM records",
}
POSITIONS = """
    CREATE TABLE IF NOT EXISTS positions (
        topic VARCHAR, "partition" INTEGER, next BIGINT, PRIMARY KEY (topic, "partition")
    )
"""


def store(database: duckdb.DuckDBPyConnection, records: list, positions: list) -> None:
    """Apply records to the table, and store positions, both or neither."""
    database.begin()
    for topic, table in NEW.items():
        values = [each.value.decode() for each in records if each.topic == topic]
        rows = {"value": pa.array(values, pa.string()), "number": range(len(values))}
        database.register("records", pa.table(rows))
        database.execute(table)
    database.execute(RULES)
    for position in positions:
        database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", position)
    database.commit()


async def main(path: str) -> None:
    with duckdb.connect(path) as database:
        database.execute(POSITIONS)
        stored = {(topic, number): at for topic, number, at in database.execute("FROM positions").fetchall()}
        async with AIOKafkaConsumer(
            VERDICTS,
            BEST,
            bootstrap_servers=SERVERS,
            isolation_level="read_committed",  # without it, verdicts of aborted transactions are seen too
            auto_offset_reset="none",
        ) as consumer:
            partitions = consumer.assignment()
            first, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
            for each in partitions:
                at = stored.get((each.topic, each.partition), 0)
                if each.topic == VERDICTS and first[each] > at:
                    sys.exit(f"{each}: verdicts up to {first[each]} are deleted; begin with an export")
                consumer.seek(each, max(first[each], at))
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                read = await consumer.getmany(timeout_ms=1000)
                positions = [(each.topic, each.partition, await consumer.position(each)) for each in read]
                store(database, [each for records in read.values() for each in records], positions)
        (kept,) = database.execute("SELECT count(*) FROM index_urls").fetchone()
        (clusters,) = database.execute("SELECT count(*) FROM index_pages").fetchone()
        print(kept, "pages of", clusters, "clusters")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
