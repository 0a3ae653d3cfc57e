"""Known faults of locked packages, out of a file of advisories: no network is asked.

Source: the OSV schema 1.7, and the archive of all its records for one ecosystem (`all.zip`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile, ZipFile

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from deploy.supply_chain import SupplyChainError
from deploy.supply_chain.lock import Package

ECOSYSTEM: Final = "PyPI"


class Fault(NamedTuple):
    """A package and an advisory that its locked version falls under."""

    package: Package
    advisory: str
    summary: str
    fixed: tuple[str, ...]
    """Versions that mend it, where the advisory names any."""


def faults(packages: Iterable[Package], archive: Path) -> Iterator[Fault]:
    """What the advisories of an archive say of the packages. Withdrawn ones say nothing."""
    locked: dict[str, list[Package]] = {}
    for package in packages:
        locked.setdefault(package.name, []).append(package)
    for record in _records(archive):
        if "withdrawn" in record:
            continue
        for affected in record.get("affected", []):
            named = affected.get("package", {})
            if named.get("ecosystem") != ECOSYSTEM:
                continue
            for package in locked.get(canonicalize_name(named["name"]), []):
                if _falls_under(package.version, affected):
                    yield Fault(package, record["id"], record.get("summary", ""), _fixed(affected))


def _records(archive: Path) -> Iterator[dict[str, Any]]:
    try:
        with ZipFile(archive) as records:
            names = [name for name in records.namelist() if name.endswith(".json")]
            if not names:
                raise SupplyChainError(f"{archive}: no advisories in it")
            for name in names:
                yield json.loads(records.read(name))
    except (OSError, BadZipFile, ValueError) as error:
        raise SupplyChainError(f"{archive}: no readable archive of OSV records: {error}") from error


def _fixed(affected: dict[str, Any]) -> tuple[str, ...]:
    events = (event for ranged in affected.get("ranges", []) for event in ranged["events"])
    return tuple(event["fixed"] for event in events if "fixed" in event)


def _falls_under(version: Version, affected: dict[str, Any]) -> bool:
    if any(_version(named) == version for named in affected.get("versions", [])):
        return True
    ranges = (ranged for ranged in affected.get("ranges", []) if ranged.get("type") == "ECOSYSTEM")
    return any(_in_range(version, ranged["events"]) for ranged in ranges)


def _in_range(version: Version, events: list[dict[str, str]]) -> bool:
    """Whether a version lies behind an event that opens the range and before any that closes it."""
    inside = False
    for kind, at in sorted(
        ((kind, _version(at)) for event in events for kind, at in event.items()), key=_order
    ):
        if at is None or at > version:
            continue
        if kind == "introduced":
            inside = True
        elif kind == "fixed" or (kind == "last_affected" and at < version):
            inside = False
    return inside


def _order(event: tuple[str, Version | None]) -> tuple[Version, bool]:
    kind, at = event
    return at or Version("0"), kind == "introduced"


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None  # of packages that are older than the rules
