"""Builds a run in the background of the judge: in a thread, or in a process of low priority."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from stream.children.confine import environment
from stream.errors import EXIT_DISK, DamagedStateError, StateBusyError
from stream.failpoints import reach
from stream.tables.runs import build_child
from stream.tables.runs.build import Built, Content, build, files_of
from stream.tables.store.failures import TranslatedErrors, disk_error
from stream.tables.store.rocks import RUNS, Store

FOLDER: Final = "freeze"
CHILD_ANCHORS = 100_000
"""Least size of runs that are built by a child process of low priority, since a thread would compete for the
GIL. For smaller runs, starting a process would take longer than building."""
ERRORS: Final = "errors"
NICE: Final = 15


class _CancelledError(Exception):
    """The build was cancelled."""


class Building:
    """The build of one run, from its content to RocksDB."""

    def __init__(self, store: Store, content: Content, memory: int, *, urgent: bool = False) -> None:
        """The filter takes at most `memory` bytes. What is `urgent` has the priority of this process."""
        self.run: Final = content.run
        self._store = store
        self._translated_errors = TranslatedErrors(store.path)
        parent = store.path / FOLDER
        with self._translated_errors:
            parent.mkdir(mode=0o700, exist_ok=True)
            # A unique folder, as the child of a process that crashed may still be writing to its own.
            name = f"{self.run.level}-{self.run.number:05d}-"
            self._folder = Path(tempfile.mkdtemp(prefix=name, dir=parent))
        self._child: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._built: Built | None = None
        self._error: BaseException | None = None
        arguments = content, memory, 0 if urgent else NICE
        self._thread = threading.Thread(target=self._build, args=arguments, name=f"build-{name}", daemon=True)
        self._thread.start()

    def _build(self, content: Content, memory: int, nice: int) -> None:
        try:
            if self.run.anchors >= CHILD_ANCHORS:
                self._built = self._build_by_child(content, memory, nice)
            else:
                self._built = build(
                    content, self._store, self._folder, memory, self._stop_if_cancelled, lambda: time.sleep(0)
                )
        except BaseException as error:  # raised again by finish()
            self._error = error.with_traceback(None)  # whose frames keep the store open

    def _stop_if_cancelled(self) -> None:
        if self._cancelled:
            raise _CancelledError
        reach("freeze.build")

    def _build_by_child(self, content: Content, memory: int, nice: int) -> Built:
        with (self._folder / build_child.INPUT).open("wb") as file:
            pickle.dump((content, memory, nice), file, protocol=5)
        errors = self._folder / ERRORS
        with errors.open("wb") as error_file, subprocess.Popen(
            [sys.executable, "-m", build_child.__name__, str(self._folder)],
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
            what = f"building the run of the anchors {self.run.first} to {self.run.end - 1}"
            output = errors.read_text(errors="replace").strip()[-2000:]
            if status == EXIT_DISK:
                raise disk_error(self._store.path, f"{what}: {output}")
            if status == DamagedStateError.exit_code:
                raise DamagedStateError(output)
            raise StateBusyError(
                f"state directory {self._store.path}: {what}: its process exited with {status}: {output}"
            )
        return Built(*json.loads((self._folder / build_child.OUTPUT).read_bytes()))

    @property
    def is_built(self) -> bool:
        """Whether the files are ready, or the build has failed."""
        return not self._thread.is_alive()

    def finish(self) -> Built:
        """Wait for the files and ingest them. Raises what the build raised."""
        self._thread.join()
        try:
            if self._built is None:
                with self._translated_errors:
                    raise self._error or _CancelledError
            reach("freeze.ingest")
            self._store.ingest(RUNS, files_of(self._folder))
            reach("freeze.meta")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._built

    def discard(self) -> None:
        """Cancel the build. The anchors stay where they are."""
        self._cancelled = True
        self._thread.join()


def clean(path: Path) -> None:
    """Remove the files of builds that a crash interrupted."""
    shutil.rmtree(path / FOLDER, ignore_errors=True)
