"""Removes old checkpoints from a store.

- The last `kept` checkpoints that each state directory uploaded stay; where a state was built again, these
  are not the ones that have come furthest.
- A directory is gone, and loses its own, if all that another one of its Kafka cluster has, and these are
  several, were made ABANDONED_SECONDS after its last one. One checkpoint says nothing: a new directory makes
  one though nothing comes, and after a long pause one role makes the first.
- A checkpoint with pages to erase goes SPARED_SECONDS after a later one of its kind and cluster from which
  more is erased, though nothing else may come.
- A role prunes the checkpoints of its own kind, and a judge those of directories that are gone as well.
- Whatever these say, the checkpoint of each kind and Kafka cluster that was verified last stays: the logs may
  have been trimmed because of it, and a mirror of the journal is trimmed by itself. Not so that of an elector
  of which all directories are gone, which would hold the logs for ever.

A file stays for SPARED_SECONDS after the last manifest that names it was pruned: whoever restores from it, or
verifies it, can end. It stays as long after it was uploaded, because a manifest may be about to name it. None
goes while there is a manifest that cannot be read. All times are of the store's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from stream.checkpoints.catalogue import Catalogue, Contents
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import PRUNED, CheckpointName, file_object
from stream.errors import DamagedCheckpointError
from stream.failpoints import reach

SPARED_SECONDS: Final = 86_400.0
ABANDONED_SECONDS: Final = 7 * 86_400.0


def prune(catalogue: Catalogue, journal: str, kind: str, kept: int) -> None:
    """Prune the checkpoints of a journal, as a role with checkpoints of this kind does, and remove files that
    nothing names any more. Raises CheckpointError."""
    contents = catalogue.contents(journal, timed=True)
    clusters = _clusters(catalogue, contents)
    gone = _gone(contents, clusters)
    spared = _last_verified(contents, clusters, gone)
    for name in _superfluous(contents, clusters, gone, kind, kept) - spared:
        catalogue.prune(name)
        contents.stored.pop(name, None)
        contents.verified.pop(name, None)
        contents.pruned[name] = contents.now
        reach("checkpoint.pruned")
    before = contents.now - SPARED_SECONDS
    old_names = [name for name, since in contents.pruned.items() if since < before]
    for name in old_names:
        del contents.pruned[name]
    catalogue.delete(name.object(PRUNED) for name in old_names)
    named, is_complete = named_files(catalogue, [*contents.kept, *contents.pruned])
    if is_complete:
        unnamed = contents.files.keys() - named
        there = catalogue.contents(journal).files if unnamed else {}  # another role may have stored it again
        old = [name for name in unnamed if name in there and there[name].modified < before]
        catalogue.delete(file_object(journal, digest) for digest in old)


Clusters = dict[CheckpointName, str]
"""The Kafka cluster of each checkpoint whose manifest can be read."""
Directory = tuple[str, str]
"""The kind of a state directory, and its id."""


def _clusters(catalogue: Catalogue, contents: Contents) -> Clusters:
    """Raises CheckpointError."""
    clusters = Clusters()
    for name in contents.kept:
        with suppress(DamagedCheckpointError):
            clusters[name] = catalogue.read_once(name).cluster
    return clusters


def _superfluous(
    contents: Contents, clusters: Clusters, gone: set[Directory], kind: str, kept: int
) -> set[CheckpointName]:
    """The checkpoints that a role of a kind may prune, but for those that were verified."""
    directories: dict[Directory, list[CheckpointName]] = defaultdict(list)
    for name in sorted(contents.kept, key=lambda name: (_uploaded(contents, name), name), reverse=True):
        directories[name.kind, name.directory].append(name)
    superfluous = set[CheckpointName]()
    for directory, names in directories.items():
        if directory in gone and kind in (JUDGE, directory[0]):
            superfluous.update(names)
        elif kind == directory[0]:
            superfluous.update(names[kept:])
    own = {name: _uploaded(contents, name) for name in contents.kept if name.kind == kind}
    for name, since in own.items():
        later = (
            each
            for each, uploaded in own.items()
            if clusters.get(name, clusters.get(each)) == clusters.get(each, "")
            and since < uploaded < contents.now - SPARED_SECONDS
        )
        if any(name.erased < each.erased for each in later):
            superfluous.add(name)
    return superfluous


def _gone(contents: Contents, clusters: Clusters) -> set[Directory]:
    """The directories that are gone."""
    times: dict[Directory, list[float]] = defaultdict(list)
    places: dict[Directory, str] = {}
    for name in contents.kept:
        times[name.kind, name.directory].append(_uploaded(contents, name))
        if name in clusters:
            places[name.kind, name.directory] = clusters[name]
    newest = {directory: max(uploads) for directory, uploads in times.items()}
    for name, since in contents.pruned.items():
        times[name.kind, name.directory].append(since)
    gone = set[Directory]()
    for directory, since in newest.items():
        others = (
            min(uploads)
            for other, uploads in times.items()
            if len(uploads) > 1 and places.get(directory, "") in ("", places.get(other))
        )
        if since < max(others, default=0.0) - ABANDONED_SECONDS:
            gone.add(directory)
    return gone


def _uploaded(contents: Contents, name: CheckpointName) -> float:
    """When a checkpoint was uploaded; 0 for one that was pruned while it was verified."""
    return contents.stored.get(name, 0.0)


def _last_verified(contents: Contents, clusters: Clusters, gone: set[Directory]) -> set[CheckpointName]:
    """Of each kind and Kafka cluster, the checkpoint that was verified last, without those that cannot be
    read, which replace no log, and electors that are gone."""
    here = {(name.kind, name.directory) for name in contents.stored} - gone
    kinds = {JUDGE, *(kind for kind, _ in here)}
    last: dict[tuple[str, str], CheckpointName] = {}
    for name in sorted(contents.verified, key=lambda name: (contents.verified[name], name)):
        if name.kind in kinds and name in clusters:
            last[name.kind, clusters[name]] = name
    return set(last.values())


def named_files(catalogue: Catalogue, names: Iterable[CheckpointName]) -> tuple[set[str], bool]:
    """Return the digests that these checkpoints name, and whether all of their manifests can be read. Raises
    CheckpointError."""
    named, is_complete = set[str](), True
    for name in names:
        try:
            named |= catalogue.read_once(name).digests
        except DamagedCheckpointError:
            is_complete = False
    return named, is_complete
