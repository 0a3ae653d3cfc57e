"""Removes old checkpoints from a store.

The last checkpoints that each state directory uploaded are kept; where a state was built again, these are not
the ones that have come furthest. A directory that made none for ABANDONED_SECONDS, while another one did, is
gone and loses its own. Of the checkpoints of a kind that a trim has verified, the one of each Kafka cluster
that was uploaded last is kept until a later one is verified: the logs may have been trimmed because of it,
and a mirror of the journal is trimmed by itself. Not so that of an elector of which all directories are gone,
which would hold the logs for ever. The one whose verification began last is kept for SPARED_SECONDS
as well, or a trim that verifies for longer than it takes to prune would never come to an end. Those before it
are not, because the logs are not trimmed beyond what is kept. A checkpoint with forgotten pages goes
SPARED_SECONDS after its directory made one from which they are erased, though nothing else may come: then
no further ones would replace it. That of another directory, which made none with them erased, goes
ABANDONED_SECONDS after ours. A file stays for SPARED_SECONDS after the last manifest that names it was
pruned, so that whoever restores from it can end, and as long after it was uploaded, because a manifest may be
about to name it. A clock that is ahead of the store's changes nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from stream.checkpoints.catalogue import Catalogue, Contents
from stream.checkpoints.digests import NOTHING
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import CheckpointName
from stream.errors import CheckpointError, DamagedCheckpointError
from stream.failpoints import reach

SPARED_SECONDS: Final = 86_400.0
ABANDONED_SECONDS: Final = 7 * 86_400.0


def prune(catalogue: Catalogue, added: CheckpointName, kept: int) -> None:
    """Prune the checkpoints of a journal, of which `added` is the newest of our directory, and remove files
    that nothing names any more. Raises CheckpointError."""
    catalogue.put_nothing(added)
    contents = catalogue.contents(added.journal)
    clock = [each.modified for each in contents.files if (each.home, each.digest) == (added.home, NOTHING)]
    if added not in contents.kept or not clock:
        raise CheckpointError(f"checkpoints: {catalogue}: does not list {added}, which was stored")
    now = min(time.time(), *clock)
    attempted = _attempted(catalogue, contents, now)
    spared = attempted | _last_verified(catalogue, contents, min(now, contents.kept[added]))
    for name in _superfluous(contents, added, kept, now, spared):
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
        if each.home not in unknown
        and each.modified < now - SPARED_SECONDS
        and each.digest not in named[each.home]
    ]
    marks = [name.mark_object for name in contents.marked - contents.kept.keys()]
    attempts = [name.attempt_object for name in contents.attempts.keys() - attempted]
    catalogue.delete([*unnamed, *marks, *attempts, *(name.pruned_object for name in forgotten)])


def _last_verified(catalogue: Catalogue, contents: Contents, added: float) -> set[CheckpointName]:
    """Of each kind and Kafka cluster, the verified checkpoint that was uploaded last; none of electors that
    made none for a week when ours was `added`. Raises CheckpointError."""
    uploaded: dict[str, float] = defaultdict(float)
    for name, since in contents.kept.items():
        uploaded[name.kind] = max(uploaded[name.kind], since)
    gone = {kind for kind, since in uploaded.items() if kind != JUDGE and since < added - ABANDONED_SECONDS}
    marked = [name for name in contents.marked & contents.kept.keys() if name.kind not in gone]
    return _last_of_each(catalogue, {name: contents.kept[name] for name in marked})


def _attempted(catalogue: Catalogue, contents: Contents, now: float) -> set[CheckpointName]:
    """Of each kind and Kafka cluster, the kept checkpoint that may be about to be verified, if there is one.
    Raises CheckpointError."""
    recent = {name: since for name, since in contents.attempts.items() if since >= now - SPARED_SECONDS}
    return _last_of_each(catalogue, recent) & contents.kept.keys() - contents.marked


def _last_of_each(catalogue: Catalogue, times: dict[CheckpointName, float]) -> set[CheckpointName]:
    """Of each kind and Kafka cluster, the last of some checkpoints, without those that cannot be read: they
    replace no log. Raises CheckpointError."""
    last: dict[tuple[str, str], CheckpointName] = {}
    for name in sorted(times, key=lambda name: (times[name], name)):
        with suppress(DamagedCheckpointError):
            last[name.kind, catalogue.read(name).cluster] = name
    return set(last.values())


def _superfluous(
    contents: Contents, added: CheckpointName, kept: int, now: float, spared: set[CheckpointName]
) -> list[CheckpointName]:
    """The checkpoints to prune. None of `spared` is among them."""

    def age(name: CheckpointName) -> tuple[bool, float, CheckpointName]:
        return name == added, contents.kept[name], name

    homes: dict[str, list[CheckpointName]] = defaultdict(list)
    for name in sorted(contents.kept, key=age, reverse=True):
        homes[name.home].append(name)

    def is_erased_since(name: CheckpointName, home: str, seconds: float) -> bool:
        """Whether a directory has a later checkpoint from which more is erased, for so long."""
        since, end = contents.kept[name], now - seconds
        return any(name.erased < each.erased and since < contents.kept[each] < end for each in homes[home])

    superfluous: set[CheckpointName] = set()
    for each, names in homes.items():
        abandoned = each != added.home and (
            contents.kept[names[0]] < min(now, contents.kept[added]) - ABANDONED_SECONDS
            or is_erased_since(names[0], added.home, ABANDONED_SECONDS)
        )
        superfluous.update(names[0 if abandoned else kept :])
        superfluous.update(name for name in names if is_erased_since(name, each, SPARED_SECONDS))
    return [name for name in contents.kept if name in superfluous and name not in spared]


def named_files(
    catalogue: Catalogue, names: Iterable[CheckpointName]
) -> tuple[dict[str, set[str]], set[str]]:
    """Return the digests that these checkpoints name, by their homes, and the homes of those whose
    manifests cannot be read. Raises CheckpointError."""
    named: dict[str, set[str]] = defaultdict(set)
    unknown: set[str] = set()
    for name in names:
        try:
            named[name.home] |= catalogue.digests(name)
        except DamagedCheckpointError:
            unknown.add(name.home)
    return named, unknown
