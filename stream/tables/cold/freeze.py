"""Freezing: builds a run, one sorted file per table, from anchors, in the background of the judge."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from stream.children.confine import environment
from stream.errors import EXIT_DISK, StateBusyError
from stream.failpoints import reach
from stream.tables.arrays import U64
from stream.tables.cold import freeze_child
from stream.tables.cold.build import RunAnchors, build_tables, table_file
from stream.tables.cold.runs import Run
from stream.tables.design import Design
from stream.tables.store.anchors import Skips
from stream.tables.store.failures import TranslatedErrors, disk_error
from stream.tables.store.rocks import Store, table_family

FOLDER: Final = "freeze"
CHILD_ANCHORS = 100_000
"""Least size of runs that are built by a child process of low priority, since a thread would compete for the
GIL. For smaller runs, starting a process would take longer than building."""
ERRORS: Final = "errors"


class _CancelledError(Exception):
    """The build was cancelled."""


class Freezing:
    """The build of one run, from anchors to RocksDB. Its result depends only on the anchors.

    `rows` yields the rows (n, W + 1) of its last anchors in slices; those before are gone. A thread
    consumes it.
    """

    def __init__(self, store: Store, design: Design, run: Run, rows: Iterable[U64], skips: Skips) -> None:
        self.run: Final = run
        self._store = store
        self._design = design
        self._skips = skips
        self._translated_errors = TranslatedErrors(store.path)
        parent = store.path / FOLDER
        with self._translated_errors:
            parent.mkdir(mode=0o700, exist_ok=True)
            # A unique folder, as the child of a process that crashed may still be writing to its own.
            self._folder = Path(tempfile.mkdtemp(prefix=f"{run.level}-{run.number:05d}-", dir=parent))
        self._child: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._error: BaseException | None = None
        build = self._build_by_child if run.anchors >= CHILD_ANCHORS else self._build
        self._thread = threading.Thread(
            target=self._guard, args=(build, rows), name=f"freeze-{run.first}", daemon=True
        )
        self._thread.start()

    def _guard(self, build: Callable[[Iterable[U64]], None], rows: Iterable[U64]) -> None:
        try:
            build(rows)
        except BaseException as error:  # raised again by finish()
            self._error = error

    def _stop_if_cancelled(self) -> None:
        if self._cancelled:
            raise _CancelledError
        reach("freeze.build")

    def _build(self, rows: Iterable[U64]) -> None:
        together = np.concatenate(list(rows))
        build_tables(
            self._store.sst_writer, self._design, RunAnchors(self.run, together, self._skips), self._folder,
            between=self._stop_if_cancelled, pause=lambda: time.sleep(0),
        )  # fmt: skip

    def _build_by_child(self, rows: Iterable[U64]) -> None:
        freeze_child.hand_over(self._folder, self._design, self.run, self._until_cancelled(rows), self._skips)
        errors = self._folder / ERRORS
        with errors.open("wb") as error_file, subprocess.Popen(
            [sys.executable, "-m", freeze_child.__name__, str(self._folder)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=error_file,
            start_new_session=True,  # keeps Ctrl-C from the child, which we stop ourselves
        ) as child:  # fmt: skip
            self._child = child
            while True:
                if self._cancelled:
                    child.kill()
                reach("freeze.build")
                try:
                    status = child.wait(0.05)
                    break
                except subprocess.TimeoutExpired:
                    continue
        if status:
            what = f"freezing anchors {self.run.first} to {self.run.end - 1}"
            output = errors.read_text(errors="replace").strip()[-2000:]
            if status == EXIT_DISK:
                raise disk_error(self._store.path, f"{what}: {output}")
            raise StateBusyError(
                f"state directory {self._store.path}: {what}: its process exited with {status}: {output}"
            )

    def _until_cancelled(self, rows: Iterable[U64]) -> Iterator[U64]:
        for some in rows:
            self._stop_if_cancelled()
            yield some

    @property
    def is_built(self) -> bool:
        """Whether the files are ready, or the build has failed."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the files and ingest them. Raises what the build raised."""
        self._thread.join()
        if self._error is not None:
            with self._translated_errors:
                raise self._error
        for table, family in enumerate(self._design.families):
            path = table_file(self._folder, table)
            if path.exists():
                reach("freeze.ingest")
                self._store.ingest(table_family(family), path)
        reach("freeze.meta")
        shutil.rmtree(self._folder, ignore_errors=True)

    def discard(self) -> None:
        """Cancel the build. The anchors remain unfrozen."""
        self._cancelled = True
        self._thread.join()


def clean(path: Path) -> None:
    """Remove the files of builds that a crash interrupted."""
    shutil.rmtree(path / FOLDER, ignore_errors=True)
