"""Removes old checkpoints from a store.

- The last `kept` checkpoints that each state directory uploaded stay; where a state was built again, these
  are not the ones that have come furthest.
- A directory that made none for ABANDONED_SECONDS, while another one did, is gone and loses its own.
- A checkpoint with forgotten pages goes SPARED_SECONDS after a later one of its kind from which more is
  erased, though nothing else may come.
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


def prune(catalogue: Catalogue, journal: str, kept: int) -> None:
    """Prune the checkpoints of a journal, and remove files that nothing names any more. Raises
    CheckpointError."""
    contents = catalogue.contents(journal, timed=True)
    spared = _last_verified(catalogue, contents)
    for name in _superfluous(contents, kept) - spared:
        catalogue.prune(name)
        contents.stored.pop(name, None)
        contents.verified.pop(name, None)
        contents.pruned[name] = contents.now
        reach("checkpoint.pruned")
    before = contents.now - SPARED_SECONDS
    forgotten = [name for name, since in contents.pruned.items() if since < before]
    for name in forgotten:
        del contents.pruned[name]
    catalogue.delete(name.object(PRUNED) for name in forgotten)
    named, is_complete = named_files(catalogue, [*contents.kept, *contents.pruned])
    if is_complete:
        old = [digest for digest, file in contents.files.items() if file.modified < before]
        catalogue.delete(file_object(journal, digest) for digest in old if digest not in named)


def _superfluous(contents: Contents, kept: int) -> set[CheckpointName]:
    """The checkpoints that may go, but for those that were verified."""
    directories: dict[tuple[str, str], list[CheckpointName]] = defaultdict(list)
    for name in sorted(contents.kept, key=lambda name: (_uploaded(contents, name), name), reverse=True):
        directories[name.kind, name.directory].append(name)
    gone = _gone(contents)
    superfluous = set[CheckpointName]()
    for directory, names in directories.items():
        superfluous.update(names[0 if directory in gone else kept :])
    for name, since in contents.stored.items():
        later = (
            each
            for each, uploaded in contents.stored.items()
            if each.kind == name.kind and since < uploaded < contents.now - SPARED_SECONDS
        )
        if any(name.erased < each.erased for each in later):
            superfluous.add(name)
    return superfluous


def _gone(contents: Contents) -> set[tuple[str, str]]:
    """The kinds and ids of directories that made no checkpoint for a week while another one did."""
    newest: dict[tuple[str, str], float] = defaultdict(float)
    for name in contents.kept:
        directory = name.kind, name.directory
        newest[directory] = max(newest[directory], _uploaded(contents, name))
    last = max(newest.values(), default=0.0)
    return {directory for directory, since in newest.items() if since < last - ABANDONED_SECONDS}


def _uploaded(contents: Contents, name: CheckpointName) -> float:
    """When a checkpoint was uploaded; 0 for one that was pruned while it was verified."""
    return contents.stored.get(name, 0.0)


def _last_verified(catalogue: Catalogue, contents: Contents) -> set[CheckpointName]:
    """Of each kind and Kafka cluster, the checkpoint that was verified last, without those that cannot be
    read, which replace no log, and electors that are gone. Raises CheckpointError."""
    here = {(name.kind, name.directory) for name in contents.stored} - _gone(contents)
    kinds = {JUDGE, *(kind for kind, _ in here)}
    last: dict[tuple[str, str], CheckpointName] = {}
    for name in sorted(contents.verified, key=lambda name: (contents.verified[name], name)):
        if name.kind in kinds:
            with suppress(DamagedCheckpointError):
                last[name.kind, catalogue.read(name).cluster] = name
    return set(last.values())


def named_files(catalogue: Catalogue, names: Iterable[CheckpointName]) -> tuple[set[str], bool]:
    """Return the digests that these checkpoints name, and whether all of their manifests can be read. Raises
    CheckpointError."""
    named, is_complete = set[str](), True
    for name in names:
        try:
            named |= catalogue.digests(name)
        except DamagedCheckpointError:
            is_complete = False
    return named, is_complete
