"""The interface of fuzzed decoders, and the loop that feeds them."""

from __future__ import annotations

import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

MEMORY: Final = Path("/dev/shm")  # noqa: S108 (only where temporary directories are made)
"""Linux keeps its files in memory: opening one takes 20 us, and 1.5 ms on an overlay file system."""
MOST_FAULTS: Final = 5
"""After so many, a decoder is given up."""


class Decoder(ABC):
    """Generates inputs and checks results. Use it as a context manager."""

    name: ClassVar[str]
    bytes_alone: ClassVar[bool] = True
    """Whether any bytes are an input, and not only those that `make` arranges for `check`."""

    def __init__(self) -> None:
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    def directory(self) -> Path:
        """A temporary directory, removed when the decoder is left."""
        made = tempfile.TemporaryDirectory(prefix="neardup-fuzz-", dir=MEMORY if MEMORY.is_dir() else None)
        return Path(self.stack.enter_context(made))

    @abstractmethod
    def make(self, rng: random.Random) -> bytes:
        """An input; the same for the same state of `rng`."""

    @abstractmethod
    def check(self, data: bytes) -> str:
        """Decode an input. Returns the outcome in a word. Raises any fault: an error that is none of
        those which the decoder promises, or a result that does not hold what it promises."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An input that a decoder fails on."""

    number: int
    data: bytes
    error: str


@dataclass(slots=True)
class Outcome:
    """The results of a decoder on its inputs."""

    name: str
    seed: int
    inputs: int = 0
    seconds: float = 0.0
    came: Counter[str] = field(default_factory=Counter)
    """How often each came of an input."""
    faults: list[Fault] = field(default_factory=list)


def made(decoder: Decoder, seed: int, number: int) -> bytes:
    """The input with that number."""
    return decoder.make(random.Random(f"{seed}/{decoder.name}/{number}"))


def fuzz(
    decoder: Decoder,
    seed: int,
    inputs: int,
    seconds: float = float("inf"),
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Feed a decoder a number of inputs, or for a time if that ends first."""
    found = Outcome(decoder.name, seed)
    began = told = time.monotonic()
    while found.inputs < inputs and (found.seconds < seconds) and len(found.faults) < MOST_FAULTS:
        data = made(decoder, seed, found.inputs)
        try:
            found.came[decoder.check(data)] += 1
        except Exception as error:
            found.faults.append(Fault(found.inputs, data, f"{type(error).__name__}: {error}"))
        found.inputs += 1
        found.seconds = time.monotonic() - began
        if found.seconds > told - began + 5:
            told = time.monotonic()
            progress(found)
    return found
