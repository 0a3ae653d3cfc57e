"""Tuning of the Python runtime and the allocator."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from stream.ops.runtime_tuning import ARENAS, COLLECT_AFTER, SWITCH_SECONDS, batch_process_tuning
from tests.waiting import HANG_SECONDS

HEAPS_OF_THREADS = """
import ctypes, sys
from threading import Barrier, Thread
from stream.ops.runtime_tuning import batch_process_tuning

libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
libc.malloc_info.argtypes = ctypes.c_int, ctypes.c_void_p
libc.fclose.argtypes = libc.free.argtypes = [ctypes.c_void_p]
met = Barrier(8)

def allocate():
    met.wait()
    taken = [libc.malloc(5_000) for _ in range(100)]
    met.wait()
    for each in taken:
        libc.free(each)

with batch_process_tuning():
    threads = [Thread(target=allocate) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    out = libc.fopen(sys.argv[1].encode(), b"w")
    libc.malloc_info(0, out)
    libc.fclose(out)
"""


def _heaps(path: Path, environment: dict[str, str]) -> int:
    subprocess.run(
        [sys.executable, "-c", HEAPS_OF_THREADS, str(path)], check=True, env=environment, timeout=HANG_SECONDS
    )
    return path.read_text().count("<heap ")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heaps")
def test_threads_share_two_heaps_unless_the_environment_says_more(tmp_path: Path) -> None:
    asked = {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}
    plain = {name: value for name, value in os.environ.items() if name not in asked}
    assert _heaps(tmp_path / "ours", plain) == ARENAS
    assert _heaps(tmp_path / "theirs", {**plain, "MALLOC_ARENA_MAX": "6"}) == 6
    tuned = {**plain, "GLIBC_TUNABLES": "glibc.malloc.arena_max=5"}
    assert _heaps(tmp_path / "tuned", tuned) == 5


def test_python_is_as_before_afterwards() -> None:
    before = sys.getswitchinterval(), gc.get_threshold()
    with batch_process_tuning():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
        assert gc.get_threshold()[0] == COLLECT_AFTER
    assert (sys.getswitchinterval(), gc.get_threshold()) == before
