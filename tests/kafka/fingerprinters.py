"""Fingerprinters for tests, named in a child's configuration by their dotted names."""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import math
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stream.children.child import COMPILER
from stream.dashboard.lookup.comparer import Comparer
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.page_rows.page_fingerprinter import PageFingerprinter, ReadPage
from stream.pages.outside.errors import FetchNeededError
from stream.pages.outside.outside import Outside
from stream.pages.page import Page

HOARD: list[bytearray] = []
SLOW_GATE = "TMPDIR"
"""An environment variable that children inherit."""
PTRACE_ATTACH = 16
LIMITS = ("RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_NPROC")


def spin(seconds: float) -> None:
    """Use `seconds` of processor time."""
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass


def timers() -> str:
    """Return JSON with the processor time and the time that are left to the current page, in seconds."""
    return json.dumps([signal.getitimer(each)[0] for each in (signal.ITIMER_PROF, signal.ITIMER_REAL)])


class Scripted:
    """Obeys commands in the page: `hang`, `alarm`, `spin`, `die`, `kill`, `hoard`, `slow N`, `look`, ...

    For other pages it returns a row.
    """

    def __init__(self, scheme: Scheme, seed: bytes) -> None:
        self._blank = bytes(scheme.sketch_bytes)

    def warm(self) -> None:
        """Do nothing, as there is nothing to load."""

    def message(self, value: bytes | None, page_bytes: int) -> Row:
        """Obey the commands, or return a row whose URL is the page itself."""
        text = (value or b"").decode()
        order, _, argument = text.partition(" ")
        _spend_time(order, argument)
        _end(order, argument)
        row = self._answer(order, argument)
        return row or Row(Status.READY, text, None, low=len(text), sketch=self._blank)

    def _answer(self, order: str, argument: str) -> Row | None:
        """The row of an order for another one than that of the page."""
        match order:
            case "timers":
                return Row(Status.READY, timers(), None, sketch=self._blank)
            case "look":
                return Row(Status.READY, _what_is_reachable(), None, sketch=self._blank)
            case "bad":
                return Row(Status.REJECTED, None, None, reason="malformed_json", detail="asked for")
            case "bad-until" if not os.path.exists(argument):
                return Row(Status.REJECTED, None, None, reason="unknown_schema", detail="asked for")
        return None


def _spend_time(order: str, argument: str) -> None:
    match order:
        case "hang":
            time.sleep(3600)
        case "spin":
            spin(math.inf)
        case "slow":
            time.sleep(float(argument.split()[0]))
        case "wait":
            while not os.path.exists(argument.split()[0]):
                time.sleep(0.005)
        case "noise":
            print("a library that prints")  # noqa: T201


def _end(order: str, argument: str) -> None:
    """End the process, or the work on the page."""
    match order:
        case "alarm" | "profile":  # as the timers of the clock and of the processor would
            signal.raise_signal(signal.SIGALRM if order == "alarm" else signal.SIGPROF)
        case "die":
            os._exit(3)
        case "kill":  # by the path of a file that is made: only once
            if not argument or not os.path.exists(argument):
                if argument:
                    open(argument, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        case "take-down":  # the whole worker, once the file is there that it may name
            while argument and not os.path.exists(argument):
                time.sleep(0.005)
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(3600)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hoard":
            while True:
                HOARD.append(bytearray(64 << 20))
        case "raise":
            raise ValueError("unexpected")


class Slow(Scripted):
    """Starts when the file `gate` appears in the directory that the environment variable names."""

    def warm(self) -> None:
        """Take long, as compiling does on a busy machine, and say so."""
        logging.getLogger(COMPILER).warning("compiling inner loops: 7 so far")
        while not os.path.exists(os.path.join(os.environ[SLOW_GATE], "gate")):
            time.sleep(0.005)


def _what_is_reachable() -> str:
    """Return JSON with this process's environment and open files, and the outcome of each attempt to escape
    its confinement."""
    ways: dict[str, Callable[[], object]] = {
        "socket": lambda: socket.create_connection(("127.0.0.1", 9)),
        "unix": lambda: socket.socket(socket.AF_UNIX),
        "exec": lambda: subprocess.run(["/bin/true"], check=True),
        "parents environment": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        "parents memory": lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
        "parents files": lambda: os.readlink(f"/proc/{os.getppid()}/fd/0"),
        "ptrace": lambda: _ptrace(os.getppid()),
    }
    found: dict[str, object] = {}
    for name, way in ways.items():
        try:
            way()
            found[name] = "open"
        except OSError as error:
            found[name] = errno.errorcode[error.errno or 0]
    variables = Path("/proc/self/environ").read_bytes().decode().split("\0")
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return json.dumps(
        found
        | {
            "environment": dict(each.split("=", 1) for each in variables if each),
            "files": {
                each.name: os.readlink(each) for each in os.scandir("/proc/self/fd") if os.path.lexists(each)
            },
            "no_new_privs": status["NoNewPrivs"].strip(),
            "limits": {name: resource.getrlimit(getattr(resource, name))[1] for name in LIMITS},
        }
    )


def _ptrace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")


class Unusable:
    """A fingerprinter that cannot be created, like one whose dictionary is missing."""

    def __init__(self, scheme: Scheme, seed: bytes) -> None:
        raise FileNotFoundError("dictionary")


class Stillborn:
    """Kills its process on creation."""

    def __init__(self, scheme: Scheme, seed: bytes) -> None:
        os._exit(9)


class Treacherous(PageFingerprinter):
    """The real fingerprinter, except for pages that hang or kill it while they are parsed or
    fingerprinted."""

    def read_page(self, page: Page) -> ReadPage | Row:
        """Read the page, unless it contains the command HANG, ALARM, TIMERS, DIE, or SPIN and a number of
        seconds."""
        text = page.text or ""
        if text == "TIMERS":
            return Row(Status.READY, timers(), None, sketch=bytes(self.scheme.sketch_bytes))
        if "ALARM" in text:
            signal.raise_signal(signal.SIGALRM)
        if "HANG" in text:
            time.sleep(3600)
        if text.startswith("SPIN"):
            spin(float(text.split()[1]))
        if "DIE" in text:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().read_page(page)

    def rows(self, pages: Sequence[ReadPage]) -> list[Row]:
        """Return the rows of pages, unless a page contains the command LATE."""
        if any("LATE" in page.text for page in pages):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().rows(pages)


class Stalling(PageFingerprinter):
    """The real one, except for pages that say `stall`, which wait for a store that hangs, until there is a
    `gate` in the directory that SLOW_GATE names."""

    def decode(self, value: bytes | None, page_bytes: int, outside: Outside | None = None) -> Page | Row:
        """Decode the page, once the store answers."""
        if b"stall" in (value or b"") and not os.path.exists(os.path.join(os.environ[SLOW_GATE], "gate")):
            raise FetchNeededError("archive at byte 7", lambda: time.sleep(3600))
        return super().decode(value, page_bytes, outside)


class HostileComparer(Comparer):
    """Dies, or fails, when it compares pages that ask for it."""

    def compare(self, anchor: bytes, page: bytes, page_bytes: int) -> bytes | Row:
        """Compare the pages, unless the anchor contains the command `memory` or `fail`."""
        if b"memory" in anchor:
            raise MemoryError
        if b"fail" in anchor:
            raise ValueError("on purpose")
        return super().compare(anchor, page, page_bytes)
