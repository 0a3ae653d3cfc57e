"""The checkpoints that a store has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from stream.checkpoints.manifest import (
    MANIFEST_BYTES,
    PRUNED,
    STORED,
    VERIFIED,
    CheckpointFile,
    CheckpointName,
    Manifest,
    decode,
    encode,
    file_object,
    kind_of_earlier,
    manifest_in,
)
from stream.errors import CheckpointError, DamagedCheckpointError
from stream.stores.open import store_of
from stream.stores.store import Entry

MANIFESTS_BYTES: Final = 256 << 20
"""Size of the manifests of a journal at most. A trim holds them in memory."""
OBJECTS: Final = 1_000_000
"""Objects of a journal at most, and journals in a store. Their names are held in memory."""
_CLOCK: Final = "clock"
"""Object whose time is the time of the store."""


class Contents(NamedTuple):
    """What a store has of a journal. Times are in seconds since the epoch, by the clock of the store."""

    stored: dict[CheckpointName, float]
    """When each checkpoint was uploaded."""
    verified: dict[CheckpointName, float]
    """When each of these checkpoints was verified. Some are pruned meanwhile."""
    pruned: dict[CheckpointName, float]
    """When each of these checkpoints was pruned."""
    earlier: dict[str, str]
    """Manifests of earlier versions, which are not read, and the kind of each."""
    files: dict[str, Entry]
    """Files by their digests."""
    now: float
    """When the time was last asked for; 0 if it never was."""

    @property
    def kept(self) -> list[CheckpointName]:
        """All checkpoints that are not pruned, of each kind the newest first."""
        return sorted({*self.stored, *self.verified}, reverse=True)

    def lacking(self, manifest: Manifest) -> CheckpointFile | None:
        """A file of a checkpoint that is not stored with its size, if there is one."""
        for each in manifest.files:
            if each.digest not in self.files or self.files[each.digest].size != each.size:
                return each
        return None


class Known(NamedTuple):
    """What pruning asks of a manifest."""

    cluster: str
    """The Kafka cluster's id."""
    digests: frozenset[str]
    """Those of its files."""


class Catalogue:
    """The checkpoints in the store at `url`.

    Every method raises CheckpointError if the store fails, and so do those that list if it has more than
    MANIFESTS_BYTES or OBJECTS.
    """

    def __init__(self, url: str) -> None:
        """Raises SettingsError for a URL that names no store. Nothing is asked of the store."""
        self.url: Final = url
        self._store = store_of(url)
        self._known: dict[CheckpointName, Known] = {}

    def __str__(self) -> str:
        return str(self._store)

    def journals(self) -> list[str]:
        """The journals that have checkpoints."""
        journals: set[str] = set()
        with _translated_errors():
            for each in self._store.list():
                if manifest_in(each.name) or kind_of_earlier(each.name):
                    journals.add(each.name.partition("/")[0])
                    self._refuse_more("journals", len(journals), OBJECTS)
        return sorted(journals)

    def kept(self, journal: str, kind: str) -> list[CheckpointName]:
        """The checkpoints of a journal and kind, the newest first."""
        return [name for name in self.contents(journal).kept if name.kind == kind]

    def contents(self, journal: str, *, timed: bool = False) -> Contents:
        """All that the store has of a journal. With `timed`, the store is written to, to ask for its time."""
        parts: dict[str, dict[CheckpointName, float]] = {STORED: {}, VERIFIED: {}, PRUNED: {}}
        earlier, files, size, now = dict[str, str](), dict[str, Entry](), 0, 0.0
        with _translated_errors():
            if timed:
                self._store.put(f"{journal}/{_CLOCK}", b"")
            for number, each in enumerate(self._store.list(journal), 1):
                self._refuse_more(f"objects below {journal}", number, OBJECTS)
                if manifest := manifest_in(each.name):
                    part, name = manifest
                    parts[part][name] = each.modified
                    size += min(each.size, MANIFEST_BYTES)
                    self._refuse_more(f"bytes of manifests below {journal}", size, MANIFESTS_BYTES)
                elif each.name == file_object(journal, digest := each.name.rpartition("/")[2]):
                    files[digest] = each
                elif kind := kind_of_earlier(each.name):
                    earlier[each.name] = kind
                elif each.name == f"{journal}/{_CLOCK}":
                    now = each.modified
        if timed and not now:
            raise CheckpointError(f"checkpoints: {self}: does not list what was just stored")
        there = {name for part in parts.values() for name in part}
        self._known = {name: read for name, read in self._known.items() if name in there}
        return Contents(parts[STORED], parts[VERIFIED], parts[PRUNED], earlier, files, now)

    def _refuse_more(self, what: str, number: int, most: int) -> None:
        if number > most:
            raise CheckpointError(
                f"checkpoints: {self}: has more than {most} {what}, which no role leaves there; remove what"
                " else was put there"
            )

    def read(self, name: CheckpointName) -> Manifest:
        """The manifest of a checkpoint, pruned or not. Raises DamagedCheckpointError if there is none, or it
        cannot be used."""
        return decode(self._content(name, STORED, VERIFIED, PRUNED), name)

    def _content(self, name: CheckpointName, *parts: str) -> bytes:
        """What the manifest of a checkpoint has, of one that is too large some more than it may have."""
        for part in parts:
            with suppress(FileNotFoundError), _translated_errors(FileNotFoundError):
                return self._store.get(name.object(part), MANIFEST_BYTES + 1)
        raise DamagedCheckpointError(f"checkpoint {name}: its manifest is missing")

    def read_once(self, name: CheckpointName) -> Known:
        """What a checkpoint's manifest says of its place and files. Manifests are read once, as they do not
        change. Raises as `read` does."""
        if name not in self._known:
            manifest = self.read(name)
            self._known[name] = Known(manifest.cluster, frozenset(each.digest for each in manifest.files))
        return self._known[name]

    def add(self, manifest: Manifest, part: str = STORED) -> None:
        """Store the manifest of a checkpoint whose files are stored. In VERIFIED, it says that a trim has
        verified it."""
        content = encode(manifest)
        if len(content) > MANIFEST_BYTES:
            raise CheckpointError(
                f"checkpoint {manifest.name}: its manifest of {len(manifest.files)} files would have"
                f" {len(content)} bytes, {MANIFEST_BYTES} at most"
            )
        with _translated_errors():
            self._store.put(manifest.name.object(part), content)

    def prune(self, name: CheckpointName) -> None:
        """Move the manifest of a checkpoint to those that are pruned."""
        with suppress(DamagedCheckpointError):  # another was faster
            content = self._content(name, STORED, VERIFIED)
            with _translated_errors():
                self._store.put(name.object(PRUNED), content)
            self.delete([name.object(VERIFIED), name.object(STORED)])

    def is_verified(self, manifest: Manifest) -> bool:
        """Whether a trim has verified a checkpoint, with this very manifest."""
        with suppress(DamagedCheckpointError):
            return self._content(manifest.name, VERIFIED) == encode(manifest)
        return False

    def put_file(
        self, journal: str, digest: str, path: Path, turn: Callable[[], None] = lambda: None
    ) -> None:
        """Store a file that has this digest. `turn` is called often, and may raise. Raises OSError if the
        file cannot be read."""
        with _translated_errors(local=path):
            self._store.put(file_object(journal, digest), path, turn)

    def download(self, name: str, path: Path) -> str:
        """Copy an object to a new file, and return its digest. Raises FileNotFoundError if there is no such
        object, and OSError if the file cannot be written."""
        hashed = hashlib.sha256()
        with _translated_errors(FileNotFoundError, local=path):
            self._store.download(name, path, hashed.update)
        return hashed.hexdigest()

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects."""
        with _translated_errors():
            self._store.delete(names)


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
