"""The packages that a lock file names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from deploy.supply_chain import SupplyChainError

HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)")


class Package(NamedTuple):
    """One package, of which an installation takes this version and no other content."""

    name: str
    """Normalised, as the index knows it."""
    version: Version
    hashes: tuple[str, ...]
    """SHA-256 of each file that may be installed, in hexadecimal."""
    marker: Marker | None
    """Where it is installed; None for everywhere."""

    @property
    def is_for_here(self) -> bool:
        """Whether an installation by this Python, on this platform, takes it."""
        return self.marker is None or self.marker.evaluate()


def read_lock(path: Path) -> list[Package]:
    """The packages of a lock file, in its order.

    Raises SupplyChainError for a line that is no exact version with hashes, but an option, a URL or a range.
    """
    lines = path.read_text("utf-8").replace("\\\n", " ").splitlines()
    entries = (line.partition("#")[0].strip() for line in lines)
    return [_package(path, entry) for entry in entries if entry]


def _package(path: Path, entry: str) -> Package:
    try:
        requirement = Requirement(entry.partition(" --hash")[0].strip())
        (specifier,) = requirement.specifier
        version = Version(specifier.version)
    except (InvalidRequirement, InvalidVersion, ValueError) as error:
        raise SupplyChainError(f"{path}: no exact version of a package: {entry[:80]}") from error
    if specifier.operator != "==" or requirement.url:
        raise SupplyChainError(f"{path}: no exact version of a package: {entry[:80]}")
    hashes = tuple(HASH.findall(entry))
    if not hashes or entry.count("--") != len(hashes):
        raise SupplyChainError(f"{path}: no hashes, or another option, at {requirement.name}")
    return Package(canonicalize_name(requirement.name), version, hashes, requirement.marker)
