"""Deduplicate web archives with Ray Data: `python deduplicate_with_ray.py crawl.warc.gz more.warc.gz`.

Ray reads and fingerprints the archives. `neardup scan` judges the rows on one machine, `keep_one.py` chooses
the longest page of each cluster, and Ray writes those pages to `deduplicated.parquet`. All nodes share the
working directory.
"""

import base64
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray.data
from pyarrow import parquet

from stream.integrations.ray import write_rows
from stream.sources.open import open_source

KEEP_ONE = str(Path(__file__).parent / "keep_one.py")


def pages_of(archive: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pages of an archive as page messages, judged in the order of archives and of the pages in them."""
    for position, message in enumerate(open_source(archive["source"])):
        yield archive | {"position": position, "message": message.value.decode()}


def kept_pages_of(archive: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The columns of those pages of an archive whose positions are kept."""
    kept = set(archive["kept"])
    for position, message in enumerate(open_source(archive["source"])):
        if position in kept:
            fields = json.loads(message.value)
            yield {
                "url": fields["url"],
                "fetched_at": fields.get("fetched_at"),
                "content_type": fields.get("content_type"),
                "body": base64.b64decode(fields.get("body", "")),
            }


def main(*archives: str) -> None:
    folder = Path.cwd()  # workers may have another
    named = [{"order": order, "source": str(folder / path)} for order, path in enumerate(archives)]
    pages = ray.data.from_items(named).flat_map(pages_of)

    write_rows(pages, f"{folder}/rows")
    subprocess.run(["neardup", "scan", "rows", "-o", "verdicts.parquet"], check=True)
    subprocess.run([sys.executable, KEEP_ONE, "longest", "rows", "verdicts.parquet"], check=True)

    kept: dict[str, list[int]] = defaultdict(list)
    for page in parquet.read_table("kept.parquet", columns=["source", "position"]).to_pylist():
        kept[page["source"]].append(page["position"])
    chosen = [{"source": path, "kept": positions} for path, positions in kept.items()]
    ray.data.from_items(chosen).flat_map(kept_pages_of).write_parquet(f"{folder}/deduplicated.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
