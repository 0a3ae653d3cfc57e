"""The files of segments in a prober's directory: downloaded, verified, and kept for its next start.

DIGEST              the file of a segment
DIGEST.tables/      its tables, as a RocksDB
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.digests import digest_of_file
from stream.durable import sync_directory
from stream.errors import DamagedCheckpointError, StateBusyError
from stream.judge.segments.answer import Segment
from stream.judge.segments.dead_file import decode_dead
from stream.locks import try_lock
from stream.messages.segments import SegmentRecord
from stream.private import private_directory

_TABLES: Final = ".tables"
_PARTIAL: Final = ".partial"
log = structlog.get_logger(__name__, role="prober")


class SegmentFiles:
    """A prober's directory, which is locked while this is entered."""

    def __init__(self, directory: Path, catalogue: Catalogue) -> None:
        self.directory, self._catalogue = directory, catalogue

    def __enter__(self) -> SegmentFiles:
        """Raises StateBusyError if another process has the directory."""
        private_directory(self.directory)
        self._lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not try_lock(self._lock):
            os.close(self._lock)
            raise StateBusyError(
                f"state directory {self.directory}: another prober uses it; give each one a state_dir"
            )
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._lock)

    def tables(self, segment: SegmentRecord) -> Path:
        """The directory of the tables of a segment."""
        return self.directory / f"{segment.digest}{_TABLES}"

    def fetch(self, segment: SegmentRecord, turn: Callable[[], None]) -> Path:
        """Return the file of a segment, which is downloaded if it is not there, and verified in any case.
        `turn` is called often, and may raise.

        One that is damaged is downloaded again, once. Raises DamagedCheckpointError if that is damaged, too,
        FileNotFoundError if the store does not have it, CheckpointError if the store fails, and OSError.
        """
        path = self.directory / segment.digest
        if path.exists():
            if digest_of_file(path, turn) == segment.digest:
                return path
            log.warning("segment_file_damaged", file=str(path))
            path.unlink()
        elif self._download(segment.object, segment.digest, path, turn):
            return path
        else:
            log.warning("segment_object_damaged", object=segment.object)
        turn()
        if not self._download(segment.object, segment.digest, path, turn):
            raise self._damage(segment, segment.object)
        return path

    def fetch_dead(self, segment: SegmentRecord, turn: Callable[[], None]) -> NDArray[np.int64]:
        """Return the dead anchors of a segment, ascending, without those that have expired. `turn` is called
        often, and may raise. Raises as `fetch` does, and SegmentFileError."""
        path = self.directory / f"{segment.dead}.dead"
        path.unlink(missing_ok=True)
        if not any(self._download(segment.dead_object, segment.dead, path, turn) for _ in range(2)):
            raise self._damage(segment, segment.dead_object)
        content = path.read_bytes()
        path.unlink()
        return decode_dead(content, segment.dead_object, segment.journal, Segment(segment.first, segment.end))

    def _damage(self, segment: SegmentRecord, name: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(
            f"{Segment(segment.first, segment.end)}: {name} in {self._catalogue} is damaged: it is not what"
            " was exported"
        )

    def _download(self, name: str, digest: str, path: Path, turn: Callable[[], None]) -> bool:
        """Download an object to a new file. Returns whether it has the digest; else there is no file."""
        partial = path.with_name(path.name + _PARTIAL)
        partial.unlink(missing_ok=True)
        if self._catalogue.download(name, partial, turn) != digest:
            partial.unlink()
            return False
        partial.rename(path)
        sync_directory(self.directory)
        return True

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove the files and tables of all other segments, and what a killed process left."""
        for each in list(self.directory.iterdir()):
            if each.name.removesuffix(_TABLES) in digests:
                continue
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                with suppress(FileNotFoundError):
                    each.unlink()
