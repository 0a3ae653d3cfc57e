"""Flags made from settings, so that an option has one name, one default and one description."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import click

from stream.errors import SettingsError
from stream.settings import MIB, Settings, load

_RULE = re.compile(r" \(rule \d+\)")
"""Rules are the architecture's, not the reader's of a list of options."""
CONNECTION = ("bootstrap_servers", "namespace")


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command flags for these settings, and `settings` as its first argument.

    A flag that is not given leaves the environment, the file and the default their say.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_flags(*args: Any, **kwargs: Any) -> Any:
            flags = {name: kwargs.pop(name) for name in names}
            return function(load(**flags), *args, **kwargs)

        command: Callable[..., Any] = with_flags
        for name in reversed(names):
            command = _flag(name)(command)
        return command

    return decorate


def with_sources(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `opened`, the sources that its arguments name."""

    @functools.wraps(function)
    def command(
        *args: Any, sources: tuple[str, ...], source_format: str, base_url: str, **kwargs: Any
    ) -> Any:
        from stream.sources import open_source

        opened = [open_source(path, format=source_format, base_url=base_url) for path in sources]
        return function(*args, opened=opened, **kwargs)

    for decorate in (
        click.option(
            "--base-url",
            default="http://localhost/",
            show_default=True,
            help="Stands before the relative paths of saved pages.",
        ),
        click.option(
            "--format",
            "source_format",
            type=click.Choice(["auto", "jsonl", "warc", "directory"]),
            default="auto",
            show_default=True,
            help="What the sources are.",
        ),
        click.argument("sources", nargs=-1, required=True),
    ):
        command = decorate(command)
    return command


def with_scheme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `scheme`, made of `--scheme NAME=VALUE`, as often as wanted."""

    @functools.wraps(function)
    def command(*args: Any, scheme: tuple[str, ...], **kwargs: Any) -> Any:
        from stream.fingerprint.scheme import Scheme

        return function(*args, scheme=structure(Scheme, scheme, "--scheme"), **kwargs)

    return click.option(
        "--scheme", multiple=True, metavar="NAME=VALUE", help="Scheme option, e.g. features=ngrams."
    )(command)


def with_verdict_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `options`, the verdict options of `--mode`, `--distance` and `--option NAME=VALUE`."""

    @functools.wraps(function)
    def command(*args: Any, mode: str, distance: int | None, given: tuple[str, ...], **kwargs: Any) -> Any:
        import msgspec

        from stream.judge.options import VerdictOptions

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
        ),
        click.option("-k", "--distance", type=click.IntRange(0, 63), help="Largest Hamming distance."),
        click.option(
            "--mode", type=click.Choice(["verified", "strict"]), default="verified", show_default=True
        ),
    ):
        command = decorate(command)
    return command


def structure(kind: type[Any], given: tuple[str, ...], option: str) -> Any:
    """A scheme or verdict options from NAME=VALUE pairs. Raises SettingsError, naming the option."""
    import msgspec

    values: dict[str, str] = {}
    for pair in given:
        name, found, value = pair.partition("=")
        if not found:
            raise SettingsError(f"{option} {pair!r}: write NAME=VALUE")
        values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{option}: {error}") from None


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
    return click.option(f"--{name.replace('_', '-')}", name, default=None, help=text)
