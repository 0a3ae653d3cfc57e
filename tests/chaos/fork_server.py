"""A process that has imported the roles, and forks one whenever it is asked: a start costs half as much.

    python -m tests.chaos.fork_server

Reads a JSON map a line: `command`, `environment`, `log`. Answers with {"started": pid} in the order of the
questions, and with {"ended": pid, "code": ...} when one ends: its exit code, or minus the signal. What is
forked goes on as `neardup COMMAND` in a session of its own, and is killed when the fork server ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import sys
from typing import Any, Final

from tests.chaos.neardup import main as neardup

PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve until standard input ends."""
    import stream.cli.elector
    import stream.cli.judge
    import stream.cli.trim
    import stream.cli.worker
    import stream.roles.elector.role
    import stream.roles.judge.role
    import stream.roles.trimmer.role
    import stream.roles.worker.role  # noqa: F401

    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        waiting = b""
        while True:
            for key, _ in selector.select():
                found = os.read(key.fd, 1 << 16)
                if key.fd == wake:
                    _reap()
                elif not found:
                    return
                else:
                    *questions, waiting = (waiting + found).split(b"\n")
                    for question in questions:
                        _start(json.loads(question))


def _start(asked: dict[str, Any]) -> None:
    if pid := os.fork():
        _say(started=pid)
        return
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.environ.update(asked["environment"])
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 64)
        sys.argv = ["neardup", *asked["command"].split()]
        neardup()
        os._exit(0)
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else bool(end.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _say(ended=pid, code=os.waitstatus_to_exitcode(status))


def _say(**answer: int) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
