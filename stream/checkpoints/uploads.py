"""Uploads of checkpoints: what a state directory has at one moment, file by file, then a manifest.

A file that the store has already is not uploaded again, unless it may be removed before the manifest names
it. So an upload must end within UPLOAD_SECONDS, while a file without a manifest stays for the longer
`pruning.SPARED_SECONDS`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from stream.checkpoints.catalogue import Catalogue, Contents
from stream.checkpoints.digests import DigestCache
from stream.checkpoints.kinds import Summary, summary_of
from stream.checkpoints.manifest import CheckpointFile, Manifest, is_state_file
from stream.checkpoints.pruning import named_files, prune
from stream.errors import CheckpointError, DamagedCheckpointError
from stream.failpoints import reach
from stream.scratch import ScratchDirectory
from stream.tables.store.failures import TranslatedErrors
from stream.tables.store.rocks import Store

log = structlog.get_logger(__name__)

HASH_SHARE: Final = 0.1
"""Fraction of time for hashing, which is work of a processor alone. At a quarter, a judge had .78 of its
speed while everything was uploaded, on a machine of two processors."""
FILE_SHARE: Final = 0.25
"""Fraction of time for sending files, most of which is waiting for a disk or network."""
UPLOAD_SECONDS: Final = 12 * 3600.0
"""Time-out of an upload. The next one begins with what this one has stored."""


UPLOAD_NICE: Final = 5
"""Priority of the thread that uploads. At the lowest, 27 MB took six minutes on a machine that was busy."""


def yield_processors() -> None:
    """Let others have the processors before this thread, and disks whose scheduler knows priorities: most of
    an upload is hashing, at which it would compete with the judge."""
    with suppress(OSError):  # where threads have no priority of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), UPLOAD_NICE)


class LinkedState(NamedTuple):
    """The state of one moment, in a directory of hard links."""

    path: Path
    summary: Summary
    time: int
    """The moment, in milliseconds since the epoch."""


@contextmanager
def linked(store: Store, kind: str) -> Iterator[LinkedState | None]:
    """A directory with what a store has now, removed at the end; None if nothing was applied yet. `kind` is
    that of its state.

    The store must not be closed before the directory is there. Then it may be. Raises as `Store` does.
    """
    store.flush()  # creating a checkpoint flushes as well, but keeps the GIL
    with TranslatedErrors(store.path), ScratchDirectory("checkpoint", store.path.parent) as scratch:
        path, now = Path(scratch, "state"), time.time()
        store.checkpoint(path)
        reach("checkpoint.linked")
        summary = summary_of(path, kind)
        yield LinkedState(path, summary, int(now * 1000)) if summary and summary.is_begun else None


class Uploads:
    """Uploads the checkpoints of one state directory, one at a time."""

    def __init__(self, catalogue: Catalogue, kind: str, directory: str, kept: int) -> None:
        """`directory` is the random id of the state directory, `kept` the number of its checkpoints to
        keep."""
        self.catalogue: Final = catalogue
        self._kind, self._directory, self._kept = kind, directory, kept
        self._digests = DigestCache()

    def newest(self, journal: str) -> Manifest | None:
        """The newest checkpoint of this directory that can be read and has all of its files; None if it has
        none. Raises CheckpointError."""
        return self._newest(self.catalogue.contents(journal))

    def _newest(self, contents: Contents) -> Manifest | None:
        for name in contents.kept:
            if (name.kind, name.directory) == (self._kind, self._directory):
                with suppress(DamagedCheckpointError):
                    if contents.lacking(manifest := self.catalogue.read(name)) is None:
                        return manifest
        return None

    def upload(
        self,
        state: LinkedState,
        turn: Callable[[float], None] = lambda _: None,
        report: Callable[[int, int], None] = lambda *_: None,
        go_on: Callable[[], None] = lambda: None,
    ) -> Manifest:
        """Upload a state and prune older checkpoints. Returns the manifest that is stored: the newest one of
        this directory, if that has come as far.

        `turn` is called after pieces of work, with the fraction of time that such work should have beside a
        judge; it may sleep or raise. `go_on` is called while a file is on its way, and may raise. `report` is
        called with the bytes that are left to upload, and those uploaded since the last call.

        Raises CheckpointError, and OSError for a file that cannot be read. If pruning fails, that is logged.
        """
        deadline = time.monotonic() + UPLOAD_SECONDS
        contents = self.catalogue.contents(state.summary.journal, timed=True)
        newest = self._newest(contents)
        if newest is not None and newest.progress == state.summary.progress:
            return newest
        paths = sorted(each for each in state.path.iterdir() if is_state_file(each.name))
        digests = self._digests.digests(paths, lambda: turn(HASH_SHARE))
        files = [
            CheckpointFile(path.name, digest, path.stat().st_size)
            for path, digest in zip(paths, digests, strict=True)
        ]
        manifest = Manifest.of(state.summary, self._directory, state.time, files)
        lacking = self._lacking(manifest, contents)
        remaining = sum(each.size for each in lacking)
        report(remaining, 0)
        for each in lacking:
            turn(FILE_SHARE)
            _refuse_late(deadline, manifest)
            self.catalogue.put_file(manifest.journal, each.digest, state.path / each.name, go_on)
            remaining -= each.size
            report(remaining, each.size)
            reach("checkpoint.file")
        _refuse_late(deadline, manifest)
        self.catalogue.add(manifest)
        reach("checkpoint.manifest")
        self.prune(manifest.journal)
        return manifest

    def prune(self, journal: str) -> None:
        """Prune older checkpoints. If that fails, it is logged. Some go by time, though no other one is made
        after them."""
        try:
            prune(self.catalogue, journal, self._kind, self._kept)
        except CheckpointError as error:  # the checkpoint is there; the next one prunes
            log.warning("checkpoint_not_pruned", error=str(error))

    def _lacking(self, manifest: Manifest, contents: Contents) -> list[CheckpointFile]:
        """The files of a checkpoint that are not stored, or may be removed before the manifest is there, by
        what was stored when the upload began."""
        since = contents.now - UPLOAD_SECONDS
        lasting = [*contents.kept, *(name for name, pruned in contents.pruned.items() if pruned > since)]
        named, _ = named_files(self.catalogue, lasting)
        lacking = []
        for file in {each.digest: each for each in manifest.files}.values():
            there = contents.files.get(file.digest)
            lasts = there is not None and (there.modified > since or file.digest in named)
            if there is None or there.size != file.size or not lasts:
                lacking.append(file)
        return lacking


def _refuse_late(deadline: float, manifest: Manifest) -> None:
    """Raise CheckpointError after the deadline: others may remove files that were stored at the beginning."""
    if time.monotonic() > deadline:
        raise CheckpointError(
            f"checkpoint {manifest.name}: not uploaded within {UPLOAD_SECONDS / 3600:g} h; the next one goes"
            " on with what is stored"
        )
