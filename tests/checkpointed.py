"""A small state with checkpoints, for tests without a broker."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import STORED, CheckpointName, Manifest
from stream.checkpoints.restoring import restore
from stream.checkpoints.uploads import Uploads, linked
from stream.judge.state.meta import Meta
from stream.tables.store.meta_record import META
from stream.tables.store.rocks import DEFAULT, LOG, URLS, Store
from tests.genesis import JOURNAL

OURS: Final = "cd" * 16
OTHERS: Final = "ef" * 16
"""Ids of state directories."""
ROWS: Final = 300


def cut(path: Path) -> None:
    """Spoil an object: its last byte is missing."""
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    """Spoil an object: a bit of it is another."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def open_store(directory: Path) -> Store:
    return Store(directory, 1 << 20)


def meta(applied: int, **fields: object) -> Meta:
    made = Meta(
        cluster="here",
        journal=JOURNAL,
        scheme="scheme",
        width=64,
        sketch_bytes=320,
        options="options",
        generation=1000,
        applied=applied,
        last=applied.to_bytes(16, "big"),
        decided=2 * applied,
        time=3 * applied,
    )
    return msgspec.structs.replace(made, **fields)


def write(store: Store, applied: int, **fields: object) -> None:
    """Write rows that follow from `applied`, and how far the state has come."""
    rng, batch = random.Random(applied), store.batch()
    for number in range(ROWS * applied, ROWS * (applied + 1)):
        batch.put(LOG, number.to_bytes(8, "big"), rng.randbytes(100))
        batch.put(URLS, rng.randbytes(16), number.to_bytes(9, "big"))
    batch.put(DEFAULT, META, msgspec.msgpack.encode(meta(applied, **fields)))
    store.write(batch)


class UploadProgress(NamedTuple):
    """Bytes that are left to upload, and that were uploaded since the last report."""

    remaining: int
    uploaded: int


def uploads_of(catalogue: Catalogue, instance: str = OURS, kept: int = 3) -> Uploads:
    return Uploads(catalogue, JUDGE, instance, kept)


def checkpoint(store: Store, uploads: Uploads) -> tuple[Manifest, list[UploadProgress]]:
    """Make a checkpoint, and return it with the progress of its upload."""
    progress: list[UploadProgress] = []

    def report(remaining: int, uploaded: int) -> None:
        progress.append(UploadProgress(remaining, uploaded))

    with linked(store, JUDGE) as state:
        assert state is not None
        return uploads.upload(state, report=report), progress


class Place:
    """Directories of states, and a store in `objects` that takes their checkpoints."""

    def __init__(self, path: Path) -> None:
        self.path, self.objects = path, path / "objects"
        self.judge, self.restored = path / "judge", path / "restored"
        self.catalogue = Catalogue(str(self.objects))

    def make(
        self, *applied: int, of: str = "judge", instance: str = OURS, kept: int = 3, **fields: object
    ) -> list[Manifest]:
        """Write rows to a state and make a checkpoint of it, one after the other."""
        made = []
        with open_store(self.path / of) as store:
            for each in applied:
                write(store, each, **fields)
                made.append(checkpoint(store, uploads_of(self.catalogue, instance, kept))[0])
        return made

    @property
    def kept(self) -> list[CheckpointName]:
        return self.catalogue.kept(JOURNAL, JUDGE)

    @property
    def files(self) -> dict[str, Path]:
        """Files in the store, by their digests."""
        return {each.name: each for each in (self.objects / JOURNAL / "files").iterdir()}

    def manifest(self, name: CheckpointName, part: str = STORED) -> Path:
        """The manifest of a checkpoint in the store."""
        return self.objects / name.object(part)

    @property
    def scratch(self) -> list[Path]:
        """What an upload or a restore has left."""
        return list(self.path.rglob("neardup-*"))


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def digest_of(directory: Path) -> str:
    with Store(directory, 1 << 20, read_only=True) as store:
        return store.digest()


def make_checkpoints(directory: Path, objects: Path | str) -> None:
    """Three, of which one is kept."""
    uploads = uploads_of(Catalogue(str(objects)), kept=1)
    with open_store(directory) as store:
        for applied in (1, 2, 3):
            write(store, applied)
            checkpoint(store, uploads)


def restore_newest(directory: Path, objects: Path | str) -> None:
    catalogue = Catalogue(str(objects))
    restore(catalogue, catalogue.read(catalogue.kept(JOURNAL, JUDGE)[0]), directory)
