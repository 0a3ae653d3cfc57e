"""Where the pages of each source are written, and what is refused before anything is read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import xxhash

from stream.dedup.copies import Header, header_of
from stream.durable import sync_directory
from stream.errors import OutputError, SettingsError
from stream.locks import try_lock
from stream.output import STDOUT, if_interrupted, writing
from stream.pages.compressing import compression_by_name
from stream.scratch import ScratchDirectory
from stream.sinks.report import refuse_other_report
from stream.sources.csv_rows import delimiter_of
from stream.sources.directory import DirectorySource
from stream.sources.jsonl import JsonlSource
from stream.sources.open import kind_by_name
from stream.sources.overlap import names_of, refuse_overlap
from stream.sources.source import Source
from stream.sources.table import CsvSource, ParquetSource
from stream.sources.warc import WarcSource
from stream.stores.objects import AnyPath, ObjectPath, is_url, path_of

_PARTS: Final = "parts"
"""File of a run with the path of the directory that has parts of its output."""
_KINDS: Final[dict[type[Source], str]] = {
    JsonlSource: "jsonl",
    CsvSource: "csv",
    ParquetSource: "parquet",
    WarcSource: "warc",
}


class Outputs:
    """What is written: a file, or a directory or prefix of a bucket with a file of each source."""

    def __init__(self, named: str, sources: Sequence[Source], index: Path | None = None) -> None:
        """Several sources have one file if its name tells their format.

        Raises SettingsError for an output that would not be what its name says, would change a source or the
        index, or is a directory that is not empty."""
        self.output = output = path_of(named)
        several = len(sources) > 1 or _is_shard(sources[0])
        is_tree = _is_tree(sources[0])
        self._is_directory = named.endswith("/") or is_tree or (several and kind_by_name(named) is None)
        self._is_new_tree = is_tree and len(sources) == 1
        refuse_overlap("output", output, [*names_of(sources), *_named(index)])
        if index:
            refuse_overlap("index", index, names_of(sources))
        if isinstance(output, Path):
            _refuse_unwritable(output, directory=self._is_directory)
        else:
            _refuse_trees(output, sources)
            _refuse_no_bucket("output", output)
        if self._is_directory:
            self.groups = [[each] for each in sources]
            self._names = {sources[0].name: ""} if self._is_new_tree else _names(sources)
        else:
            self.groups = [list(sources)]
            self._names = dict.fromkeys((each.name for each in sources), "")
            _refuse_other_formats(Path(output.name), sources)

    def refuse_others(self, directory: Path, run: str) -> None:
        """Raise SettingsError for a prefix that has objects which are not of this run, whose directory it
        is."""
        if isinstance(self.output, ObjectPath) and self._is_directory:
            _refuse_objects(self.output, _uploaded(directory, run))

    @contextmanager
    def writing(self, directory: Path, run: str, *, resumed: bool) -> Iterator[FilesOut | ObjectsOut]:
        """Yield the files or objects to write. A directory appears at the end, and objects one by one.

        `run` names what is written, and `directory` is its own. What of it a process has written that was
        killed is there, if it is `resumed`.
        """
        if not isinstance(self.output, Path):
            self.refuse_others(directory, run)
            yield ObjectsOut(self.output, self._names, directory, run)
            return
        if not self._is_directory:
            yield FilesOut(self.output, self._names)
            return
        target = self.output.resolve()  # an empty directory is replaced, and a link stays
        with ExitStack() as stack, if_interrupted(lambda: f"{self.output} is unchanged"):
            with self._translated_errors():
                parts = (
                    _kept_parts(target, directory, run)
                    if resumed
                    else ScratchDirectory("dedup", target.parent)
                )
                whole = Path(stack.enter_context(parts)) / "whole"
            if not self._is_new_tree:
                with self._translated_errors():
                    whole.mkdir(exist_ok=True)
            yield FilesOut(whole, self._names)
            with self._translated_errors():
                if whole.exists():
                    sync_directory(whole)
                    whole.replace(target)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self.output}: {error.strerror}") from error


@contextmanager
def _kept_parts(target: Path, directory: Path, run: str) -> Iterator[str]:
    """The directory of a run's files beside its output, which stays if the process is killed. What others
    left there that did not come to their ends is removed, as is what this run left beside another output.

    Raises SettingsError if another process writes to it, and OSError.
    """
    name = xxhash.xxh3_64_hexdigest(os.fsencode(target.name))
    parts, noted = target.with_name(f".neardup-{name}.parts"), directory / _PARTS
    if noted.exists() and (before := os.fsdecode(noted.read_bytes())) != str(parts):
        shutil.rmtree(before, ignore_errors=True)
    with writing(noted) as file:
        file.write(os.fsencode(parts))
    parts.mkdir(mode=0o700, exist_ok=True)
    held = os.open(parts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not try_lock(held):
            raise SettingsError(f"output {target}: another dedup writes it")
        for other in parts.iterdir():
            if other.name != run:
                shutil.rmtree(other)
        (parts / run).mkdir(exist_ok=True)
        _remove_partial(parts / run)
        yield str(parts / run)
        shutil.rmtree(parts, ignore_errors=True)
    finally:
        os.close(held)


def _remove_partial(directory: Path) -> None:
    """Remove files that a process which was killed was writing."""
    for left in directory.rglob(".neardup-*.part"):
        left.unlink()


def _uploaded(directory: Path, run: str) -> Path:
    """The file with the objects that a run has uploaded, which is there once it has begun to."""
    return directory / f"uploaded-{run}.jsonl"


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
        """Yield where to write the output of a source, or of several of which it is the first."""
        path = self._path(source)
        if not isinstance(source, DirectorySource):
            path.parent.mkdir(parents=True, exist_ok=True)
        elif path.exists() and self._names[source.name]:
            shutil.rmtree(path)  # some files of a tree
        yield path


class ObjectsOut:
    """Objects of a bucket, each written to a file first, and then uploaded whole."""

    def __init__(self, root: ObjectPath, names: dict[str, str], directory: Path, run: str) -> None:
        self._root, self._names, self._directory = root, names, directory
        self._uploaded = _uploaded(directory, run)
        self._uploaded.touch()
        _remove_partial(directory)
        self._sizes: dict[str, int] = {}
        for line in self._uploaded.read_bytes().splitlines():
            with suppress(msgspec.DecodeError, ValueError):  # a kill may have cut the last one
                name, size = msgspec.json.decode(line, type=tuple[str, int])
                self._sizes[name] = size

    def size(self, source: Source) -> int | None:
        """Bytes of the object of a source that was uploaded; None if it is to be made."""
        size = self._sizes.get(source.name)
        try:
            return size if size is not None and self._object(source).stat().st_size == size else None
        except OSError:
            return None

    @contextmanager
    def writing(self, source: Source) -> Iterator[Path]:
        """Yield where to write the output of a source, or of several of which it is the first, which is
        uploaded then if anything was written."""
        target = self._object(source)
        file = self._directory / f"copied{''.join(Path(target.name).suffixes)}"
        file.unlink(missing_ok=True)
        try:
            yield file
            if not file.exists():
                return
            size = file.stat().st_size
            target.write_file(file)
        except OSError as error:
            raise OutputError(f"{target}: {error.strerror}") from error
        finally:
            file.unlink(missing_ok=True)
        with self._uploaded.open("ab") as noted:
            noted.write(b"\n" + msgspec.json.encode((source.name, size)) + b"\n")

    def _object(self, source: Source) -> ObjectPath:
        name = self._names[source.name]
        return self._root / name if name else self._root


def refuse_report(
    report: AnyPath, output: AnyPath, sources: Sequence[Source], index: Path | None = None
) -> None:
    """Raise SettingsError for a file of dropped pages that cannot be, or would change a source, the index or
    the output."""
    refuse_overlap("dropped", report, [*names_of(sources), *_named(index), str(output)])
    refuse_other_report("dropped", report)
    if isinstance(report, ObjectPath):
        _refuse_no_bucket("dropped", report)
    elif str(report) != STDOUT:
        _refuse_missing_directory("dropped", report)
        if report.is_dir():
            raise SettingsError(f"dropped {report}: is a directory; name a file")


def _named(index: Path | None) -> list[str]:
    return [] if index is None else [str(index)]


def _is_tree(source: Source) -> bool:
    return isinstance(source, DirectorySource) and Path(source.name).is_dir()


def _is_shard(source: Source) -> bool:
    """Whether a directory or prefix was named, and the source is a file in it."""
    return source.argument != source.name


def _names(sources: Sequence[Source]) -> dict[str, str]:
    """The name of each source's output in a directory: that of the file, or of the directory that was named
    and the path in it; of a single directory the path alone. Raises SettingsError if two are the same."""
    arguments = {each.argument.rstrip("/") for each in sources}
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


def _refuse_trees(output: ObjectPath, sources: Sequence[Source]) -> None:
    for source in sources:
        if _is_tree(source):
            raise SettingsError(
                f"output {output}: files of {source.name} are copied to a directory; name one"
            )


def _refuse_no_bucket(option: str, path: ObjectPath) -> None:
    """Raise SettingsError for a bucket that cannot be reached."""
    try:
        next(path.iterdir(), None)
    except OSError as error:
        raise SettingsError(f"{option} {path}: {error.strerror}") from None


def _refuse_objects(output: ObjectPath, uploaded: Path) -> None:
    """Raise SettingsError for a prefix that has objects, unless a run has begun to upload them."""
    try:
        if not uploaded.exists() and output.exists():
            raise SettingsError(f"output {output}: is not empty; name a new prefix")
    except OSError as error:
        raise SettingsError(f"output {output}: {error.strerror}") from None


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


def _refuse_other_formats(output: Path, sources: Sequence[Source]) -> None:
    """Raise SettingsError for a file whose name says that it has another format than the sources, or for
    sources that do not fit in one file."""
    several = len(sources) > 1 or _is_shard(sources[0])
    otherwise = "; name a directory, with a / at the end" if several else ""
    named = kind_by_name(str(output))
    first: tuple[Header, Source] | None = None
    for source in sources:
        if isinstance(source, DirectorySource):
            suffix = Path(source.name).suffix
            if several or output.suffix != suffix:
                raise SettingsError(
                    f"output {output}: a page is copied as it is{otherwise or f'; name a file NAME{suffix}'}"
                )
            return
        kind = _KINDS.get(type(source))
        if kind and named not in (None, kind):
            raise SettingsError(
                f"output {output}: pages are written in the format of their source, and {source.name} is"
                f" {kind}{otherwise}"
            )
        if kind == "csv" and delimiter_of(source.name) != delimiter_of(str(output)):
            raise SettingsError(
                f"output {output}: rows are written as they are in {source.name}; .tsv has tabs, and .csv"
                " commas"
            )
        if kind == "parquet" and compression_by_name(output):
            raise SettingsError(f"output {output}: Parquet is compressed inside; name a file NAME.parquet")
        if several and (header := header_of(source)):
            first = first or (header, source)
            if header != first[0]:
                raise SettingsError(
                    f"output {output}: {source.name} has other columns than {first[1].name}{otherwise}"
                )
