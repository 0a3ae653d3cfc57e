"""Freezing: a generation of anchors becomes one sorted file a table, built beside the judge's work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, Protocol

from stream.errors import StateBusyError
from stream.failpoints import VARIABLE, reach
from stream.tables import freeze_child
from stream.tables.build import build_tables, table_file
from stream.tables.design import U64, Design
from stream.tables.rocks import Store, table_family

FOLDER: Final = "freeze"
CHILD_ANCHORS = 20_000
"""Generations from this size on are built by a child process. A thread would compete for the GIL for the 20 s
and more that a million anchors take; for small ones starting a process would take longer than building."""
ERRORS: Final = "errors"


class _Builder(Protocol):
    """Builds the files of one generation."""

    @property
    def done(self) -> bool:
        """Whether the files are ready, or building failed."""

    def wait(self) -> None:
        """Return when the files are ready. Raises what building raised."""

    def stop(self) -> None:
        """Give up; nothing is written any more afterwards."""


class _CancelledError(Exception):
    """Building was given up."""


class _Thread:
    """Builds in this process: at once, but sharing the GIL."""

    def __init__(
        self, store: Store, design: Design, generation: int, first: int, rows: U64, masks: U64 | None,
        folder: Path,
    ) -> None:  # fmt: skip
        self._error: BaseException | None = None
        self._cancelled = False

        def between() -> None:
            if self._cancelled:
                raise _CancelledError
            reach("freeze.build")

        def build() -> None:
            try:
                build_tables(
                    store.sst_writer, design, generation, first, rows, masks, folder,
                    between=between, pause=lambda: time.sleep(0),
                )  # fmt: skip
            except BaseException as error:  # raised in the thread that waits
                self._error = error

        self._thread = threading.Thread(target=build, name=f"freeze-{generation}", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._cancelled = True
        self._thread.join()


class _Child:
    """Builds in a process of low priority that ends when this one does."""

    def __init__(
        self, store: Store, design: Design, generation: int, first: int, rows: U64, masks: U64 | None,
        folder: Path,
    ) -> None:  # fmt: skip
        self._what = f"state directory {store.path}: freezing generation {generation}"
        self._errors = folder / ERRORS
        freeze_child.hand_over(folder, design, generation, first, rows, masks)
        environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        environment.pop(VARIABLE, None)
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", freeze_child.__name__, str(folder)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # Ctrl-C reaches us, and we stop it
            )
        reach("freeze.build")

    @property
    def done(self) -> bool:
        if self._process.poll() is not None:
            return True
        reach("freeze.build")
        return False

    def wait(self) -> None:
        status = self._process.wait()
        self._close()
        if status:
            said = self._errors.read_text(errors="replace").strip()
            raise StateBusyError(f"{self._what}: its process ended with {status}: {said[-2000:]}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101  # asked for above
        self._process.stdin.close()


class Freezing:
    """One generation on its way into RocksDB. Its content depends on its anchors alone."""

    def __init__(
        self, store: Store, design: Design, generation: int, first: int, rows: U64, masks: U64 | None
    ) -> None:
        self.generation: Final = generation
        self._store = store
        self._tables = design.tables
        parent = store.path / FOLDER
        parent.mkdir(exist_ok=True)
        # A folder of its own: the child of a process that crashed may live for a moment longer.
        self._folder = Path(tempfile.mkdtemp(prefix=f"{generation:05d}-", dir=parent))
        builder = _Thread if len(rows) < CHILD_ANCHORS else _Child
        self._builder: _Builder = builder(store, design, generation, first, rows, masks, self._folder)

    @property
    def built(self) -> bool:
        """Whether the files are ready (or building failed)."""
        return self._builder.done

    def finish(self) -> None:
        """Wait for the files and ingest them. Raises what building raised."""
        self._builder.wait()
        for table in range(self._tables):
            path = table_file(self._folder, table)
            if path.exists():
                reach("freeze.ingest")
                self._store.ingest(table_family(table), path)
        reach("freeze.meta")
        shutil.rmtree(self._folder, ignore_errors=True)

    def discard(self) -> None:
        """Stop building; the generation stays unfrozen."""
        self._builder.stop()


def clean(path: Path) -> None:
    """Remove files of freezes that a crash interrupted."""
    shutil.rmtree(path / FOLDER, ignore_errors=True)
