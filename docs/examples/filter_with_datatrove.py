"""Drop near-duplicates in a datatrove pipeline: `python filter_with_datatrove.py pages/ out/`.

Reads JSON Lines with `text`, and a `url` or `id`, from the first directory.
"""

import sys
from collections.abc import Generator

from datatrove.data import Document, DocumentsPipeline
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from neardup import Index


class NearDuplicates(BaseFilter):
    """Keeps a document unless it is like an earlier one of the same task.

    With a directory, the index stays there: the next run compares its documents with those of this one.
    """

    name = "neardup"

    def __init__(self, directory: str | None = None, exclusion_writer: JsonlWriter | None = None) -> None:
        super().__init__(exclusion_writer, batch_size=256)
        self.directory = directory

    def run(
        self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1
    ) -> Generator[Document, None, None]:
        if world_size != 1:
            raise ValueError("documents of several tasks are not compared with each other: use tasks=1")
        with Index(self.directory) as self.index:  # opened here, as a pipeline is copied before it runs
            yield from super().run(data, rank, world_size)

    def filter_batch(self, batch: list[Document]) -> list[bool | tuple[bool, str]]:
        answers = self.index.add_all([(doc.metadata.get("url", doc.id), doc.text) for doc in batch])
        return [each.verdict in ("unique", "insufficient") or (False, each.verdict) for each in answers]

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        return self.filter_batch([doc])[0]


def main(pages: str, out: str) -> None:
    dropped = JsonlWriter(f"{out}/dropped", compression=None)
    pipeline = [
        JsonlReader(pages),
        NearDuplicates(exclusion_writer=dropped),
        JsonlWriter(f"{out}/kept", compression=None),
    ]
    LocalPipelineExecutor(pipeline, tasks=1, workers=1, logging_dir=f"{out}/logs").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
