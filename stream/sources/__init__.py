"""Files of page messages, saved pages and web archives -> page messages, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from stream.errors import SettingsError
from stream.sources.compressed import STDIN, first_bytes
from stream.sources.directory import BASE_URL, CONTENT_TYPES, DirectorySource
from stream.sources.encode import encode_page
from stream.sources.feed import feed
from stream.sources.jsonl import JsonlSource
from stream.sources.source import Message, Source
from stream.sources.warc import WarcSource

__all__ = [
    "BASE_URL",
    "FORMATS",
    "DirectorySource",
    "JsonlSource",
    "Message",
    "Source",
    "WarcSource",
    "encode_page",
    "feed",
    "open_source",
]

FORMATS: Final = ("auto", "jsonl", "warc", "directory")
_WARC: Final = re.compile(r"\.(warc|wet)(\.(gz|zst))?$", re.IGNORECASE)
_JSONL: Final = re.compile(r"\.(jsonl|ndjson|jl|json)(\.(gz|xz|zst))?$", re.IGNORECASE)


def open_source(path: str, *, format: str = "auto", base_url: str = BASE_URL) -> Source:  # noqa: A002 - the option's name
    """The source at `path`: a directory, a WARC, JSON Lines, one saved page, or `-` for standard input.

    `auto` goes by the name, then by the content; standard input is JSON Lines unless `format` says `warc`.
    `base_url` stands before the relative paths of saved pages. Raises SettingsError.
    """
    if format not in FORMATS:
        raise SettingsError(f"format: {format!r} is none of {', '.join(FORMATS)}")
    if path == STDIN:
        if format == "directory":
            raise SettingsError("format: standard input is no directory")
        return WarcSource(path) if format == "warc" else JsonlSource(path)
    if not Path(path).exists():
        raise SettingsError(f"source {path}: no such file or directory")
    kind = _kind(path) if format == "auto" else format
    if Path(path).is_dir() and kind != "directory":
        raise SettingsError(f"format: {path} is a directory, not {kind}")
    if kind == "directory":
        if not Path(path).is_dir() and Path(path).suffix.lower() not in CONTENT_TYPES:
            raise SettingsError(f"source {path}: no directory, and no suffix of {', '.join(CONTENT_TYPES)}")
        return DirectorySource(path, base_url)
    return WarcSource(path) if kind == "warc" else JsonlSource(path)


def _kind(path: str) -> str:
    if Path(path).is_dir() or Path(path).suffix.lower() in CONTENT_TYPES:
        return "directory"
    if _WARC.search(path):
        return "warc"
    if _JSONL.search(path):
        return "jsonl"
    start = first_bytes(path)
    if start.startswith(b"WARC/"):
        return "warc"
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return "jsonl"
    raise SettingsError(
        f"source {path}: neither its name nor its content tells JSON Lines or WARC; see --format"
    )
