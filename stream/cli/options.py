"""Flags made from settings, so that an option has one name, one default and one description."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from stream.errors import SettingsError
from stream.settings import MIB, SUPERVISOR, Settings, choices, load, unknown_variables
from stream.suggest import meant

_RULE = re.compile(r" \(rule \d+\)")
"""Rules are the architecture's, not the reader's of a list of options."""
PATH = click.Path()
"""An argument that may be a file: shells complete it. What it must be, its reader says."""
SOURCE_FORMAT = click.Choice(["auto", "jsonl", "warc", "directory", "csv", "parquet"])
"""`stream.sources.FORMATS`, which takes long to import."""
CONNECTION = ("bootstrap_servers", "namespace")


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command flags for these settings, and `settings` as its first argument.

    A flag that is not given leaves the environment, the file and the default their say.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_flags(*args: Any, **kwargs: Any) -> Any:
            flags = {name: kwargs.pop(name) for name in names}
            settings = load(**flags)
            _tell_unknown_variables(settings)
            return function(settings, *args, **kwargs)

        command: Callable[..., Any] = with_flags
        for name in reversed(names):
            command = _flag(name)(command)
        return command

    return decorate


def _tell_unknown_variables(settings: Settings) -> None:
    """As a line of the log, which may be JSON throughout; once, by whoever was started by a person."""
    unknown = {} if SUPERVISOR in os.environ else unknown_variables(os.environ)
    if unknown:
        import structlog

        from stream.ops import logging

        logging.configure(settings.log_format, "settings")
        for name, other in unknown.items():
            told = f"{name}: no such option, ignored{meant(name, [other] if other else [])}"
            structlog.get_logger(__name__).warning("unknown_variable", message=told)


def with_sources(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `opened`, the sources that its arguments name."""

    @functools.wraps(function)
    def command(
        *args: Any, sources: tuple[str, ...], source_format: str, base_urls: tuple[str, ...], **kwargs: Any
    ) -> Any:
        from stream.sources import open_sources

        opened = open_sources(sources, format=source_format, base_urls=base_urls)
        return function(*args, opened=opened, **kwargs)

    for decorate in (
        click.option(
            "--base-url",
            "base_urls",
            multiple=True,
            help="Stands before the relative paths of saved pages; one for all, or as many as directories are"
            " given.  [default: file: URLs]",
        ),
        click.option(
            "--format",
            "source_format",
            type=SOURCE_FORMAT,
            default="auto",
            show_default=True,
            help="What the sources are.",
        ),
        click.argument("sources", nargs=-1, required=True, type=PATH),
    ):
        command = decorate(command)
    return command


def with_output(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `output`, the path of a file for its results, - for stdout, or None."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help=f"File for the {what}, JSON Lines; - for stdout.",
    )


def with_scheme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `scheme`, made of `--scheme NAME=VALUE`, as often as wanted."""

    @functools.wraps(function)
    def command(*args: Any, scheme: tuple[str, ...], **kwargs: Any) -> Any:
        from stream.fingerprint.scheme import Scheme

        return function(*args, scheme=structure(Scheme, scheme, "--scheme"), **kwargs)

    return click.option(
        "--scheme",
        multiple=True,
        metavar="NAME=VALUE",
        help="Scheme option, e.g. features=ngrams.",
        shell_complete=_completing(lambda: _schemes()),
    )(command)


def with_verdict_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `options`, the verdict options of `--mode`, `--distance` and `--option NAME=VALUE`."""

    @functools.wraps(function)
    def command(*args: Any, mode: str, distance: int | None, given: tuple[str, ...], **kwargs: Any) -> Any:
        import msgspec

        from stream.messages.verdict_options import VerdictOptions

        if mode == "strict":
            k = 3 if distance is None else distance
            base = VerdictOptions.paper(k=k, blocks=k + 2)
        else:
            base = VerdictOptions() if distance is None else VerdictOptions(distance=distance)
        chosen = [f"{name}={value}" for name, value in msgspec.structs.asdict(base).items()]
        return function(*args, options=structure(VerdictOptions, (*chosen, *given), "--option"), **kwargs)

    for decorate in (
        click.option(
            "--option",
            "given",
            multiple=True,
            metavar="NAME=VALUE",
            help="Verdict option, e.g. similarity=0.9.",
            shell_complete=_completing(lambda: _verdict_options()),
        ),
        click.option("-k", "--distance", type=click.IntRange(0, 63), help="Largest Hamming distance."),
        click.option(
            "--mode", type=click.Choice(["verified", "strict"]), default="verified", show_default=True
        ),
    ):
        command = decorate(command)
    return command


_PATTERN_MEANINGS = {"similarity": "write a number from 0 to 1 with at most four digits behind the point"}
"""What the pattern of an option means, for a person."""
_AT = re.compile(r" - at `\$\.(\w+)`$")


def structure(kind: type[Any], given: tuple[str, ...], option: str) -> Any:
    """A scheme or verdict options from NAME=VALUE pairs. Raises SettingsError, naming the option."""
    import msgspec

    values: dict[str, str] = {}
    for pair in given:
        name, found, value = pair.partition("=")
        if not found:
            raise SettingsError(f"{option} {pair!r}: write NAME=VALUE")
        if name not in kind.__struct_fields__:
            there = ", ".join(kind.__struct_fields__)
            hint = meant(name, kind.__struct_fields__)
            raise SettingsError(f"{option} {pair}: no such option{hint or ';'} there are {there}")
        values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        if place := _AT.search(str(error)):
            name = place[1]
            why = _why(name, values[name], get_type_hints(kind)[name], _AT.sub("", str(error)))
            raise SettingsError(f"{option} {name}={values[name]}: {why}") from None
        raise SettingsError(f"{option}: {error}") from None


def _why(name: str, value: str, kind: Any, said: str) -> str:
    """What may be written instead."""
    if get_origin(kind) is Literal:
        listed = [str(each) for each in get_args(kind)]
        return f"none of {', '.join(listed)}{meant(value, listed)}"
    return _PATTERN_MEANINGS[name] if "regex" in said else said


def _shown(default: object) -> object:
    """A default as a person would give it: whole MiB with their unit."""
    whole = type(default) is int and default and default % MIB == 0
    return f"{default // MIB}MiB" if whole else default  # type: ignore[operator]


def _flag(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    field = Settings.model_fields[name]
    none = field.default_factory or field.default in (None, "")
    default = "" if none else f"  [default: {_shown(field.default)}]"
    text = _RULE.sub("", field.description or "").replace("\n", " ") + default
    if field.annotation is bool:
        return click.option(f"--{name.replace('_', '-')}", name, is_flag=True, default=None, help=text)
    values = choices(name)
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        default=None,
        help=text,
        shell_complete=_completing(lambda: values) if values else None,
        type=PATH if name == "state_dir" else None,
    )


def _completing(known: Callable[[], Iterable[str]]) -> Callable[..., list[str]]:
    """What a shell offers for an option: those of `known` that begin so."""
    return lambda context, parameter, begun: [each for each in known() if each.startswith(begun)]


def _pairs(kind: type[Any]) -> list[str]:
    """NAME=VALUE of all values that can be listed, and NAME= of the others."""
    found = []
    for name, hint in get_type_hints(kind).items():
        values = get_args(hint) if get_origin(hint) is Literal else [""]
        found += [f"{name}={value}" for value in values]
    return found


def _schemes() -> list[str]:
    from stream.fingerprint.scheme import Scheme

    return _pairs(Scheme)


def _verdict_options() -> list[str]:
    from stream.messages.verdict_options import VerdictOptions

    return _pairs(VerdictOptions)
