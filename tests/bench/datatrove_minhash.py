"""MinHash of datatrove: run by the Python of its own environment, with nothing of ours imported.

    python datatrove_minhash.py DIRECTORY OUTPUT PROCESSES

The four stages of its example, with its default settings: 5-grams, 14 buckets of 8 hashes, English.
"""

from __future__ import annotations

import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter


def main(directory: str, output: str, processes: int) -> None:
    config = MinhashConfig()

    def pages() -> JsonlReader:
        return JsonlReader(directory, glob_pattern="pages-*.jsonl")

    signatures, buckets, removed = (f"{output}/{name}" for name in ("signatures", "buckets", "removed"))
    stages = [
        ([pages(), MinhashDedupSignature(signatures, config=config)], processes),
        ([MinhashDedupBuckets(signatures, buckets, config=config)], config.num_buckets),
        ([MinhashDedupCluster(buckets, removed, config=config)], 1),
        ([pages(), MinhashDedupFilter(removed), JsonlWriter(f"{output}/kept", compression=None)], processes),
    ]
    for number, (steps, tasks) in enumerate(stages):
        LocalPipelineExecutor(
            steps, tasks=tasks, workers=processes, logging_dir=f"{output}/logs/{number}"
        ).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
