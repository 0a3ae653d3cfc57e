"""Removes old checkpoints from a store.

The newest checkpoints of each state directory are kept. A directory that made none for ABANDONED_SECONDS,
while another one did, is gone and loses its own. A file stays for SPARED_SECONDS after the last manifest that
names it was pruned, so that whoever restores from it can end, and as long after it was uploaded, because a
manifest may be about to name it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from stream.checkpoints.catalogue import Catalogue, Contents
from stream.checkpoints.manifest import CheckpointName
from stream.errors import DamagedCheckpointError
from stream.failpoints import reach

SPARED_SECONDS: Final = 86_400.0
ABANDONED_SECONDS: Final = 7 * 86_400.0


def prune(catalogue: Catalogue, journal: str, chain: str, kept: int) -> None:
    """Prune the checkpoints of a journal after one of the directory `chain` was uploaded, and remove files
    that nothing names any more. Raises CheckpointError."""
    contents, now = catalogue.contents(journal), time.time()
    for name in _superfluous(contents, chain, kept, now):
        catalogue.prune(name)
        del contents.kept[name]
        contents.pruned[name] = now
        reach("checkpoint.pruned")
    forgotten = [name for name, since in contents.pruned.items() if since < now - SPARED_SECONDS]
    for name in forgotten:
        del contents.pruned[name]
    named, unknown = named_files(catalogue, [*contents.kept, *contents.pruned])
    unnamed = [
        each.name
        for each in contents.files
        if each.chain not in unknown
        and each.modified < now - SPARED_SECONDS
        and each.digest not in named[each.chain]
    ]
    catalogue.delete([*unnamed, *(name.pruned_object for name in forgotten)])


def _superfluous(contents: Contents, chain: str, kept: int, now: float) -> list[CheckpointName]:
    """The checkpoints to prune, oldest first."""
    chains: dict[str, list[CheckpointName]] = defaultdict(list)
    for name in sorted(contents.kept, reverse=True):
        chains[name.chain].append(name)
    superfluous: list[CheckpointName] = []
    for each, names in chains.items():
        abandoned = each != chain and max(contents.kept[name] for name in names) < now - ABANDONED_SECONDS
        superfluous += names[0 if abandoned else kept :]
    return sorted(superfluous)


def named_files(
    catalogue: Catalogue, names: Iterable[CheckpointName]
) -> tuple[dict[str, set[str]], set[str]]:
    """Return the digests that these checkpoints name, by directory, and the directories of those whose
    manifests cannot be read. Raises CheckpointError."""
    named: dict[str, set[str]] = defaultdict(set)
    unknown: set[str] = set()
    for name in names:
        try:
            named[name.chain] |= catalogue.digests(name)
        except DamagedCheckpointError:
            unknown.add(name.chain)
    return named, unknown
