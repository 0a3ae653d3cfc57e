"""Command-line flags generated from settings, so that name, default and description have one source."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import click

from stream.errors import SettingsError
from stream.settings import MIB, SUPERVISOR, Settings, choices, load, seconds_of, unknown_variables
from stream.suggest import meant

_RULE = re.compile(r"\s\(rule\s\d+\)")
"""References to the rules of docs/architecture/rules.md, which help texts omit."""
PATH = click.Path()
"""An argument that may be a file, so that shells complete it. The code that opens it checks what it is."""
SOURCE_FORMAT = click.Choice(["auto", "jsonl", "warc", "directory", "csv", "parquet", "rows"])
"""The values of `stream.sources.open.FORMATS`, repeated because that module is slow to import."""
CONNECTION = ("bootstrap_servers", "namespace")
JUDGE_STATE = (
    "state_dir",
    "rebuild_damaged",
    "scrub_hours",
    "checkpoints",
    "checkpoint_interval",
    "checkpoints_kept",
)
"""Settings of a judge's state."""


class _Duration(click.ParamType):
    """Seconds, or a number with a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return seconds."""
        try:
            return seconds_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()
"""The type of an option that is a duration and no setting."""


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a command with flags for these settings. It receives `settings` as its first argument.

    A setting whose flag is absent comes from the environment, the TOML file or its default.
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
    """Log unknown NEARDUP_* variables, but not again in roles that a supervisor started."""
    unknown = {} if SUPERVISOR in os.environ else unknown_variables(os.environ)
    if unknown:
        import structlog

        from stream.cli import ROLES
        from stream.ops import logging

        command = click.get_current_context().info_name or ""
        logging.configure(settings.log_format, command, unattended=command in ROLES)
        for name, other in unknown.items():
            message = f"{name}: no such option, ignored{meant(name, [other] if other else [])}"
            structlog.get_logger(__name__).warning("unknown_variable", message=message)


def with_sources(
    function: Callable[..., Any], *, required: bool = True, counted: bool = False
) -> Callable[..., Any]:
    """Decorate a command with arguments SOURCES. It receives the opened sources as `opened`, whose pages have
    labels if they are `counted` and `--count-by` is given."""

    @with_columns
    @functools.wraps(function)
    def command(
        *args: Any,
        sources: tuple[str, ...],
        source_format: str,
        base_urls: tuple[str, ...],
        strict_sources: bool,
        columns: Any,
        count_by: str | None = None,
        **kwargs: Any,
    ) -> Any:
        import msgspec

        from stream.pages.columns import Columns
        from stream.sources.open import open_sources

        if count_by is not None:
            columns = Columns(**msgspec.structs.asdict(columns) | {"label": count_by})
        opened = open_sources(sources, format=source_format, base_urls=base_urls, columns=columns)
        for source in opened:
            source.strict = strict_sources
        return function(*args, opened=opened, **kwargs)

    for decorate in (
        click.option(
            "--strict-sources",
            is_flag=True,
            help="End with an error at the first source that is damaged or cannot be opened, instead of"
            " keeping its pages before the damage and reading the others.",
        ),
        click.option(
            "--base-url",
            "base_urls",
            multiple=True,
            help="URL prefix for the relative paths of saved pages; one for all directories, or one for each"
            " in their order.  [default: file: URLs]",
        ),
        click.option(
            "--format",
            "source_format",
            type=SOURCE_FORMAT,
            default="auto",
            show_default=True,
            help="Format of the sources.",
        ),
        click.argument("sources", nargs=-1, required=required, type=PATH),
    ):
        command = decorate(command)
    if counted:
        command = click.option(
            "--count-by",
            metavar="NAME",
            help="Column by which the pages of a cluster are counted, such as the dump or the data set.  "
            "[default: the file or directory that the command names]",
        )(command)
    return command


def with_columns(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with options that name columns. It receives `columns`."""

    @functools.wraps(function)
    def command(
        *args: Any,
        url_column: str | None,
        id_column: str | None,
        text_column: str | None,
        html_column: str | None,
        fetched_at_column: str | None,
        quality_column: str | None,
        place_ids: bool,
        id_prefix: str,
        **kwargs: Any,
    ) -> Any:
        from stream.pages.columns import Columns

        columns = Columns(
            url=url_column,
            id=id_column,
            text=text_column,
            html=html_column,
            fetched_at=fetched_at_column,
            quality=quality_column,
            place_ids=place_ids,
            id_prefix=id_prefix,
        )
        return function(*args, columns=columns, **kwargs)

    command = click.option(
        "--id-prefix",
        metavar="TEXT",
        default="",
        help="Put before each id, for ids that other data sets have as well.",
    )(command)
    command = click.option(
        "--place-ids",
        is_flag=True,
        help="File and number of each page are its id, of data without URLs and ids.",
    )(command)
    for field, what in (
        ("quality", "a number, higher is better to keep, if it is not `quality`."),
        ("fetched-at", "the time of the fetch, if it is not `fetched_at`."),
        ("html", "the HTML, if it is not `html`."),
        ("text", "the text, if it is not `text`."),
        ("id", "ids that stand in for URLs, of data without any."),
        ("url", "the URL, if it is not `url`; a.b is the field b of a."),
    ):
        command = click.option(f"--{field}-column", metavar="NAME", help=f"Column of {what}")(command)
    return command


def with_same_pages(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command that has `--index` with `--same-pages`. It receives `same_pages`."""
    return click.option(
        "--same-pages",
        is_flag=True,
        help="Ids that the index has name the same pages, in new versions. Without it, an index that has"
        " them with other texts is left as it is.",
    )(function)


def with_output(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a command with `--output`. It receives `output`: a path, `-` for stdout, or None."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help=f"Write the {what} to this file as JSON Lines; - for stdout.",
    )


def with_scheme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with a repeatable `--scheme NAME=VALUE`. It receives a `Scheme` as `scheme`."""

    @functools.wraps(function)
    def command(*args: Any, scheme: tuple[str, ...], **kwargs: Any) -> Any:
        from stream.fingerprint.scheme import Scheme

        return function(*args, scheme=structure(Scheme, scheme, "--scheme"), **kwargs)

    return click.option(
        "--scheme",
        multiple=True,
        metavar="NAME=VALUE",
        help="Fingerprint scheme option, e.g. features=ngrams; may be repeated.",
        shell_complete=_completion(lambda: _schemes()),
    )(command)


_PAPER_DISTANCES: Final = range(1, 10)
"""Distances for which distance + 2 blocks, of which two are chosen, make tables that are allowed."""


def with_verdict_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with `--mode`, `--distance`, `--similarity` and a repeatable `--option NAME=VALUE`.

    It receives `VerdictOptions` as `options`.
    """

    @functools.wraps(function)
    def command(
        *args: Any,
        mode: str,
        distance: int | None,
        similarity: str | None,
        given: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        import msgspec

        from stream.messages.verdict_options import VerdictOptions

        if mode == "strict":
            k = 3 if distance is None else distance
            if k not in _PAPER_DISTANCES and not any(
                each.startswith(("blocks=", "choose=")) for each in given
            ):
                low, high = _PAPER_DISTANCES[0], _PAPER_DISTANCES[-1]
                raise SettingsError(
                    f"distance: {k} with --mode strict is not within {low} to {high};"
                    " others need --option blocks=... and --option choose=..."
                )
            base = VerdictOptions.paper(k=k, blocks=k + 2)
        else:
            if distance is not None:
                raise SettingsError("distance: decides with --mode strict alone; otherwise similarity does")
            base = VerdictOptions()
        if similarity is not None:
            if mode == "strict":
                raise SettingsError(
                    "similarity: --mode strict judges by distance alone; leave one of them out"
                )
            given = (f"similarity={_less_margin(similarity, given)}", *given)
        chosen = [
            f"{name}={value}" for name, value in msgspec.structs.asdict(base).items() if value is not None
        ]
        return function(*args, options=structure(VerdictOptions, (*chosen, *given), "--option"), **kwargs)

    for decorate in (
        click.option(
            "--option",
            "given",
            multiple=True,
            metavar="NAME=VALUE",
            help="Verdict option, e.g. baselines=3; may be repeated.",
            shell_complete=_completion(lambda: _verdict_options()),
        ),
        click.option(
            "--similarity",
            metavar="0..1",
            help="Least similarity of near-duplicates; estimates may be a little below.  [default: 0.8]",
        ),
        click.option(
            "-k",
            "--distance",
            type=click.IntRange(0, 63),
            help="Largest Hamming distance of near-duplicates, with --mode strict.  [default: 3]",
        ),
        click.option(
            "--mode",
            type=click.Choice(["verified", "strict"]),
            default="verified",
            show_default=True,
            help="verified: by estimated similarity; strict: by distance alone (the paper).",
        ),
    ):
        command = decorate(command)
    return command


_LIMIT = re.compile(r"0?\.\d{1,4}")


def _less_margin(limit: str, given: tuple[str, ...]) -> str:
    """Return the option `similarity` for a limit as people read it, which is that of short pages: `margin`
    less. What is no fraction is returned as it is."""
    from stream.messages.verdict_options import VerdictOptions

    named = [pair.removeprefix("margin=") for pair in given if pair.startswith("margin=")]
    margin = named[-1] if named else VerdictOptions().margin
    if not _LIMIT.fullmatch(limit) or not re.fullmatch(r"0(\.\d{1,4})?|\.\d{1,4}", margin):
        return limit
    similarity = max(Decimal("0.0"), Decimal(limit) - Decimal(margin))
    return f"{similarity.normalize():f}" if similarity else "0.0"


_PATTERN_MEANINGS = {
    "similarity": "write a number from 0 to 1 with at most four decimals",
    "evidence": "write a number from 0 to 1 with at most four decimals; 1 for none",
    "seed_digest": "write the 32 hexadecimal digits that `neardup topics describe` shows",
}
"""Error texts for options that are validated by a regular expression."""
_BARE_FRACTION = re.compile(r"\.\d+")
_AT = re.compile(r" - at `\$\.(\w+)`$")


def structure(kind: type[Any], pairs: tuple[str, ...], option: str) -> Any:
    """Build a Scheme or VerdictOptions from NAME=VALUE pairs. Raises SettingsError that names the option."""
    import msgspec

    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"{option} {pair!r}: write NAME=VALUE")
        if name not in kind.__struct_fields__:
            listed = ", ".join(kind.__struct_fields__)
            hint = meant(name, kind.__struct_fields__)
            raise SettingsError(f"{option} {pair}: no such option{hint or ';'} choose from {listed}")
        values[name] = f"0{value}" if _BARE_FRACTION.fullmatch(value) else value
        if name == "lifetime":
            values[name] = _whole_seconds(pair, option)
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        if place := _AT.search(str(error)):
            name = place[1]
            why = _why(name, values[name], get_type_hints(kind)[name], _AT.sub("", str(error)))
            raise SettingsError(f"{option} {name}={values[name]}: {why}") from None
        raise SettingsError(f"{option}: {error}") from None


def _whole_seconds(pair: str, option: str) -> str:
    """Return the seconds of a duration, for an option that is a whole number of them."""
    try:
        seconds = cast(float, seconds_of(pair.partition("=")[2]))
    except ValueError as error:
        raise SettingsError(f"{option} {pair}: {error}") from None
    if not seconds.is_integer():
        raise SettingsError(f"{option} {pair}: not a whole number of seconds")
    return f"{seconds:.0f}"


def _why(name: str, value: str, kind: Any, message: str) -> str:
    """Explain why the value of an option is invalid."""
    if get_origin(kind) is Literal:
        listed = [str(each) for each in get_args(kind)]
        return f"not one of {', '.join(listed)}{meant(value, listed)}"
    return _PATTERN_MEANINGS[name] if "regex" in message else message


def _format_default(default: object) -> object:
    """Format a default as a user would write it, with sizes in MiB."""
    if type(default) is int and default and default % MIB == 0:
        return f"{default // MIB}MiB"
    return f"{default:g}" if isinstance(default, float) else default


def _metavar(name: str) -> str | None:
    """Return what stands for the value of a setting in the help, or None for what is a text."""
    kind = str(get_type_hints(Settings, include_extras=True)[name])
    units = {"seconds": "SECONDS", "hours": "HOURS", "deadline": "SECONDS"}
    if "BeforeValidator" in kind:
        return "DURATION" if name == "checkpoint_interval" else "SIZE"
    if values := choices(name):
        return f"[{'|'.join(values)}]"
    if Settings.model_fields[name].annotation in (int, float):
        return units.get(name.rpartition("_")[2], "NUMBER")
    return None


def _flag(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    field = Settings.model_fields[name]
    none = field.default_factory or field.default in (None, "")
    default = "" if none else f"  [default: {_format_default(field.default)}]"
    described = " ".join(_RULE.sub("", field.description or "").split())
    if field.annotation is bool:
        flag = "--open" if name == "dashboard_open" else f"--{name.replace('_', '-')}"
        return click.option(flag, name, is_flag=True, default=None, help=described)
    text = described + default
    values = choices(name)
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        default=None,
        help=text,
        metavar=_metavar(name),
        shell_complete=_completion(lambda: values) if values else None,
        type=PATH if name == "state_dir" else None,
    )


def _completion(values: Callable[[], Iterable[str]]) -> Callable[..., list[str]]:
    """Return a shell completion for an option: those of its `values` that start with what was typed."""
    return lambda context, parameter, typed: [each for each in values() if each.startswith(typed)]


def _pairs(kind: type[Any]) -> list[str]:
    """Return completions: NAME=VALUE for options with a fixed set of values, NAME= for the others."""
    completions = []
    for name, hint in get_type_hints(kind).items():
        values = get_args(hint) if get_origin(hint) is Literal else [""]
        completions += [f"{name}={value}" for value in values]
    return completions


def _schemes() -> list[str]:
    from stream.fingerprint.scheme import Scheme

    return _pairs(Scheme)


def _verdict_options() -> list[str]:
    from stream.messages.verdict_options import VerdictOptions

    return _pairs(VerdictOptions)
