"""The process that builds a run: `python -m stream.tables.runs.build_child FOLDER`.

FOLDER contains its input; the files are written to it.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Final

from stream.children.parent import end_with_parent
from stream.errors import DiskError, NeardupError
from stream.tables.runs.build import build
from stream.tables.store.failures import TranslatedErrors

INPUT: Final = "content"
OUTPUT: Final = "built"


def main(folder: Path) -> None:
    """Build the files of the run in `folder`."""
    end_with_parent()
    with (folder / INPUT).open("rb") as file:
        content, memory, nice = pickle.load(file)  # noqa: S301  # of our parent, in a directory of our own
    os.nice(nice)
    built = build(content, None, folder, memory, lambda: None, lambda: time.sleep(0))
    (folder / OUTPUT).write_text(json.dumps(built))


if __name__ == "__main__":
    status = 0
    try:
        with TranslatedErrors(Path(sys.argv[1])):
            main(Path(sys.argv[1]))
    except NeardupError as error:
        status = error.exit_code
        sys.stderr.write(f"{error.__cause__ if isinstance(error, DiskError) else error}\n")
    sys.stderr.flush()
    os._exit(status)  # does not wait for the thread that reads standard input
