"""Which files are pages of the site, and those that are made from the code (hook of mkdocs.yml)."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
WIDTH = 100
SUFFIXES = {".md", ".svg", ".png", ".toml", ".py", ".sql", ".properties"}
"""Of files under docs/ that are pages, or that pages show or link to."""
WIDE = ".md-grid { max-width: 82rem } .md-typeset table:not([class]) code { word-break: normal }\n"
"""Our tables and figures are wide."""
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
    found.append(File.generated(config, "site.css", content=WIDE))
    return found


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
