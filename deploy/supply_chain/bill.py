"""The bill of materials: the packages of a lock file with hashes and licences, as CycloneDX.

Source: CycloneDX 1.6 (ECMA-424).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from deploy.supply_chain import SupplyChainError
from deploy.supply_chain.licences import licence_of
from deploy.supply_chain.lock import Package

US: Final = "neardup-stream"


def bill_of_materials(packages: Iterable[Package]) -> dict[str, Any]:
    """The bill of `packages`, which must be installed here: their metadata has the licences.

    The same lock file gives the same bill. Raises SupplyChainError where another version is installed.
    """
    locked = {package.name: package for package in packages}
    ours = distribution(US)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(ours, "application")},
        "components": [_locked_component(package) for package in locked.values()],
        "dependencies": [
            {
                "ref": _purl(known),
                "dependsOn": sorted(_purl(distribution(name)) for name in _needs(known, locked)),
            }
            for known in (ours, *map(distribution, locked))
        ],
    }


def _locked_component(package: Package) -> dict[str, Any]:
    try:
        installed = distribution(package.name)
    except PackageNotFoundError:
        installed = None
    if installed is None or Version(installed.version) != package.version:
        found = installed.version if installed else "none"
        raise SupplyChainError(
            f"{package.name} {package.version} is locked, {found} is installed: make compiled"
        )
    # Of each file that may be installed, so of none in particular: hashes of the component itself would say
    # that it is one file.
    hashes = [{"alg": "SHA-256", "content": digest} for digest in package.hashes]
    files = {"type": "distribution", "url": _purl(installed), "hashes": hashes}
    return {**_component(installed, "library"), "externalReferences": [files]}


def _component(installed: Distribution, kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": _purl(installed),
        "name": installed.name,
        "version": installed.version,
        "description": installed.metadata.get("Summary", ""),
        "licenses": [{"expression": licence_of(installed)}],
        "purl": _purl(installed),
    }


def _needs(installed: Distribution, locked: dict[str, Package]) -> Iterator[str]:
    for line in installed.requires or ():
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name in locked and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            yield name


def _purl(installed: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(installed.name)}@{installed.version}"
