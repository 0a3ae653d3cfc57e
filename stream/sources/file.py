"""The base of sources that read a single file: its size, and progress through it."""

from __future__ import annotations

from stream.errors import PageError
from stream.sources.compressed import CountingFile, is_read_once, open_counting
from stream.sources.source import Source
from stream.stores.objects import path_of


class FileSource(Source):
    """A source that is one file, a pipe, or standard input for `-`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._raw: CountingFile | None = None
        self.begun: CountingFile | None = None
        """A pipe that was opened to find its format, and is to be read."""

    @property
    def total_bytes(self) -> int | None:
        if is_read_once(self.name):
            return None
        try:
            return path_of(self.name).stat().st_size
        except OSError:  # reading it names the damage
            return None

    @property
    def bytes_read(self) -> int:
        return 0 if self._raw is None else self._raw.bytes_read

    def _opened(self) -> CountingFile:
        """Open the file, still compressed, and count the bytes read from now on. Raises PageError."""
        if self._raw is not None and is_read_once(self.name):
            raise PageError("damaged_source", f"{self.name}: can be read only once")
        self._raw, self.begun = self.begun or open_counting(self.name), None
        return self._raw
