"""A supervisor for a command that must not outlive the process that started it, even after `kill -9`.

    python embedded_guard.py PARENT_PID DIRECTORY_TO_REMOVE COMMAND...

Runs the command as a child and prints its process id. The child is killed when standard input ends, because
the parent closed it or died, or when the parent is no longer our parent. Then the directory, unless it is
empty (""), is removed. SIGTERM is forwarded, so that the child can stop gracefully. Standalone: imports no
other module of this project.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType

POLL_SECONDS = 0.25


def die_with_parent() -> None:
    """On Linux, have the child killed when the guard itself is (prctl PR_SET_PDEATHSIG)."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main(parent: int, remove: str, command: list[str]) -> int:
    """Run the command. Returns its exit code."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )

    def pass_on(_signal: int, _frame: FrameType | None) -> None:
        child.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    os.write(1, f"{child.pid}\n".encode())
    while child.poll() is None:
        readable, _, _ = select.select([0], [], [], POLL_SECONDS)
        if (readable and not os.read(0, 1)) or os.getppid() != parent:
            child.kill()
            child.wait()
            if remove:
                shutil.rmtree(remove, ignore_errors=True)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
