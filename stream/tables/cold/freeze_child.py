"""The process that builds the files of a large run: `python -m stream.tables.cold.freeze_child FOLDER`.

FOLDER contains the input, written by `hand_over`. The files, one per table, are written to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from stream.children.parent import end_with_parent
from stream.errors import DiskError
from stream.tables.arrays import U64
from stream.tables.cold.build import RunAnchors, build_tables
from stream.tables.cold.runs import Run
from stream.tables.design import Block, Design
from stream.tables.store.anchors import Skips
from stream.tables.store.failures import TranslatedErrors
from stream.tables.store.rocks import sst_writer

INPUT: Final = "run.npz"
ROWS: Final = "rows"
NICE: Final = 15


def hand_over(folder: Path, design: Design, run: Run, rows: Iterable[U64], skips: Skips) -> None:
    """Write the child's input. `rows` yields the rows (n, W + 1) of the run's last anchors in slices."""
    layout = np.array([design.blocks, design.choose, design.width, design.families.start, *run])
    with (folder / ROWS).open("wb") as file:
        for some in rows:
            some.tofile(file)
    with (folder / INPUT).open("wb") as file:
        np.savez(
            file,
            layout=layout,
            places=design.places,
            subsets=design.subsets,
            numbers=skips.numbers,
            masks=skips.masks,
        )


def main(folder: Path) -> None:
    """Build the files of the run in `folder`."""
    end_with_parent()
    os.nice(NICE)
    with np.load(folder / INPUT) as given:
        blocks, choose, width, family, *of_run = given["layout"].tolist()
        places = [Block(*each) for each in given["places"].tolist()]
        subsets = given["subsets"].tolist()
        skips = Skips(given["numbers"], given["masks"])
    design = Design(blocks, choose, width, places, subsets=subsets, first_family=family)
    run = Run(*of_run)
    rows = np.memmap(folder / ROWS, np.uint64, "r").reshape(-1, design.words + 1)
    build_tables(sst_writer, design, RunAnchors(run, rows, skips), folder)


if __name__ == "__main__":
    status = 0
    try:
        with TranslatedErrors(Path(sys.argv[1])):
            main(Path(sys.argv[1]))
    except DiskError as error:
        status = error.exit_code
        sys.stderr.write(f"{error.__cause__}\n")
    sys.stderr.flush()
    os._exit(status)  # does not wait for the thread that reads standard input
