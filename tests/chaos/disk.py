"""A small file system for one state directory, which can lose power, and run full.

Power loss is the kernel's own: ext4 on a loop device is shut down without its journal being written
(EXT4_IOC_SHUTDOWN), as xfstests does it. What was synced is there after the next mount, and nothing else has
to be. This needs root; elsewhere the state directory is a plain one, and these two faults are left out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import Final

SIZE: Final = 512 << 20
BLOCK: Final = 1024
COMMIT_SECONDS: Final = 300
"""How often ext4 writes its journal by itself: never, here."""
BUSY_SECONDS: Final = 60
"""How long killed processes may take to let go of a disk."""
_SHUTDOWN: Final = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125
"""_IOR('X', 125, __u32), from linux/ext4.h."""
_WITHOUT_LOG_FLUSH: Final = struct.pack("I", 2)
_BALLAST: Final = "ballast"


class Disk:
    """A directory `path`, on a file system of its own if the machine allows that."""

    def __init__(self, directory: Path, data: str = "ordered") -> None:
        """`data` is ext4's mode: `ordered` or `writeback`."""
        self.path = directory / "disk"
        self._image = directory / "disk.img"
        self._options = f"loop,commit={COMMIT_SECONDS},data={data}"
        self.path.mkdir(parents=True)
        self.own = _is_possible()
        """Whether it is a file system of its own."""
        if self.own:
            with self._image.open("wb") as image:
                image.truncate(SIZE)
            _run("mkfs.ext4", "-q", str(self._image))
            self._mount()

    def lose_power(self) -> None:
        """Lose everything that was not synced. No process may have a file of the disk open."""
        self.cut_power()
        self.restore_power()

    def cut_power(self) -> None:
        """Discard all further writes."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mount again, which replays ext4's journal."""
        _run("umount", str(self.path), patience=BUSY_SECONDS)
        self._mount()

    def sync(self) -> None:
        """Make everything written so far survive a power loss."""
        _run("sync", "--file-system", str(self.path))

    def fill(self) -> None:
        """Leave no block free."""
        descriptor = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size, step = os.fstat(descriptor).st_size, 32 << 20
            while step >= BLOCK:
                try:
                    os.posix_fallocate(descriptor, size, step)
                    size += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Free the blocks that `fill` took."""
        (self.path / _BALLAST).unlink(missing_ok=True)

    def remove(self) -> None:
        """Unmount and delete."""
        if self.own:
            subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def _mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", self._options, str(self._image), str(self.path))


def _is_possible() -> bool:
    return os.geteuid() == 0 and bool(shutil.which("mkfs.ext4")) and Path("/dev/loop-control").exists()


def _run(*command: str, patience: float = 0) -> None:
    """Run a command that must succeed; for `patience` seconds it may also fail."""
    ends = time.monotonic() + patience
    while (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        assert time.monotonic() < ends, f"{' '.join(command)}: {done.stderr.strip()}"
        time.sleep(0.1)
