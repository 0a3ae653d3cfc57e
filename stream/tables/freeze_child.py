"""The process that builds a large generation's files: `python -m stream.tables.freeze_child FOLDER`.

FOLDER holds `generation.npz`, and gets a file a table. Standard input is a pipe that the parent holds open
and never writes to: its end is the parent's end, and this process ends with it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

import numpy as np

from stream.tables.build import build_tables
from stream.tables.design import U64, Design
from stream.tables.rocks import sst_writer

INPUT: Final = "generation.npz"
NICE: Final = 15


def hand_over(
    folder: Path, design: Design, generation: int, first: int, rows: U64, masks: U64 | None
) -> None:
    """Write the child's input."""
    layout = np.array([design.blocks, design.choose, design.width, generation, first])
    with (folder / INPUT).open("wb") as file:
        if masks is None:
            np.savez(file, layout=layout, rows=rows)
        else:
            np.savez(file, layout=layout, rows=rows, masks=masks)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def main(folder: Path) -> None:
    """Build the files of the generation in `folder`."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(NICE)
    with np.load(folder / INPUT) as given:
        blocks, choose, width, generation, first = given["layout"].tolist()
        rows: U64 = given["rows"]
        masks: U64 | None = given.get("masks")
    build_tables(sst_writer, Design(blocks, choose, width), generation, first, rows, masks, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # without waiting for the thread that reads the pipe
