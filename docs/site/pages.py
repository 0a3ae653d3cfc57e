"""Which files are pages of the site, and those that are made from the code (hook of mkdocs.yml)."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
WIDTH = 100
SUFFIXES = {".md", ".svg", ".png", ".toml", ".py", ".sql", ".properties"}
"""Of files under docs/ that are pages, or that pages show or link to."""
STYLE = """
/* Our tables and figures are wide. */
.md-grid { max-width: 82rem }
.md-typeset table:not([class]) code { word-break: normal }
.md-typeset img { border-radius: .4rem }
/* Drawings are dark on white: the same colours, with the lightness turned round. */
[data-md-color-scheme=slate] .md-typeset img[src$=".svg"] { filter: invert(.9) hue-rotate(180deg) }
[data-md-color-scheme=slate] .md-typeset img[src$=".png"] { filter: brightness(.8) }
@media screen and (max-width: 44.9375em) {
  .md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: .4em .6em; overflow-wrap: anywhere }
  .md-typeset table:not([class]) td:first-child { min-width: 5.5rem }
  /* Each row of a wide table becomes a list of its cells, with their headings. */
  .md-typeset table[data-wide]:not([class]) { display: block }
  .md-typeset table[data-wide] thead { display: none }
  .md-typeset table[data-wide] :is(tbody, tr, td) { display: block }
  .md-typeset table[data-wide] tr { padding: .4em 0; border-top: .05rem solid var(--md-typeset-table-color) }
  .md-typeset table[data-wide]:not([class]) td { padding: .1em .6em; border: 0 }
  .md-typeset table[data-wide]:not([class]) td:empty { display: none }
  .md-typeset table[data-wide] td[data-heading]::before {
    content: attr(data-heading) ": "; color: var(--md-default-fg-color--light);
  }
  .md-typeset table[data-wide] td:first-child { font-weight: 700 }
  :is(.md-typeset__scrollwrap, .md-typeset__table):has(table[data-wide]) {
    display: block; margin: 0; padding: 0;
  }
}
"""
FEW_COLUMNS = 2
"""That fit a phone side by side."""
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
CELL = re.compile(r"<td(?=[\s>])")
EXAMPLE = re.compile(r"^(?:>>> .*\n)(?:.+\n)*", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages by their place in the repository, so that links between them hold here and there."""
    found = Files([file for file in files if file.src_dir != config.docs_dir])
    written = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "schemas").iterdir()]
    documents = (path for path in (ROOT / "docs").rglob("*") if path.suffix in SUFFIXES)
    written += [path for path in documents if path.parent.name != "site"]
    for path in sorted(written):
        place = path.relative_to(ROOT).as_posix()
        found.append(File.generated(config, place, abs_src_path=str(path)))
    for page in (commands, python, errors):
        place = f"docs/reference/{page.__name__}.md"
        found.append(File.generated(config, place, content="\n".join(page()) + "\n"))
    found.append(File.generated(config, "site.css", content=STYLE))
    return found


def on_page_content(html: str, **_: Any) -> str:
    """Tables of many columns, whose cells name their headings, for screens that have no room for a head."""
    return TABLE.sub(_with_headings, html)


def _with_headings(table: re.Match[str]) -> str:
    headings = [re.sub(r"<[^>]*>", "", each).strip() for each in HEADING.findall(table[0])]
    if len(headings) <= FEW_COLUMNS:
        return table[0]
    places = count()

    def cell(_: re.Match[str]) -> str:
        heading = headings[next(places) % len(headings)].replace('"', "&quot;")
        return f'<td data-heading="{heading}"' if heading else "<td"

    return CELL.sub(cell, table[0]).replace("<table", "<table data-wide", 1)


def commands() -> Iterator[str]:
    """What `--help` says, command by command."""
    from stream.cli import cli

    yield "# Commands\n"
    yield "What `--help` says. Options of a deployment are environment variables too:"
    yield "see [settings](settings.md).\n"
    yield from _help(cli, "neardup", 2)


def _help(command: click.Command, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    yield f"{'#' * level} {name}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            if (found := command.get_command(context, each)) is not None:
                yield from _help(found, f"{name} {each}", level + (name != "neardup"))


def python() -> Iterator[str]:
    """The public names, each where it is defined."""
    import stream

    yield "# Python\n"
    yield EXAMPLE.sub(r"```pycon\n\g<0>```\n", inspect.getdoc(stream) or "") + "\n"
    for name in stream.__all__:
        yield f"::: {getattr(stream, name).__module__}.{name}\n"


def errors() -> Iterator[str]:
    """The tree of errors, with the exit code of a role that ends on one."""
    from stream import errors as module

    yield "# Errors and exit codes\n"
    operations = (ROOT / "docs/operations.md").read_text("utf-8")
    yield operations.partition("## Exit codes\n\n")[2].replace("(security.md", "(../security.md")
    yield "A role that ends on one of these errors says so in the last line of its log.\n"
    yield "| error | exit code of a role | meaning |\n|---|---|---|"
    for each in vars(module).values():
        if isinstance(each, type) and issubclass(each, module.NeardupError):
            said = " ".join((each.__doc__ or "").split("\n\n")[0].split())
            yield f"| `{each.__name__}` | {each.exit_code} | {said} |"
