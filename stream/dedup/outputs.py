"""Where the pages of each source are written, and what is refused before anything is read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import msgspec

from stream.dedup.copies import compression_by_name
from stream.durable import sync_directory
from stream.errors import OutputError, SettingsError
from stream.local.index import RUN
from stream.objects import AnyPath, ObjectPath, is_url, path_of
from stream.output import STDOUT, if_interrupted, writing
from stream.scratch import ScratchDirectory
from stream.sources.compressed import STDIN
from stream.sources.csv_rows import delimiter_of
from stream.sources.directory import DirectorySource
from stream.sources.jsonl import JsonlSource
from stream.sources.open import kind_by_name
from stream.sources.source import Source
from stream.sources.table import CsvSource, ParquetSource
from stream.sources.warc import WarcSource

UPLOADED: Final = "uploaded.jsonl"
"""File of a run with the objects that it has uploaded."""
_KINDS: Final[dict[type[Source], str]] = {
    JsonlSource: "jsonl",
    CsvSource: "csv",
    ParquetSource: "parquet",
    WarcSource: "warc",
}


class Outputs:
    """The output of one source, or a directory or prefix of a bucket with that of each."""

    def __init__(self, named: str, sources: Sequence[Source], index: Path | None = None) -> None:
        """Raises SettingsError for an output that would not be what its name says, would replace a source or
        the index, or is a directory or prefix that is not empty."""
        self.output = output = path_of(named)
        self._sources = sources
        self.is_directory = len(sources) > 1 or _is_tree(sources[0]) or _is_shard(sources[0])
        if isinstance(output, Path):
            _refuse_index("output", output, index)
            _refuse_unwritable(output, directory=self.is_directory)
            for source in sources:
                _refuse_overlap("output", output, source)
        else:
            _refuse_unwritable_objects(output, sources)
            begun = index is not None and (index / RUN / UPLOADED).exists()
            refuse_objects(output, new=self.is_directory and not begun)
        if self.is_directory:
            self.names = _names(sources)
        else:
            self.names = {sources[0].name: ""}
            _refuse_other_format(Path(output.name), sources[0])

    @contextmanager
    def writing(self, directory: Path, run: str, *, resumed: bool) -> Iterator[FilesOut | ObjectsOut]:
        """Yield the files or objects to write. A directory appears at the end, and objects one by one.

        `run` names what is written, and `directory` is its own. What of it a process has written that was
        killed is there, if it is `resumed`.
        """
        if not isinstance(self.output, Path):
            yield ObjectsOut(self.output, self.names, directory, run)
            return
        if not self.is_directory:
            yield FilesOut(self.output, self.names)
            return
        parent = self.output.resolve().parent
        with self._translated_errors():
            scratch = nullcontext(_kept_parts(parent, run)) if resumed else ScratchDirectory("dedup", parent)
        with scratch as temporary, if_interrupted(lambda: f"{self.output} is unchanged"):
            whole = Path(temporary) / "whole"
            if len(self._sources) > 1 or not _is_tree(self._sources[0]):
                with self._translated_errors():
                    whole.mkdir(exist_ok=True)
            yield FilesOut(whole, self.names)
            with self._translated_errors():
                if whole.exists():
                    sync_directory(whole)
                    whole.replace(self.output.resolve())  # an empty directory is replaced, and a link stays
                if resumed:
                    shutil.rmtree(temporary)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self.output}: {error.strerror}") from error


def _kept_parts(parent: Path, run: str) -> str:
    """Return the directory of a run's files beside its output, which stays if the process is killed."""
    parts = parent / f".neardup-{run}.parts"
    parts.mkdir(mode=0o700, exist_ok=True)
    return str(parts)


class FilesOut:
    """Files on this machine. Each appears whole."""

    def __init__(self, root: Path, names: dict[str, str]) -> None:
        self._root, self._names = root, names

    def _path(self, source: Source) -> Path:
        return self._root / self._names[source.name]

    def size(self, source: Source) -> int | None:
        """Bytes of the output of a source that was written whole; None if it is to be written."""
        path = self._path(source)
        return path.stat().st_size if self._names[source.name] and path.is_file() else None

    @contextmanager
    def writing(self, source: Source) -> Iterator[Path]:
        """Yield where to write the output of a source."""
        path = self._path(source)
        if not isinstance(source, DirectorySource):
            path.parent.mkdir(parents=True, exist_ok=True)
        elif path.exists() and self._names[source.name]:
            shutil.rmtree(path)  # some files of a tree
        yield path


class ObjectsOut:
    """Objects of a bucket, each written to a file first, and then uploaded whole."""

    def __init__(self, root: ObjectPath, names: dict[str, str], directory: Path, run: str) -> None:
        """Raises SettingsError for a prefix that has objects, none of which are of this run."""
        self._root, self._names, self._directory, self._run = root, names, directory, run
        self._uploaded = directory / UPLOADED
        lines = self._uploaded.read_text("utf-8").splitlines() if self._uploaded.exists() else []
        self._sizes = {name: size for of_run, name, size in map(msgspec.json.decode, lines) if of_run == run}
        if not self._sizes and len(names) > 1:
            refuse_objects(root)

    def size(self, source: Source) -> int | None:
        """Bytes of the object of a source that was uploaded; None if it is to be made."""
        size: int | None = self._sizes.get(source.name)
        try:
            return size if size is not None and self._object(source).stat().st_size == size else None
        except OSError:
            return None

    @contextmanager
    def writing(self, source: Source) -> Iterator[Path]:
        """Yield where to write the output of a source, which is uploaded then."""
        target = self._object(source)
        file = self._directory / f"copied{''.join(Path(target.name).suffixes)}"
        yield file
        try:
            size = file.stat().st_size
            target.write_file(file)
        except OSError as error:
            raise OutputError(f"{target}: {error.strerror}") from error
        finally:
            file.unlink(missing_ok=True)
        self._sizes[source.name] = size
        lines = [[self._run, name, size] for name, size in self._sizes.items()]
        with writing(self._uploaded) as output:
            output.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    def _object(self, source: Source) -> ObjectPath:
        name = self._names[source.name]
        return self._root / name if name else self._root


def refuse_report(
    report: Path, output: AnyPath, sources: Sequence[Source], index: Path | None = None
) -> None:
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
    if str(report) == STDOUT or not isinstance(output, Path):
        return
    if _same(report, output) or output.absolute() in report.absolute().parents:
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


def _is_shard(source: Source) -> bool:
    """Whether a directory or prefix was named, and the source is a file in it."""
    return source.argument != source.name


def _names(sources: Sequence[Source]) -> dict[str, str]:
    """The name of each source's output: that of the file, or of the directory that was named and the path in
    it; of a single directory the path alone. Raises SettingsError if two are the same."""
    arguments = {each.argument.rstrip("/") for each in sources}
    if len(sources) == 1 and not _is_shard(sources[0]):
        return {sources[0].name: ""}
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for source in sources:
        argument, within = source.argument.rstrip("/"), ""
        if is_url(argument):
            within = source.name[len(argument) + 1 :]
        else:
            if _is_shard(source):
                within = os.path.relpath(source.name, argument)
            argument = os.path.abspath(argument)
        folder = "" if within and len(arguments) == 1 else argument.rpartition("/")[2]
        name = "/".join(filter(None, (folder, within)))
        if other := taken.get(name.casefold()):
            raise SettingsError(
                f"sources {other} and {source.name}: both would be {name} in the output; rename one of them,"
                " or run once for each with the same --index"
            )
        taken[name.casefold()] = source.name
        names[source.name] = name
    return names


def _refuse_unwritable_objects(output: ObjectPath, sources: Sequence[Source]) -> None:
    """Raise SettingsError for objects that would be in a source or have it in them, or would be trees."""
    for source in sources:
        for one, other in ((str(output), source.argument), (source.argument, str(output))):
            if f"{one.rstrip('/')}/".startswith(f"{other.rstrip('/')}/"):
                raise SettingsError(
                    f"output {output}: would change the source {source.name}; name another place"
                )
        if _is_tree(source):
            raise SettingsError(
                f"output {output}: files of {source.name} are copied to a directory; name one"
            )


def refuse_objects(output: ObjectPath, *, new: bool = True) -> None:
    """Raise SettingsError for a bucket that cannot be reached, and, of a `new` output, for what is there."""
    try:
        next(output.iterdir(), None)  # raises without a bucket
        there = output.exists()
    except OSError as error:
        raise SettingsError(f"output {output}: {error.strerror}") from None
    if there and new:
        raise SettingsError(f"output {output}: is not empty; name a new prefix")


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
