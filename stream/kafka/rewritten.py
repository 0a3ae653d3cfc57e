"""How far a dashboard has rewritten what it counted, so that nothing of it names forgotten pages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from stream.durable import replace_file

NAME: Final = "rewritten.json"
VERSION: Final = 1


class Rewritten(msgspec.Struct, kw_only=True):
    """What a dashboard notes in its directory."""

    version: int = VERSION
    journal: str
    decided: list[tuple[int, int]] = []
    """(requests, start): the requests before an offset of `requests` were decided at a journal offset, where
    the ones before it in this list were decided earlier."""
    partitions: dict[int, int] = {}
    """Partition of `verdicts` -> the offset of `requests` before which all were attended to."""
    begun: set[int] = set()
    """Partitions whose files may have earlier versions of rows that were rewritten: they are recovered from
    changelogs, or were being rewritten."""

    def write(self, directory: Path) -> None:
        """Replace the file in the directory of a dashboard. Raises OSError."""
        replace_file(directory / NAME, msgspec.json.encode(self))


def counted_partitions(directory: Path) -> set[int]:
    """The partitions of which a dashboard's directory has tables."""
    return {int(each.stem.rpartition("-")[2]) for each in (directory / "v1" / "tables").glob("*urls-*.db")}


def rewritten_in(directory: Path, journal: str) -> Rewritten:
    """What the dashboard of a directory has noted. Nothing, if it did not, if the file cannot be read, or if
    it is about another journal: then all is done again."""
    try:
        noted = _DECODER.decode((directory / NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        return Rewritten(journal=journal)
    return noted if (noted.version, noted.journal) == (VERSION, journal) else Rewritten(journal=journal)


_DECODER: Final = msgspec.json.Decoder(Rewritten)
