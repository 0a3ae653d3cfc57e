"""Dependencies of the image are locked, have known licences, and no vulnerabilities listed in an archive."""

from __future__ import annotations

import json
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from click.testing import CliRunner
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.version import Version

from deploy.supply_chain import SupplyChainError
from deploy.supply_chain.__main__ import DEVELOPMENT, IMAGE, supply_chain
from deploy.supply_chain.advisories import faults
from deploy.supply_chain.bill import bill_of_materials
from deploy.supply_chain.licences import is_allowed, licence_of
from deploy.supply_chain.lock import Package, read_lock

ROOT = Path(__file__).parents[2]
DIGEST = "0" * 64
BREAD = Package("bread", Version("2.5"), (DIGEST,), None)


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return bill_of_materials(package for package in read_lock(ROOT / IMAGE) if package.is_for_here)


def archive(tmp_path: Path, *records: dict[str, Any]) -> Path:
    path = tmp_path / "all.zip"
    with ZipFile(path, "w") as file:
        for number, record in enumerate(records):
            file.writestr(f"{number}.json", json.dumps({"id": f"X-{number}", **record}))
    return path


def advisory(name: str = "bread", ecosystem: str = "PyPI", **affected: Any) -> dict[str, Any]:
    return {"affected": [{"package": {"name": name, "ecosystem": ecosystem}, **affected}]}


def ranged(*events: dict[str, str]) -> dict[str, Any]:
    return advisory(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


@pytest.mark.parametrize("lock", sorted(ROOT.glob("**/requirements*.lock")), ids=lambda path: path.name)
def test_nothing_is_installed_but_what_a_lock_names_by_its_content(lock: Path) -> None:
    assert read_lock(lock)


@pytest.mark.parametrize(
    "line",
    [
        f"bread>=2 --hash=sha256:{DIGEST}",
        f"bread==2.* --hash=sha256:{DIGEST}",
        "bread==2.5",
        "bread==2.5 --hash=md5:0123",
        f"bread @ file:///bread.whl --hash=sha256:{DIGEST}",
        f"--prefer-binary bread==2.5 --hash=sha256:{DIGEST}",
        f"bread==2.5 --hash=sha256:{DIGEST} --config-settings=a=b",
        "-r other.lock",
    ],
)
def test_a_line_that_leaves_room_is_refused_by_name(tmp_path: Path, line: str) -> None:
    path = tmp_path / "some.lock"
    path.write_text(line)
    with pytest.raises(SupplyChainError, match=r"some\.lock: no "):
        read_lock(path)


def test_the_bill_is_cyclonedx_and_has_the_hashes_of_the_lock(bill: dict[str, Any]) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    found = {component["purl"]: component for component in bill["components"]}
    for package in read_lock(ROOT / IMAGE):
        if package.is_for_here:
            (distribution,) = found[f"pkg:pypi/{package.name}@{package.version}"]["externalReferences"]
            assert [entry["content"] for entry in distribution["hashes"]] == list(package.hashes)


def test_the_bill_needs_what_is_locked(bill: dict[str, Any]) -> None:
    with pytest.raises(SupplyChainError, match=r"click 1\.0 is locked, 8\S+ is installed"):
        bill_of_materials([Package("click", Version("1.0"), (DIGEST,), None)])


def test_the_bill_says_what_needs_what(bill: dict[str, Any]) -> None:
    needs = {entry["ref"].partition("@")[0]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert len(needs) == len(bill["components"]) + 1
    assert any(ref.startswith("pkg:pypi/rocksdict@") for ref in needs["pkg:pypi/neardup-stream"])
    assert [ref.partition("@")[0] for ref in needs["pkg:pypi/numba"]] == [
        "pkg:pypi/llvmlite",
        "pkg:pypi/numpy",
    ]


def test_every_licence_of_an_image_is_an_allowed_one(bill: dict[str, Any]) -> None:
    found = {component["name"]: component["licenses"][0]["expression"] for component in bill["components"]}
    assert [(name, licence) for name, licence in found.items() if not is_allowed(licence)] == []


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MIT AND (BSD-2-Clause OR AGPL-3.0-only)", True),
        ("MIT AND AGPL-3.0-only", False),
        ("Apache-2.0 WITH Classpath-exception-2.0", False),
    ],
)
def test_of_licences_each_must_be_allowed_and_of_alternatives_one(licence: str, allowed: bool) -> None:
    assert is_allowed(licence) is allowed


@pytest.mark.parametrize(
    "declared", ["License: see the file", "License: MIT, or so", "License-Expression: Mine", ""]
)
def test_a_package_of_unknown_licence_is_named(tmp_path: Path, declared: str) -> None:
    (tmp_path / "METADATA").write_text(f"Metadata-Version: 2.4\nName: bread\nVersion: 2.5\n{declared}\n")
    with pytest.raises(SupplyChainError, match=r"bread 2\.5 names no licence of SPDX's list"):
        licence_of(PathDistribution(tmp_path))


@pytest.mark.parametrize(
    ("record", "names_it"),
    [
        (advisory(versions=["2.4", "2.5.0"]), True),
        (advisory(name="Bread", versions=["2.5"]), True),
        (ranged({"introduced": "0"}), True),
        (ranged({"introduced": "0"}, {"fixed": "2.6"}), True),
        (ranged({"introduced": "2.5"}, {"last_affected": "2.5"}), True),
        (ranged({"introduced": "0"}, {"fixed": "1"}, {"introduced": "2"}, {"fixed": "3"}), True),
        (advisory(versions=["2.4"]), False),
        (advisory(name="butter", versions=["2.5"]), False),
        (advisory(ecosystem="npm", versions=["2.5"]), False),
        (ranged({"introduced": "0"}, {"fixed": "2.5"}), False),
        (ranged({"introduced": "2.6"}), False),
        (ranged({"introduced": "0"}, {"last_affected": "2.4"}), False),
        ({**ranged({"introduced": "0"}), "withdrawn": "2026-01-01T00:00:00Z"}, False),
        ({"affected": []}, False),
    ],
)
def test_a_locked_version_that_an_advisory_names_is_found(
    tmp_path: Path, record: dict[str, Any], names_it: bool
) -> None:
    found = [(each.package, each.advisory) for each in faults([BREAD], archive(tmp_path, record))]
    assert found == [(BREAD, "X-0")] * names_it


def test_an_audit_without_a_network_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    click = next(package for package in read_lock(ROOT / DEVELOPMENT) if package.name == "click")
    record = advisory(
        "click", ranges=[{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]
    )
    result = CliRunner().invoke(
        supply_chain, ["audit", str(archive(tmp_path, {**record, "summary": "breaks"}))]
    )
    assert result.exit_code == 1
    assert f"click {click.version}: X-0 breaks; mended in 99" in result.output


def test_an_archive_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    path = tmp_path / "all.zip"
    path.write_bytes(b"PK")
    result = CliRunner().invoke(supply_chain, ["audit", str(path)])
    assert result.exit_code == 1
    assert f"Error: {path}: no readable archive of OSV records" in result.output
