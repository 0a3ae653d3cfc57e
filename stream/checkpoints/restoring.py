"""Restores a state directory from a checkpoint, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import summary_of
from stream.checkpoints.known_damage import RESTORED
from stream.checkpoints.manifest import CheckpointFile, Manifest, file_object
from stream.durable import sync_directory
from stream.errors import DamagedCheckpointError, SettingsError, StateBusyError, StateError
from stream.failpoints import reach
from stream.private import private_directory
from stream.scratch import ScratchDirectory
from stream.stores.store import new_file

AT_ONCE: Final = 4
"""Files downloaded at the same time."""


def is_empty(directory: Path) -> bool:
    """Whether there is no state in a directory, and no other file."""
    return not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))


def restore(
    catalogue: Catalogue,
    manifest: Manifest,
    directory: Path,
    report: Callable[[int], None] = lambda _: None,
) -> None:
    """Restore a checkpoint into a directory that does not exist or is empty. `report` is called with the
    size of each file that was downloaded.

    Files are downloaded into a directory beside it, verified and synced before that takes its name. Raises
    DamagedCheckpointError if an object is missing or is not what was uploaded, StateBusyError if the
    directory was filled meanwhile, SettingsError for a mount point or symbolic link, CheckpointError, and
    OSError if it cannot be written.
    """
    private_directory(directory.parent)
    with ScratchDirectory("restore", directory.parent) as scratch:
        path = Path(scratch)
        _refuse_irreplaceable(directory, path / "trial")
        _download(catalogue, manifest, path, report)
        _refuse_other_state(manifest, path)
        with new_file(path / RESTORED) as file:
            file.write(str(manifest.name).encode())
        sync_directory(path)
        try:
            path.rename(directory)
        except OSError as error:
            if is_empty(directory):
                raise
            raise _filled(directory) from error
        sync_directory(directory.parent)
        reach("restore.renamed")


def _refuse_irreplaceable(directory: Path, trial: Path) -> None:
    """Raise SettingsError unless a directory can take the name of this one, or StateBusyError if it has
    files. `trial` is a path beside it."""
    there = os.path.lexists(directory)
    trial.mkdir(mode=0o700)
    try:
        trial.rename(directory)
    except OSError as error:
        if directory.is_dir() and not is_empty(directory):
            raise _filled(directory) from error
        raise SettingsError(
            f"state directory {directory}: no restored directory can take its place ({error.strerror}), as of"
            " a mount point or a symbolic link; mount a directory above it, or name the one that is meant"
        ) from error
    if not there:
        with suppress(OSError):  # filled meanwhile
            directory.rmdir()


def _filled(directory: Path) -> StateBusyError:
    return StateBusyError(f"state directory {directory}: another process has filled it")


def verify(catalogue: Catalogue, manifest: Manifest) -> None:
    """Download all files of a checkpoint, and compare their digests. Raises DamagedCheckpointError, which
    names the first file that is not what was uploaded, and CheckpointError."""
    with TemporaryDirectory(prefix="neardup-verify-") as scratch:
        path = Path(scratch, "file")
        for file in manifest.files:
            _download_file(catalogue, manifest, file, path)
            path.unlink()


def _download(catalogue: Catalogue, manifest: Manifest, into: Path, report: Callable[[int], None]) -> None:
    def download(file: CheckpointFile) -> None:
        _download_file(catalogue, manifest, file, into / file.name)
        report(file.size)
        reach("restore.file")

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="restore") as pool:
        # So that no large one is left when the others have ended.
        largest_first = sorted(manifest.files, key=lambda each: each.size, reverse=True)
        running = [pool.submit(download, file) for file in largest_first]
        try:
            for each in running:
                each.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _download_file(catalogue: Catalogue, manifest: Manifest, file: CheckpointFile, path: Path) -> None:
    name = file_object(manifest.journal, file.digest)
    try:
        digest = catalogue.download(name, path)
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"checkpoint {manifest.name}: {file.name}: {name} is missing") from error
    if path.stat().st_size != file.size or digest != file.digest:
        raise DamagedCheckpointError(
            f"checkpoint {manifest.name}: {file.name}: {name} is damaged: it is not what was uploaded;"
            " once it is deleted, the next checkpoint stores it again"
        )


def _refuse_other_state(manifest: Manifest, path: Path) -> None:
    """Raise DamagedCheckpointError unless the files are the state that the manifest says."""
    try:
        summary = summary_of(path, manifest.kind)
    except StateError as error:
        raise DamagedCheckpointError(f"checkpoint {manifest.name}: {error}") from error
    difference = "no metadata" if summary is None else manifest.difference(summary)
    if difference:
        raise DamagedCheckpointError(f"checkpoint {manifest.name}: its state has {difference}")
