"""The checkpoints that a store has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from stream.checkpoints.digests import NOTHING, new_hash
from stream.checkpoints.manifest import (
    MANIFEST_BYTES,
    CheckpointFile,
    CheckpointName,
    Manifest,
    checkpoint_of_attempt,
    checkpoint_of_mark,
    checkpoint_of_object,
    decode,
    encode,
    home_and_digest,
    kept_prefix,
)
from stream.errors import CheckpointError, DamagedCheckpointError
from stream.stores.open import store_of

KEPT: Final = 10_000
"""Kept checkpoints of a journal at most. A trim reads the manifests of all."""
KEPT_BYTES: Final = 256 << 20
"""Size of their manifests at most, as far as these are read. A trim holds them in memory."""
OBJECTS: Final = 1_000_000
"""Objects of a journal at most, and journals in a store. Their names are held in memory."""
_MARK_VERSION: Final = 1


class StoredFile(NamedTuple):
    """A file of checkpoints in a store."""

    name: str
    home: str
    """Of the checkpoints that it is of."""
    digest: str
    size: int
    modified: float
    """When it was uploaded, in seconds since the epoch."""


class Contents(NamedTuple):
    """What a store has of a journal."""

    kept: dict[CheckpointName, float]
    """When each checkpoint was uploaded, in seconds since the epoch."""
    pruned: dict[CheckpointName, float]
    """When each of these checkpoints was pruned."""
    marked: set[CheckpointName]
    """Checkpoints with a mark that they were verified, which may be pruned meanwhile."""
    attempts: dict[CheckpointName, float]
    """When the verification of each of these checkpoints last began."""
    files: list[StoredFile]

    def lacking(self, manifest: Manifest) -> CheckpointFile | None:
        """A file of a checkpoint that is not stored with its size, if there is one."""
        stored = {each.digest: each.size for each in self.files if each.home == manifest.name.home}
        return next((each for each in manifest.files if stored.get(each.digest) != each.size), None)


class Catalogue:
    """The checkpoints in the store at `url`.

    Every method raises CheckpointError if the store fails, and so do those that list if it has more than
    KEPT, KEPT_BYTES or OBJECTS.
    """

    def __init__(self, url: str) -> None:
        """Raises SettingsError for a URL that names no store. Nothing is asked of the store."""
        self.url: Final = url
        self._store = store_of(url)
        self._digests: dict[CheckpointName, frozenset[str]] = {}

    def __str__(self) -> str:
        return str(self._store)

    def journals(self) -> list[str]:
        """The journals that have checkpoints."""
        journals: set[str] = set()
        with _translated_errors():
            for each in self._store.list():
                if name := checkpoint_of_object(each.name):
                    journals.add(name.journal)
                    self._refuse_more("journals", len(journals), OBJECTS)
        return sorted(journals)

    def kinds(self, journal: str) -> list[str]:
        """The kinds of state that a journal has checkpoints of."""
        return sorted({name.kind for name in self.contents(journal).kept})

    def kept(self, journal: str, kind: str) -> list[CheckpointName]:
        """The checkpoints of a journal of one kind, first those that have come furthest in it."""
        names, size, prefix = [], 0, kept_prefix(journal, kind)
        with _translated_errors():
            for each in self._store.list(prefix):
                if name := checkpoint_of_object(each.name):
                    names.append(name)
                    size += min(each.size, MANIFEST_BYTES)
                    self._refuse_many(prefix, len(names), size)
        return sorted(names, reverse=True)

    def contents(self, journal: str) -> Contents:
        """All that the store has of a journal."""
        contents, size = Contents({}, {}, set(), {}, []), 0
        with _translated_errors():
            for number, each in enumerate(self._store.list(journal), 1):
                self._refuse_more(f"objects below {journal}", number, OBJECTS)
                if (name := checkpoint_of_object(each.name)) and each.name == name.object:
                    contents.kept[name] = each.modified
                    size += min(each.size, MANIFEST_BYTES)
                    self._refuse_many(journal, len(contents.kept), size)
                elif name:
                    contents.pruned[name] = each.modified
                elif name := checkpoint_of_mark(each.name):
                    contents.marked.add(name)
                elif name := checkpoint_of_attempt(each.name):
                    contents.attempts[name] = each.modified
                elif file := home_and_digest(each.name):
                    contents.files.append(StoredFile(each.name, *file, each.size, each.modified))
        return contents

    def _refuse_many(self, prefix: str, manifests: int, size: int) -> None:
        self._refuse_more(f"kept manifests below {prefix}", manifests, KEPT)
        self._refuse_more(f"bytes of kept manifests below {prefix}", size, KEPT_BYTES)

    def _refuse_more(self, what: str, number: int, most: int) -> None:
        if number > most:
            raise CheckpointError(
                f"checkpoints: {self}: has more than {most} {what}, which no judge leaves there; remove what"
                " else was put there"
            )

    def read(self, name: CheckpointName) -> Manifest:
        """The manifest of a checkpoint, pruned or not. Raises DamagedCheckpointError if there is none, or it
        cannot be used."""
        for each in (name.object, name.pruned_object):
            with suppress(FileNotFoundError), _translated_errors(FileNotFoundError):
                return decode(self._store.get(each, MANIFEST_BYTES + 1), name)
        raise DamagedCheckpointError(f"checkpoint {name}: its manifest is missing")

    def digests(self, name: CheckpointName) -> frozenset[str]:
        """The digests of a checkpoint's files. Manifests are read once, as they do not change. Raises as
        `read` does."""
        if name not in self._digests:
            self._digests[name] = frozenset(each.digest for each in self.read(name).files)
        return self._digests[name]

    def add(self, manifest: Manifest) -> Manifest:
        """Store the manifest of a checkpoint whose files are stored, and return it. One that is there stays,
        and is returned instead."""
        content = encode(manifest)
        if len(content) > MANIFEST_BYTES:
            raise CheckpointError(
                f"checkpoint {manifest.name}: its manifest of {len(manifest.files)} files would have"
                f" {len(content)} bytes, {MANIFEST_BYTES} at most"
            )
        if manifest.name in self.kept(manifest.journal, manifest.kind):
            return self.read(manifest.name)
        with _translated_errors():
            self._store.put(manifest.name.object, content)
        return manifest

    def prune(self, name: CheckpointName) -> None:
        """Move the manifest of a checkpoint from those that are kept to those that are pruned. Its mark goes
        first, so that none is left."""
        with suppress(FileNotFoundError), _translated_errors(FileNotFoundError):  # another was faster
            content = self._store.get(name.object, MANIFEST_BYTES + 1)  # one that is too large stays so
            self._store.put(name.pruned_object, content)
            self._store.delete([name.mark_object])
            self._store.delete([name.object])

    def is_marked(self, manifest: Manifest) -> bool:
        """Whether a checkpoint has a mark that it was verified, with this very manifest."""
        with suppress(FileNotFoundError), _translated_errors(FileNotFoundError):
            mark = _mark(manifest)
            return self._store.get(manifest.name.mark_object, len(mark) + 1) == mark
        return False

    def note_attempt(self, name: CheckpointName) -> None:
        """Say that the verification of a checkpoint begins, so that it is not pruned meanwhile."""
        with _translated_errors():
            self._store.put(name.attempt_object, b"")

    def mark(self, manifest: Manifest) -> None:
        """Mark a checkpoint as verified."""
        with _translated_errors():
            self._store.put(manifest.name.mark_object, _mark(manifest))

    def put_file(self, name: str, path: Path, turn: Callable[[], None] = lambda: None) -> None:
        """Store a file under this name. `turn` is called often, and may raise. Raises OSError if the file
        cannot be read."""
        with _translated_errors(local=path):
            self._store.put(name, path, turn=turn)

    def put_nothing(self, name: CheckpointName) -> None:
        """Store an empty file beside those of a checkpoint. Its time is the time of the store."""
        with _translated_errors():
            self._store.put(name.file(NOTHING), b"")

    def download(self, name: str, path: Path) -> str:
        """Copy an object to a new file, and return its digest. Raises FileNotFoundError if there is no such
        object, and OSError if the file cannot be written."""
        hashed = new_hash()
        with _translated_errors(FileNotFoundError, local=path):
            self._store.download(name, path, hashed.update)
        return hashed.hexdigest()

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects."""
        with _translated_errors():
            self._store.delete(names)


def _mark(manifest: Manifest) -> bytes:
    """The content of the mark: the digest of the manifest."""
    hashed = new_hash(encode(manifest))
    return msgspec.json.encode({"version": _MARK_VERSION, "manifest": hashed.hexdigest()}) + b"\n"


@contextmanager
def _translated_errors(*passed: type[OSError], local: Path | None = None) -> Iterator[None]:
    """Translate the errors of a store, but not these types, nor errors of a `local` file."""
    try:
        yield
    except OSError as error:
        ours = local is not None and str(error.filename) == str(local)
        if ours or isinstance(error, passed):
            raise
        raise CheckpointError(f"checkpoints: {error.filename}: {error.strerror}") from error
