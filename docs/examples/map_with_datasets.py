"""Deduplicate a Hugging Face dataset: `python map_with_datasets.py pages.jsonl deduplicated.parquet`.

`map` fingerprints the pages in as many processes as there are cores. Their rows are judged in order, and the
first page of each cluster is kept.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from datasets import load_dataset
from neardup import Scheme

from stream.rows.files import seal
from stream.rows.fingerprint import fingerprint_batch


def rows_of(pages: pa.Table, indices: list[int]) -> pa.Table:
    """The rows of some pages. Their order is that of the dataset."""
    if "url" not in pages.column_names:
        pages = pages.append_column("url", pa.array([f"https://dataset.example/{each}" for each in indices]))
    pages = pages.append_column("order", pa.array(indices, pa.int64())).combine_chunks()
    return pa.Table.from_batches([fingerprint_batch(batch) for batch in pages.to_batches()])


def main(pages: str, out: str) -> None:
    dataset = load_dataset("json", data_files=[pages], split="train")

    rows = dataset.with_format("arrow").map(
        rows_of,
        batched=True,
        with_indices=True,
        remove_columns=dataset.column_names,
        num_proc=os.cpu_count(),
    )
    Path("rows").mkdir()
    rows.to_parquet("rows/rows.parquet")
    seal(Path("rows"), Scheme())
    subprocess.run(["neardup", "scan", "rows", "-o", "verdicts.jsonl"], check=True)

    with open("verdicts.jsonl") as lines:
        verdicts = [json.loads(line)["verdict"] for line in lines]
    kept = [number for number, verdict in enumerate(verdicts) if verdict in ("unique", "insufficient")]
    dataset.select(kept).to_parquet(out)
    print(f"{len(kept)} of {len(verdicts)} pages kept")


if __name__ == "__main__":
    main(*sys.argv[1:])
