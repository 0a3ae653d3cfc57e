"""Whole verification of a checkpoint, before logs are trimmed that it replaces.

That its files are what was uploaded is not enough: the state may have been damaged before. So it is restored
beside, all its blocks are read as a scrub reads them, and it is opened as its role would open it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import open_once
from stream.checkpoints.manifest import Manifest
from stream.checkpoints.restoring import restore
from stream.errors import DamagedCheckpointError, StateError
from stream.messages.journal import Genesis
from stream.private import private_directory
from stream.scratch import ScratchDirectory
from stream.tables.store.failures import CURE, disk_error, names_disk
from stream.tables.store.scrub_child import scrub


def verify_whole(
    catalogue: Catalogue,
    manifest: Manifest,
    genesis: Genesis,
    directory: Path,
    turn: Callable[[], None] = lambda: None,
) -> None:
    """Restore a checkpoint into a scratch directory below `directory`, read all its blocks, and open it.

    `turn` is called often, and may raise. Raises DamagedCheckpointError, which names the file if one is
    known, CheckpointError, DiskError, and OSError if the scratch directory cannot be written.
    """
    private_directory(directory)
    with ScratchDirectory("verify", directory) as scratch:
        path = Path(scratch, "state")

        def brief(what: object) -> str:
            return str(what).removeprefix(f"state directory {path}: ").removesuffix(f"; {CURE}")

        def damaged(what: object) -> DamagedCheckpointError:
            return DamagedCheckpointError(
                f"checkpoint {manifest.name}: was uploaded like this: {brief(what)}"
            )

        restore(catalogue, manifest, path, lambda _: turn())
        result = scrub(path, turn)
        if result.damage is not None:
            if names_disk(result.damage):  # of this machine: the file was whole when it was downloaded
                raise disk_error(directory, brief(result.damage))
            raise damaged(result.damage)
        try:
            open_once(path, manifest, genesis)
        except StateError as error:
            raise damaged(error) from error
