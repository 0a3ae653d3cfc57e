"""German revisions: the manual pages that two releases of Debian have both, as plain text."""

from __future__ import annotations

import gzip
import re
import subprocess
import tempfile
from pathlib import Path

from tests.bench.quality import environments


def revisions() -> list[str]:
    """All pages of the older release, then the same ones of the newer release, without those that are the
    same in both; empty where `make bench` has not fetched the packages."""
    packages = environments.manpages()
    if not packages:
        return []
    old, new = (_pages(package) for package in packages)
    names = [name for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    return [old[name] for name in names] + [new[name] for name in names]


def _pages(package: Path) -> dict[str, str]:
    """Name -> text. Links to other pages are left out."""
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        subprocess.run(["dpkg", "-x", str(package), directory], check=True)
        paths = [path for path in Path(directory).glob("usr/share/man/de/*/*.gz") if not path.is_symlink()]
        sources = {path.stem: gzip.decompress(path.read_bytes()).decode("utf-8", "replace") for path in paths}
    return {name: plain(source) for name, source in sources.items() if not source.startswith(".so")}


_LEFT_OUT = re.compile(
    r"""^[.'][ \t]*de[ \t](?s:.*?)^\.\.$  # definitions of macros
      |^[.'][ \t]*(?:\\["#]|TH\b|[a-z]).*$  # comments, the title line, requests, whose names are lower-case
      |^[.'][ \t]*\w*  # names of macros, whose arguments are text
      |\\".*$
      |\\[fs](?:\[[^]]*\]|\(..|[-+]?.)  # fonts and sizes
    """,
    re.MULTILINE | re.VERBOSE,
)
_CHARACTERS = {"-": "-", "e": "\\", "(aq": "'", "(dq": '"', "(bu": "•", "~": " ", " ": " "}
_ESCAPED = re.compile(r"\\(\(..|\[[^]]*\]|.)")


def plain(source: str) -> str:
    """The text of a manual page's roff source, roughly: words and their order are what counts here."""
    return _ESCAPED.sub(lambda escaped: _CHARACTERS.get(escaped[1], ""), _LEFT_OUT.sub("", source))
