"""Refuses to write what is read: an output would replace its source, or be a source of the next run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from stream.errors import SettingsError
from stream.output import STDOUT
from stream.sources.compressed import STDIN
from stream.sources.source import Source
from stream.stores.objects import AnyPath, is_url


def refuse_overlap(option: str, written: AnyPath, names: Iterable[str]) -> None:
    """Raise SettingsError for a file, directory or prefix to be written that is one which is read, is in one,
    or has one in it."""
    if str(written) == STDOUT:
        return
    for name in names:
        if name != STDIN and _overlap(written, name):
            raise SettingsError(f"{option} {written}: would change {name}; name another place")


def names_of(sources: Sequence[Source]) -> Iterable[str]:
    """Names of sources, and of the directories and prefixes of which they are shards."""
    return dict.fromkeys(name for each in sources for name in (each.argument, each.name))


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _overlap(written: AnyPath, name: str) -> bool:
    """Whether a file, directory or prefix is the one of this name, is in it, or has it in it."""
    if not isinstance(written, Path) or is_url(name):
        one, other = f"{str(written).rstrip('/')}/", f"{name.rstrip('/')}/"
        return one.startswith(other) or other.startswith(one)
    read = Path(name)
    target, origin = written.resolve(), read.resolve()
    return _same(written, read) or origin in target.parents or target in origin.parents
