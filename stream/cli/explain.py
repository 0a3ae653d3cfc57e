"""`neardup explain`."""

from __future__ import annotations

import re
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from stream.cli.options import PATH, with_scheme, with_settings, with_verdict_options
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.fingerprint.scheme import Scheme
    from stream.judge.explain import ExplainedPage, Explanation, Feature
    from stream.judge.shingle_diff import ShingleDiff, TextRun
    from stream.messages.verdict_options import VerdictOptions
    from stream.page_rows.page_fingerprinter import PageFingerprinter

_PLACE: Final = re.compile(r"(.+)#(\d+)")
_STORED: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://|[0-9a-f]{8}\.\d+\.\d+$")
"""A URL or a verdict id, to be looked up in a state directory."""
_MARKS: Final = re.compile(r"\[-|-\]|\{\+|\+\}")


@click.command("explain")
@with_settings("page_bytes", "state_dir", "namespace")
@click.argument("anchor", metavar="A", type=PATH)
@click.argument("page", metavar="B", type=PATH)
@with_verdict_options
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    settings: Settings,
    anchor: str,
    page: str,
    options: VerdictOptions,
    scheme: Scheme,
    as_json: bool,
) -> None:
    """Explain why A and B are near-duplicates, or why not. B is judged as if it came after A.

    A and B may be saved pages (HTML or text), page messages (JSON), or `FILE#3` for the third page of JSON
    Lines, of a web archive or of a directory. Fingerprints in hex, and URLs or verdict ids stored in the
    judge's state directory, work too, but with less detail.
    """
    import msgspec

    from stream.judge.explain import explain
    from stream.page_rows.page_fingerprinter import PageFingerprinter

    fingerprinter = PageFingerprinter(scheme)
    sides = [
        _stored_side(text, settings, scheme, options)
        if _STORED.match(text) and not Path(text).exists()
        else _side(text, fingerprinter, settings.page_bytes)
        for text in (anchor, page)
    ]
    explanation = explain(sides[0], sides[1], scheme, options)
    if as_json:
        sys.stdout.write(msgspec.json.encode(explanation).decode() + "\n")
    else:
        _show(explanation)


def _stored_side(text: str, settings: Settings, scheme: Scheme, options: VerdictOptions) -> ExplainedPage:
    from stream.errors import SettingsError
    from stream.judge.stored_pages import StoredPages

    own = settings.state_dir / settings.namespace
    directory = own if own.is_dir() else settings.state_dir
    with StoredPages(directory, scheme, options) as pages:
        if (side := pages.side(text)) is None:
            raise SettingsError(f"{text}: {directory} has no page with that URL or id")
        return side


def _side(text: str, fingerprinter: PageFingerprinter, page_bytes: int) -> ExplainedPage:
    from stream.errors import PageError, SettingsError
    from stream.judge.explain import ExplainedPage, side_of_page
    from stream.pages.page import decode_page
    from stream.sources.open import open_source

    digits = fingerprinter.scheme.width // 4
    if not Path(text).exists() and re.fullmatch(rf"(0x)?[0-9a-fA-F]{{{digits}}}", text):
        return ExplainedPage(name=text, fingerprint=int(text, 16))
    path, number = text, 1
    if not Path(text).exists() and (place := _PLACE.fullmatch(text)):
        path, number = place[1], int(place[2])
    messages = list(islice(open_source(path), max(number - 1, 0), number))
    if not messages:
        raise SettingsError(f"source {text}: it has fewer than {number} pages")
    try:
        page = decode_page(messages[0].value, page_bytes)
        return side_of_page(text, page, fingerprinter)
    except PageError as error:
        raise SettingsError(f"source {text}: {error}") from None


def _show(explanation: Explanation) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    style = {"duplicate": "green", "recrawl": "green", "unique": "yellow"}.get(explanation.verdict, "red")
    console.print(
        f"[bold {style}]{explanation.verdict}[/]  (mode {explanation.mode}, scheme {explanation.scheme})"
    )
    for check in explanation.checks:
        console.print(f"  {'[green]yes[/]' if check.passed else '[red]no [/]'} {escape(check.reason)}")
    if explanation.same_text:
        console.print("  [green]yes[/] the normalised texts are equal")

    pages = Table("", "A, the anchor", "B, the page", title="Pages", title_justify="left")
    a, b = explanation.anchor, explanation.page
    for name in ("name", "url", "tokens", "features", "shingles", "text_hash"):
        values = [getattr(a, name), getattr(b, name)]
        if values != [None, None] and not (name == "url" and values == [a.name, b.name]):
            pages.add_row(name.replace("_", " "), *("" if v is None else escape(str(v)) for v in values))
    pages.add_row("fingerprint", *_mark_digits(explanation))
    console.print(pages)
    if explanation.exact_similarity is not None or explanation.estimated_similarity is not None:
        console.print(
            f"similarity: estimated {_number(explanation.estimated_similarity)},"
            f" exact {_number(explanation.exact_similarity)},"
            f" required {_number(explanation.least_similarity)}"
        )
    if explanation.features is not None:
        console.print(
            f"weights: cosine {explanation.features.cosine},"
            f" so about {explanation.features.expected_distance}"
            f" of {explanation.width} bits should differ; {explanation.distance} do"
        )
    _show_bits(console, explanation)
    _show_tables(console, explanation)
    if explanation.features is not None:
        _show_features(console, explanation)
    if explanation.shingles is not None:
        _show_shingles(console, explanation.shingles)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _mark_digits(explanation: Explanation) -> list[str]:
    """Return the hex digits of both fingerprints, with differing digits coloured."""
    digits = explanation.anchor.fingerprint, explanation.page.fingerprint
    return [
        "".join(
            f"[red]{own}[/]" if own != other else own
            for own, other in zip(digits[side], digits[1 - side], strict=True)
        )
        for side in (0, 1)
    ]


def _show_bits(console: Any, explanation: Explanation) -> None:
    from rich.table import Table

    if not explanation.bits:
        return
    table = Table("bit", "block", "margin in A", "margin in B", "uncertain in A", "in B",
                  title="Bits that differ", title_justify="left")  # fmt: skip
    for bit in explanation.bits:
        margins = ["?" if margin is None else f"{margin:+.2%}" for margin in bit.margins]
        ranks = ["" if rank is None else f"{rank}." for rank in bit.ranks]
        table.add_row(str(bit.bit), "" if bit.block is None else str(bit.block), *margins, *ranks)
    console.print(table)


def _show_tables(console: Any, explanation: Explanation) -> None:
    from rich.table import Table

    if not explanation.tables:
        return
    table = Table("table", "blocks", "prefix", "bits that differ in it", "", title_justify="left",
                  title=f"Tables, {explanation.probes} probes")  # fmt: skip
    colours = {"exact": "green", "flipped": "cyan", "missed": "red"}
    for probe in explanation.tables:
        differing = ", ".join(
            f"[cyan]{bit}[/]" if probe.flippable and bit in probe.flippable else str(bit)
            for bit in reversed(probe.differing)
        )
        blocks = " ".join(map(str, probe.blocks))
        table.add_row(
            str(probe.table), blocks, f"{probe.prefix_bits} bits", differing,
            f"[{colours[probe.met]}]{probe.met}[/]",
        )  # fmt: skip
    console.print(table)


def _show_features(console: Any, explanation: Explanation) -> None:
    from rich.markup import escape
    from rich.table import Table

    assert explanation.features is not None  # noqa: S101  # checked by the caller
    columns = (explanation.features.shared, explanation.features.only_anchor, explanation.features.only_page)
    heads = [
        f"{head} ({count:,})"
        for head, count in zip(("shared", "only in A", "only in B"), explanation.features.counts, strict=True)
    ]
    table = Table(*heads, title="Features by weight", title_justify="left")

    def cell(features: list[Feature], place: int, sides: tuple[int, ...]) -> str:
        if place >= len(features):
            return ""
        feature = features[place]
        shares = " ".join(f"{feature.weights[side]:.2%}" for side in sides)
        return f"{escape(feature.feature[:40])} [dim]{shares}[/]"

    for place in range(max(map(len, columns))):
        table.add_row(
            cell(columns[0], place, (0, 1)), cell(columns[1], place, (0,)), cell(columns[2], place, (1,))
        )
    console.print(table)


def _show_shingles(console: Any, diff: ShingleDiff) -> None:
    """Print both texts, with marks and, on a terminal, colours around what is in no shared shingle."""
    from rich.text import Text

    shared, only_a, only_b = diff.counts
    console.print(f"Shingles: {shared:,} shared, {only_a:,} only in A, {only_b:,} only in B")

    def side_text(name: str, runs: list[TextRun], left_out: int, marks: tuple[str, str], style: str) -> Text:
        text = Text(f"{name} ")
        for run in runs:
            # So that no text imitates the marks.
            shown = _MARKS.sub(r"\\\g<0>", run.text)
            if run.shared:
                text.append(shown + " ")
            else:
                text.append(f"{marks[0]}{shown}{marks[1]}", style).append(" ")
        return text.append(f"(and {left_out:,} more runs)") if left_out else text

    console.print(side_text("A:", diff.anchor, diff.left_out[0], ("[-", "-]"), "red"))
    console.print(side_text("B:", diff.page, diff.left_out[1], ("{+", "+}"), "green"))
