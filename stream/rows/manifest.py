"""The manifest of a directory of rows: its files with their sizes and digests. It is written last, so a
directory that has one is complete."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import xxhash

from stream.errors import OutputError, RowsError, SchemeMismatchError
from stream.fingerprint.scheme import BEHAVIOUR, Scheme
from stream.output import Output, writing
from stream.rows.arrow import VERSION, Place, options_of
from stream.stores.objects import AnyPath

NAME: Final = "_neardup_rows.json"
"""Spark and other readers of Parquet directories skip files that begin with an underscore."""
SUFFIX: Final = ".parquet"
_BLOCK: Final = 1 << 20


class RowsFile(msgspec.Struct, frozen=True):
    """A Parquet file, sorted by place."""

    name: str
    rows: int
    bytes: int
    digest: str
    """xxh3-128 of its content."""
    first: Place
    last: Place


class DamagedSource(msgspec.Struct, frozen=True):
    """A source of which not all could be read."""

    source: str
    places: int
    """In how many places."""
    damages: list[tuple[str, int]]
    """The first of them: the error, and the pages of the source that were read before it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory of rows consists of."""

    version: int = VERSION
    scheme_id: str
    scheme: dict[str, Any]
    """Options of the scheme, without paths; with the digest of the seed."""
    behaviour: dict[str, int]
    rows: int
    files: list[RowsFile]
    damaged: list[DamagedSource] = []
    """Sources whose pages behind the damage are no rows."""
    digest: str = ""
    """xxh3-128 of this manifest without its digest: the identity of the rows."""

    @classmethod
    def of(
        cls,
        scheme: Scheme,
        files: Sequence[RowsFile],
        *,
        damaged: Sequence[DamagedSource] = (),
    ) -> Manifest:
        """The manifest of these files, in the order of their first rows."""
        listed = sorted(files, key=lambda each: (each.first, each.name))
        manifest = cls(
            scheme_id=scheme.id,
            scheme=options_of(scheme),
            behaviour=BEHAVIOUR,
            rows=sum(each.rows for each in files),
            files=listed,
            damaged=list(damaged),
        )
        return msgspec.structs.replace(manifest, digest=manifest.own_digest())

    def own_digest(self) -> str:
        """32 hex digits: what `digest` has to be."""
        blank = msgspec.structs.replace(self, digest="")
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(blank._fields(), order="sorted"))

    def _fields(self) -> dict[str, Any]:
        """What is written: `damaged` only if there are any, so that digests of older manifests hold."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        if not self.damaged:
            del fields["damaged"]
        return fields

    def write(self, directory: AnyPath) -> None:
        """Write the manifest, after all files are durable."""
        with writing_to(directory / NAME) as file:
            file.write(msgspec.json.format(msgspec.json.encode(self._fields()), indent=1) + b"\n")

    def refuse_other_scheme(self, where: str, scheme: Scheme) -> None:
        """Raise SchemeMismatchError, which names the options that differ, for rows of another scheme."""
        if self.scheme_id == scheme.id:
            return
        here = options_of(scheme)
        differ = [
            f"{name}={self.scheme.get(name)} (not {here.get(name)})"
            for name in dict.fromkeys([*here, *self.scheme])
            if here.get(name) != self.scheme.get(name)
        ]
        differ += [
            f"{name} version {self.behaviour.get(name)} (not {BEHAVIOUR.get(name)})"
            for name in dict.fromkeys([*BEHAVIOUR, *self.behaviour])
            if BEHAVIOUR.get(name) != self.behaviour.get(name)
        ]
        why = ", ".join(differ) or "another version of Unicode"
        if here.get("seed_digest") != self.scheme.get("seed_digest"):
            why += "; they need the same seed: `neardup topics seed` writes a journal's to a file"
        raise SchemeMismatchError(f"rows {where} have scheme {self.scheme_id}, not {scheme.id}: {why}")


def read_manifest(directory: AnyPath) -> Manifest:
    """The manifest of a directory whose files are all there, of the right sizes, and no others.

    Raises RowsError, which names the file.
    """
    manifest = manifest_alone(directory)
    names = {each.name for each in manifest.files}
    for each in manifest.files:
        path = directory / each.name
        if not path.is_file():
            raise RowsError(f"rows {path}: missing; {NAME} lists it")
        if (size := path.stat().st_size) != each.bytes:
            raise RowsError(f"rows {path}: damaged, has {size} bytes, {NAME} says {each.bytes}")
    for path in visible(directory):
        if path.name not in names:
            raise RowsError(f"rows {path}: not a file of these rows, {NAME} does not list it")
    return manifest


def manifest_alone(directory: AnyPath) -> Manifest:
    """The manifest of a directory, whatever files are there. Raises RowsError."""
    path = directory / NAME
    try:
        fields = msgspec.json.decode(path.read_bytes(), type=dict)
        if fields.get("version") != VERSION:
            raise RowsError(
                f"rows {path}: format version {fields.get('version')}, this program reads {VERSION}"
            )
        manifest = msgspec.convert(fields, Manifest)
    except FileNotFoundError:
        if not directory.is_dir():
            missing = "no such directory" if isinstance(directory, Path) else "no such bucket, or empty"
            raise RowsError(f"rows {directory}: {missing}") from None
        raise RowsError(
            f"rows {directory}: no {NAME}, so they are not complete: run the command that makes them again"
        ) from None
    except OSError as error:
        raise RowsError(f"rows {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RowsError(f"rows {path}: damaged: {error}") from error
    if manifest.digest != manifest.own_digest():
        raise RowsError(f"rows {path}: damaged, its digest differs")
    for each in manifest.files:
        if Path(each.name).name != each.name:
            raise RowsError(f"rows {path}: damaged, lists the file {each.name!r}")
    return manifest


def visible(directory: AnyPath) -> Sequence[AnyPath]:
    """The files of a directory that readers of Parquet directories see, in order."""
    return sorted(
        (path for path in directory.iterdir() if not path.name.startswith(("_", "."))),
        key=lambda path: path.name,
    )


@contextmanager
def writing_to(path: AnyPath) -> Iterator[Output]:
    """Write a file or object, which appears whole or not at all. Raises OutputError."""
    if isinstance(path, Path):
        with writing(path) as output:
            yield output
        return
    content = io.BytesIO()
    yield Output(content)
    try:
        path.write_bytes(content.getvalue())
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from error


def digest_of(path: AnyPath) -> str:
    """32 hex digits: xxh3-128 of a file. Raises OSError."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
