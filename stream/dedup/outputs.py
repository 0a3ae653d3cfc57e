"""Where the pages of each source are written, and what is refused before anything is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stream.dedup.copies import compression_by_name
from stream.durable import sync_directory
from stream.errors import OutputError, SettingsError
from stream.objects import is_url
from stream.output import STDOUT, if_interrupted
from stream.scratch import ScratchDirectory
from stream.sources.compressed import STDIN
from stream.sources.csv_rows import delimiter_of
from stream.sources.directory import DirectorySource
from stream.sources.jsonl import JsonlSource
from stream.sources.open import kind_by_name
from stream.sources.source import Source
from stream.sources.table import CsvSource, ParquetSource
from stream.sources.warc import WarcSource

_KINDS: Final[dict[type[Source], str]] = {
    JsonlSource: "jsonl",
    CsvSource: "csv",
    ParquetSource: "parquet",
    WarcSource: "warc",
}


class Outputs:
    """The output of one source, or a directory with that of each."""

    def __init__(self, named: str, sources: Sequence[Source], index: Path | None = None) -> None:
        """Raises SettingsError for an output that would not be what its name says, would replace a source or
        the index, or is a directory that is not empty."""
        if is_url(named):
            raise SettingsError(f"output {named}: pages are not written to an object store; name a file")
        self.output = output = Path(named)
        _refuse_index("output", output, index)
        self._sources = sources
        self.is_directory = len(sources) > 1 or _is_tree(sources[0])
        _refuse_unwritable(output, directory=self.is_directory)
        if self.is_directory:
            self.names = _names(sources)
        else:
            self.names = {sources[0].name: ""}
            _refuse_other_format(output, sources[0])
        for source in sources:
            _refuse_overlap("output", output, source)

    @contextmanager
    def writing(self) -> Iterator[dict[str, Path]]:
        """Yield where to write the output of each source, by name. A directory appears at the end."""
        if not self.is_directory:
            yield {self._sources[0].name: self.output}
            return
        parent = self.output.resolve().parent
        try:
            scratch = ScratchDirectory("dedup", parent)
        except OSError as error:
            raise OutputError(f"{self.output}: {error.strerror}") from error
        with scratch as temporary, if_interrupted(lambda: f"{self.output} is unchanged"):
            whole = Path(temporary) / "whole"
            if len(self._sources) > 1:
                whole.mkdir()
            yield {name: whole / part if part else whole for name, part in self.names.items()}
            try:
                if whole.exists():
                    sync_directory(whole)
                    whole.replace(self.output.resolve())  # an empty directory is replaced, and a link stays
            except OSError as error:
                raise OutputError(f"{self.output}: {error.strerror}") from error


def refuse_report(report: Path, output: Path, sources: Sequence[Source], index: Path | None = None) -> None:
    """Raise SettingsError for a file of dropped pages that cannot be, or would replace a source, the index or
    the output."""
    if str(report) != STDOUT:
        if re.match(r"[a-z0-9]+:/", str(report)):  # a path has lost the second slash of a URL
            raise SettingsError(f"dropped {report}: is not written to an object store; name a file")
        _refuse_index("dropped", report, index)
        _refuse_missing_directory("dropped", report)
        if report.is_dir():
            raise SettingsError(f"dropped {report}: is a directory; name a file")
    for source in sources:
        _refuse_overlap("dropped", report, source)
    if str(report) != STDOUT and (_same(report, output) or output.absolute() in report.absolute().parents):
        raise SettingsError(f"dropped {report}: is the output, or in it; name another file")


def _refuse_index(option: str, path: Path, index: Path | None) -> None:
    """Raise SettingsError for a file to be written that is the index, in it, or a directory that has it."""
    if index is None:
        return
    target, other = path.resolve(), index.resolve()
    if _same(path, index) or other in target.parents or target in other.parents:
        raise SettingsError(
            f"{option} {path}: is the index {index}, in it, or has it in it; name another place"
        )


def _is_tree(source: Source) -> bool:
    return isinstance(source, DirectorySource) and Path(source.name).is_dir()


def _names(sources: Sequence[Source]) -> dict[str, str]:
    """The name of each source's output. Raises SettingsError if two are the same."""
    if len(sources) == 1:
        return {sources[0].name: ""}
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for source in sources:
        name = (
            Path(os.path.abspath(source.name)).name
            if not is_url(source.name)
            else source.name.rsplit("/")[-1]
        )
        if other := taken.get(name.casefold()):
            raise SettingsError(
                f"sources {other} and {source.name}: both would be {name} in the output; rename one of them,"
                " or run once for each with the same --index"
            )
        taken[name.casefold()] = source.name
        names[source.name] = name
    return names


def _refuse_unwritable(output: Path, *, directory: bool) -> None:
    if str(output) == STDOUT:
        raise SettingsError("output -: pages are written to a file or directory; name one")
    _refuse_missing_directory("output", output)
    if not directory:
        if output.is_dir():
            raise SettingsError(f"output {output}: is a directory; the output of one source is a file")
        return
    if output.is_dir():
        if any(output.iterdir()):
            raise SettingsError(f"output {output}: is not empty; name a new directory")
        if output.is_mount() or output.samefile("."):
            raise SettingsError(
                f"output {output}: is a mount point or the current directory, which cannot be replaced; name"
                " a new directory"
            )
    elif output.exists() or output.is_symlink():
        raise SettingsError(f"output {output}: is a file; name a new directory for the files of the sources")


def _refuse_missing_directory(option: str, path: Path) -> None:
    """Raise SettingsError now, not when all pages are judged."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise SettingsError(f"{option} {path}: no directory {parent}")
    if not os.access(parent, os.W_OK):
        raise SettingsError(f"{option} {path}: the directory {parent} cannot be written")


def _refuse_other_format(output: Path, source: Source) -> None:
    """Raise SettingsError for an output whose name says that it has another format than the source."""
    if isinstance(source, DirectorySource):
        suffix = Path(source.name).suffix
        if output.suffix != suffix:
            raise SettingsError(f"output {output}: a page is copied as it is; name a file NAME{suffix}")
        return
    kind, named = _KINDS.get(type(source)), kind_by_name(str(output))
    if kind and named not in (None, kind):
        raise SettingsError(
            f"output {output}: pages are written in the format of their source, and {source.name} is {kind}"
        )
    if kind == "csv" and delimiter_of(source.name) != delimiter_of(str(output)):
        raise SettingsError(
            f"output {output}: rows are written as they are in {source.name}; .tsv has tabs, and .csv commas"
        )
    if kind == "parquet" and compression_by_name(output):
        raise SettingsError(f"output {output}: Parquet is compressed inside; name a file NAME.parquet")


def _refuse_overlap(option: str, path: Path, source: Source) -> None:
    """Raise SettingsError for a file to be written that is a source or in it, or has it in it."""
    if source.name == STDIN or is_url(source.name) or str(path) == STDOUT:
        return
    read = Path(source.name)
    target, origin = path.resolve(), read.resolve()
    if _same(path, read) or origin in target.parents or target in origin.parents:
        raise SettingsError(f"{option} {path}: would change the source {source.name}; name another place")


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()
