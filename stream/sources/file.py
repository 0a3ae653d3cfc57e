"""The base of sources that read a single file: its size, and progress through it."""

from __future__ import annotations

from stream.objects import path_of
from stream.sources.compressed import STDIN, CountingFile, open_counting
from stream.sources.source import Source


class FileSource(Source):
    """A source that is one file, or standard input for `-`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._raw: CountingFile | None = None

    @property
    def total_bytes(self) -> int | None:
        if self.name == STDIN:
            return None
        try:
            return path_of(self.name).stat().st_size
        except OSError:  # reading it names the damage
            return None

    @property
    def bytes_read(self) -> int:
        return 0 if self._raw is None else self._raw.bytes_read

    def _opened(self) -> CountingFile:
        """Open the file, still compressed, and count the bytes read from now on."""
        self._raw = open_counting(self.name)
        return self._raw
