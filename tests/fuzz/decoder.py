"""The interface of fuzzed decoders, and the loop that feeds them."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, ClassVar, Final, Self

COVERED_INPUTS: Final = 1_000
"""Inputs that are run once more under a tracer, which is slow, to see which lines they reach."""
MEMORY: Final = Path("/dev/shm")  # noqa: S108 (only where temporary directories are made)
"""Linux keeps its files in memory: opening one takes 20 us, and 1.5 ms on an overlay file system."""
MOST_FAULTS: Final = 5
"""After so many, a decoder is given up."""


class Decoder(ABC):
    """Generates inputs and checks results. Use it as a context manager."""

    name: ClassVar[str]
    modules: ClassVar[Sequence[ModuleType]]
    """Whose lines are counted as covered or not."""
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
    lines: int = 0
    """Of the decoder's modules."""
    covered: int = 0
    """Of these, reached by the first COVERED_INPUTS inputs."""


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


def cover(decoder: Decoder, found: Outcome) -> None:
    """Record the lines of the decoder's modules that its first inputs reach."""
    lines = {(module.__file__, line) for module in decoder.modules for line in _lines(module)}
    files = {file for file, _ in lines}
    reached: set[tuple[str | None, int]] = set()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def trace(frame: FrameType, _event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        for number in range(min(found.inputs, COVERED_INPUTS)):
            try:
                decoder.check(made(decoder, found.seed, number))
            except Exception:  # noqa: S112 (a fault was told when it was met)
                continue
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
    found.lines, found.covered = len(lines), len(lines & reached)


def _lines(module: ModuleType) -> set[int]:
    """Lines of code within the functions of a module, as top-level code already runs at import."""
    found: set[int] = set()

    def walk(code: CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function, not a class body
                    found.update(
                        line for _, _, line in constant.co_lines() if line != constant.co_firstlineno and line
                    )
                walk(constant)

    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        walk(compile(file.read(), module.__file__, "exec"))
    return found
