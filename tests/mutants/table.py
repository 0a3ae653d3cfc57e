"""The table of mutants, `mutants.toml`: faults that somebody could make, and the tests that fail then."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Final, Literal

import msgspec

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = Path(__file__).with_name("mutants.toml")


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault in one file."""

    name: str
    why: str
    file: str
    text: str
    """Stands in the file exactly once."""
    fault: str
    """Replaces the text."""
    tests: tuple[str, ...]
    """Files of tests, or single tests; one of them must fail."""
    tier: Literal["day", "night"]
    mend: str | None = None
    """The commit that mended this very fault."""

    def apply(self, root: Path) -> str:
        """The content of its file with the fault. Raises ValueError unless the text is there exactly once."""
        content = (root / self.file).read_text("utf-8")
        if (count := content.count(self.text)) != 1:
            raise ValueError(f"the text stands {count} times in {self.file}")
        return content.replace(self.text, self.fault)

    def key(self, root: Path) -> str:
        """Digest of all that its result depends on: itself, its file and its tests."""
        paths = sorted({self.file, *(each.partition("::")[0] for each in self.tests)})
        digests = [hashlib.sha256((root / each).read_bytes()).digest() for each in paths]
        return hashlib.sha256(b"".join([msgspec.json.encode(self), *digests])).hexdigest()


def read() -> list[Mutant]:
    """All mutants, in the order of the table."""
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8"))["mutant"], list[Mutant])
