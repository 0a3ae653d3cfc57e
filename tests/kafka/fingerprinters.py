"""Fingerprinters for tests, named in a child's configuration by their dotted names."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from stream.fingerprint.fingerprinter import Fingerprinter, ReadPage
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.outside.outside import Outside

HOARD: list[bytearray] = []


class Scripted:
    """Does what the page says: `hang`, `die`, `segfault`, `hoard`, `slow N`, `bad`, `noise`; else a row."""

    def __init__(self, scheme: Scheme) -> None:
        self._blank = bytes(scheme.sketch_bytes)

    def warm(self) -> None:
        """Has nothing to load."""

    def message(self, value: bytes | None, page_bytes: int) -> Row:
        """A row whose URL is the page itself."""
        text = (value or b"").decode()
        order, _, argument = text.partition(" ")
        match order:
            case "hang":
                time.sleep(3600)
            case "die":
                os._exit(3)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hoard":
                while True:
                    HOARD.append(bytearray(64 << 20))
            case "slow":
                time.sleep(float(argument.split()[0]))
            case "wait":
                while not os.path.exists(argument.split()[0]):
                    time.sleep(0.005)
            case "noise":
                print("a library that prints")  # noqa: T201
            case "bad":
                return Row(Status.REJECTED, None, None, None, reason="bad", detail="asked for")
            case "raise":
                raise ValueError("unexpected")
        return Row(Status.READY, text, text, None, low=len(text), sketch=self._blank)


class Unusable:
    """Cannot be made, like one whose dictionary is missing."""

    def __init__(self, scheme: Scheme) -> None:
        raise FileNotFoundError("dictionary")


class Stillborn:
    """Takes its process along when it is made."""

    def __init__(self, scheme: Scheme) -> None:
        os._exit(9)


class Treacherous(Fingerprinter):
    """The real one, except for pages that hang it or kill it, while they are read or when their text is
    fingerprinted."""

    def read(self, value: bytes | None, page_bytes: int, outside: Outside | None = None) -> ReadPage | Row:
        """What is read of the page, unless the page says HANG or DIE."""
        if value and b"HANG" in value:
            time.sleep(3600)
        if value and b"DIE" in value:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().read(value, page_bytes, outside)

    def rows(self, pages: Sequence[ReadPage]) -> list[Row]:
        """The pages' rows, unless a page says LATE."""
        if any("LATE" in page.text for page in pages):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().rows(pages)
