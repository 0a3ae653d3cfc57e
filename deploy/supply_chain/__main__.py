"""What an image is made of, under which licences, and what is known to be wrong with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from deploy.supply_chain.advisories import faults
from deploy.supply_chain.bill import bill_of_materials
from deploy.supply_chain.licences import is_allowed
from deploy.supply_chain.lock import read_lock

IMAGE: Final = Path("deploy/requirements.lock")
DEVELOPMENT: Final = Path("requirements.lock")
"""All of the image's packages, and those that only tests and tools need."""
BILL: Final = Path("build/sbom.cdx.json")


def _bill() -> dict[str, Any]:
    return bill_of_materials(package for package in read_lock(IMAGE) if package.is_for_here)


@click.group(help=__doc__)
def supply_chain() -> None:
    pass


@supply_chain.command()
@click.option("--output", type=click.Path(path_type=Path), default=BILL, show_default=True)
def sbom(output: Path) -> None:
    """Write the image's bill of materials (CycloneDX)."""
    bill = _bill()
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", "utf-8")
    click.echo(f"{output}: {len(bill['components'])} packages")


@supply_chain.command(name="licences")
def list_licences() -> None:
    """List what the image's packages may be used under; exit 1 where one is not allowed."""
    refused = 0
    for component in _bill()["components"]:
        licence = component["licenses"][0]["expression"]
        allowed = is_allowed(licence)
        refused += not allowed
        click.echo(
            f"{component['name']} {component['version']}: {licence}{'' if allowed else ' (NOT ALLOWED)'}"
        )
    sys.exit(bool(refused))


@supply_chain.command()
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def audit(archive: Path) -> None:
    """Check every locked package against an ARCHIVE of OSV records, without a network; exit 1 for finds."""
    packages = read_lock(DEVELOPMENT)
    found = list(faults(packages, archive))
    for fault in found:
        mended = f"; mended in {', '.join(fault.fixed)}" if fault.fixed else ""
        click.echo(f"{fault.package.name} {fault.package.version}: {fault.advisory} {fault.summary}{mended}")
    click.echo(f"{len(packages)} packages, {len(found)} finds")
    sys.exit(bool(found))


if __name__ == "__main__":
    supply_chain()
