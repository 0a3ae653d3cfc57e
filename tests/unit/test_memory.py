"""A worker or scan warns at start if its children could exceed the available memory."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream.children.memory import MemoryLimit, memory_limit, overcommitted
from stream.local.scan import scan
from stream.settings import Settings

MIB = 1 << 20


def machine(directory: Path, groups: str = "", **limits: str) -> Path:
    """A tree of /proc and /sys with 8 GiB of memory."""
    (directory / "proc/self").mkdir(parents=True)
    (directory / "proc/meminfo").write_text("MemTotal:        8388608 kB\nMemFree: 1 kB\n")
    (directory / "proc/self/cgroup").write_text(groups)
    for path, limit in limits.items():
        file = directory / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit + "\n")
    return directory


@pytest.mark.parametrize(
    ("groups", "limits", "mebibytes"),
    [
        ("", {}, 8192),
        ("0::/\n", {"memory.max": "max"}, 8192),
        ("0::/\n", {"memory.max": str(2048 * MIB)}, 2048),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": str(1024 * MIB)}, 1024),
        ("0::/a/b\n", {"a/b/memory.max": str(512 * MIB), "a/memory.max": str(1024 * MIB)}, 512),
        ("4:memory:/pod\n", {"memory/pod/memory.limit_in_bytes": str(3072 * MIB)}, 3072),
        # In a container the group's path is the host's, and what is mounted is the group.
        ("4:memory:/kubepods/x\n", {"memory/memory.limit_in_bytes": str(2048 * MIB)}, 2048),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 8192),
        ("3:cpu:/x\n", {}, 8192),
    ],
)
def test_the_least_of_machine_and_groups_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], mebibytes: int
) -> None:
    assert memory_limit(machine(tmp_path, groups, **limits)).size == mebibytes * MIB


def test_children_that_may_take_more_than_there_is_are_named_with_both_figures(tmp_path: Path) -> None:
    small = memory_limit(machine(tmp_path, "0::/\n", **{"memory.max": str(2048 * MIB)}))
    two = Settings(worker_processes=2, child_memory=2048 * MIB, worker_memory=128 * MIB)
    said = overcommitted(two, small, "worker_memory") or ""
    assert "child_memory 2048 MiB x worker_processes 2" in said
    assert "need 4480 MiB" in said
    assert "limit (memory.max) is 2048 MiB" in said
    assert "at most 832 MiB" in said
    assert overcommitted(two.model_copy(update={"child_memory": 832 * MIB}), small, "worker_memory") is None
    assert "fewer worker_processes" in (
        overcommitted(two.model_copy(update={"worker_processes": 9}), small, "worker_memory") or ""
    )


async def test_a_scan_says_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = MemoryLimit(2048 * MIB, "the limit")
    monkeypatch.setattr("stream.local.scan.memory_limit", lambda: small)
    settings = Settings(worker_processes=1, child_memory=1024 * MIB, tables_memory=1024 * MIB)
    for each, said in ((settings, True), (settings.model_copy(update={"tables_memory": 0}), False)):
        with capture_logs() as logs:
            async with aclosing(scan(each, [], tmp_path / f"{said}")) as chunks:
                assert [chunk async for chunk in chunks] == []
        assert [entry["event"] == "memory_overcommitted" for entry in logs] == [True] * said
        assert all("tables_memory 1024 MiB need 2304 MiB" in entry["error"] for entry in logs)
