"""`neardup explain`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from stream.cli.group import SectionCommand
from stream.cli.options import PATH, with_columns, with_scheme, with_settings, with_verdict_options
from stream.cli.printable import as_markup
from stream.cli.quantity import quantity
from stream.errors import SettingsError
from stream.output import write_json
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.fingerprint.scheme import Scheme
    from stream.judge.explain.explain import Candidacy, ExplainedPage, Explanation, Feature, Probe, StoredPair
    from stream.judge.explain.shingle_diff import ShingleDiff, TextRun
    from stream.messages.verdict_options import VerdictOptions
    from stream.page_rows.page_fingerprinter import PageFingerprinter
    from stream.pages.columns import Columns

_PLACE: Final = re.compile(
    r"(.+)#(?:(?:page )?(\d{1,18})|((?:line|row|item) \d+|record at byte \d+(?:\+\d+)?))"
)
"""A page within a file: its number, or its place as the `origin` of a verdict names it."""
_STORED: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://|[0-9a-f]{8}\.\d+\.\d+$")
"""A URL or a verdict id, to be looked up in a state directory."""
_MARKS: Final = re.compile(r"\[-|-\]|\{\+|\+\}")


@click.command("explain", cls=SectionCommand)
@click.argument("anchor", metavar="A", type=PATH)
@click.argument("page", metavar="B", type=PATH)
@click.option(
    "--diff", "with_diff", is_flag=True, help="Show both texts, with what they do not share marked."
)
@click.option("-v", "--verbose", is_flag=True,
              help="Show all that was compared: fingerprints, bits, tables and features.")  # fmt: skip
@click.option("--index", "index_directory", type=click.Path(path_type=Path, file_okay=False),
              help="Answer for the index in this directory, by its scheme and options. A and B may be URLs"
              " or ids of it.")  # fmt: skip
@with_verdict_options
@with_columns
@with_scheme
@with_settings("state_dir", "namespace", "page_bytes")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    context: click.Context,
    settings: Settings,
    anchor: str,
    page: str,
    options: VerdictOptions,
    columns: Columns,
    scheme: Scheme,
    index_directory: Path | None,
    with_diff: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Explain why A and B are near-duplicates, or why not. B is judged as if it came after A.

    A and B may be saved pages (HTML or text), page messages (JSON), `FILE#3` for the third page of JSON
    Lines, of a web archive or of a directory, or `FILE#PLACE` with a place of a verdict's `origin`, such as
    'crawl.warc.gz#record at byte 81920'. Fingerprints in hex, and URLs or verdict ids stored in an index or
    in the judge's state directory, work too, but with less detail.

    An index may judge B otherwise: A may be a duplicate itself there, so that B is compared with another
    page, or be kept out of full buckets, or have too high a rank among the candidates of B. With --index, the
    answer says so of that index, and which verdict B has or would get.
    """
    import msgspec

    from stream.judge.explain.explain import explain
    from stream.judge.explain.stored_pages import StoredPages
    from stream.page_rows.page_fingerprinter import PageFingerprinter

    seed = None
    if index_directory is not None:
        scheme, options, seed = _of_index(index_directory, context, scheme, options)
    fingerprinter = PageFingerprinter(scheme, seed)
    with ExitStack() as opened:
        pages: StoredPages | None = None

        def stored_pages() -> StoredPages:
            nonlocal pages
            if pages is None:
                own = settings.state_dir / settings.namespace
                state = own if own.is_dir() else settings.state_dir
                pages = opened.enter_context(StoredPages(index_directory or state, fingerprinter, options))
            return pages

        def side(text: str) -> ExplainedPage:
            if _is_stored(text, anywhere=index_directory is not None, digits=scheme.width // 4):
                if (stored := stored_pages().side(text)) is None:
                    raise SettingsError(f"{text}: {stored_pages().path} has no page with that URL or id")
                return stored
            return _side(text, fingerprinter, settings.page_bytes, columns)

        sides = [side(text) for text in (anchor, page)]
        if pages is not None or index_directory is not None:
            sides = [each if each.stored_id is not None else stored_pages().locate(each) for each in sides]
        explanation = explain(sides[0], sides[1], scheme, options)
        if pages is not None:
            explanation = msgspec.structs.replace(explanation, stored=pages.pair(sides[0], sides[1]))
    if as_json:
        write_json(msgspec.json.encode(explanation))
    else:
        _show(explanation, verbose=verbose, with_diff=with_diff)


def _of_index(
    directory: Path, context: click.Context, scheme: Scheme, options: VerdictOptions
) -> tuple[Scheme, VerdictOptions, bytes]:
    """Return scheme, options and seed of an index. Raises SchemeMismatchError if others were named; the seed
    need not be."""
    from stream.local.index import read_genesis, refuse_others

    def named(*parameters: str) -> bool:
        default = click.core.ParameterSource.DEFAULT
        return any(context.get_parameter_source(each) is not default for each in parameters)

    genesis = read_genesis(directory)
    keyed = scheme if scheme.seed_file else scheme.with_seed(genesis.seed)
    refuse_others(
        directory,
        genesis,
        keyed if named("scheme") else None,
        options if named("mode", "distance", "given") else None,
    )
    return genesis.scheme, genesis.options, genesis.seed


def _is_stored(text: str, *, anywhere: bool, digits: int) -> bool:
    """Whether an argument names a stored page: a URL or an id, and in an index any name that is no file."""
    place = _PLACE.fullmatch(text)
    if Path(text).exists() or (place and Path(place[1]).exists()):
        return False
    return bool(_STORED.match(text) or (anywhere and not _is_fingerprint(text, digits)))


def _is_fingerprint(text: str, digits: int) -> bool:
    return re.fullmatch(rf"(0x)?[0-9a-fA-F]{{{digits}}}", text) is not None


def _side(text: str, fingerprinter: PageFingerprinter, page_bytes: int, columns: Columns) -> ExplainedPage:
    from stream.errors import PageError
    from stream.judge.explain.explain import ExplainedPage, side_of_page
    from stream.pages.page import decode_page
    from stream.sources.open import open_source

    if not Path(text).exists() and _is_fingerprint(text, fingerprinter.scheme.width // 4):
        return ExplainedPage(name=text, fingerprint=int(text, 16))
    path, number, place = text, 1, None
    if not Path(text).exists() and (within := _PLACE.fullmatch(text)):
        path, number, place = within[1], int(within[2] or 1), within[3]
        if number == 0:
            raise SettingsError(f"source {text}: there is no page 0; the first one is {path}#1")
    messages = iter(open_source(path, columns=columns))
    if place is not None:
        messages = (message for message in messages if message.place == place)
    message = next(islice(messages, number - 1, None), None)
    if message is None:
        lacks = f"fewer than {quantity(number, 'page')}" if place is None else f"no page there ({place})"
        raise SettingsError(f"source {text}: it has {lacks}")
    try:
        page = decode_page(message.value, page_bytes)
        return side_of_page(text, page, fingerprinter)
    except PageError as error:
        named = PageError(error.reason, columns.translate(error.detail))
        raise SettingsError(f"source {text}: {named}") from None


_MEANINGS: Final = {
    "duplicate": "B is a near-duplicate of A",
    "recrawl": "B has the URL of A, and says the same",
    "unique": "B is no near-duplicate of A",
    "insufficient": "B has too little text to compare",
}
_COLOURS: Final = {"duplicate": "green", "recrawl": "green", "unique": "yellow", "insufficient": "red"}


def _show(explanation: Explanation, *, verbose: bool, with_diff: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)  # nothing is cut to the width of the terminal
    verdict = explanation.verdict
    meaning = _MEANINGS[verdict]
    if verdict == "unique" and any(check.name == "url" for check in explanation.checks):
        meaning = "B has the URL of A, and says something else"
    console.print(f"[bold {_COLOURS[verdict]}]{verdict}[/]: {meaning}")
    for line in _reasons(explanation, verbose=verbose):
        console.print(f"  {line}")
    if explanation.stored is not None:
        for line in _stored_reasons(explanation.stored):
            console.print(f"  {line}")
    if verbose:
        _show_pages(console, explanation)
        _show_bits(console, explanation)
        _show_tables(console, explanation)
        if explanation.features is not None:
            _show_features(console, explanation)
    if with_diff and explanation.shingles is not None:
        _show_shingles(console, explanation.shingles)
    hints = {
        "--diff marks what only one of the texts has": not with_diff
        and explanation.shingles is not None
        and any(explanation.shingles.counts[1:]),
        "--verbose shows all that was compared": not verbose,
        "--index DIR answers for an index, where A may be a duplicate itself, or kept out of full buckets": (
            explanation.stored is None and verdict == "duplicate"
        ),
    }
    if more := [hint for hint, has_more in hints.items() if has_more]:
        console.print(f"  [dim]{'; '.join(more)}[/]")


def _reasons(explanation: Explanation, *, verbose: bool) -> list[str]:
    """Return lines about the conditions of the verdict, the similarity first, and what the texts share."""
    order = ("text", "similarity", "distance", "url", "tables")
    lines = []
    for check in sorted(explanation.checks, key=lambda check: order.index(check.name)):
        colour = "green" if check.passed else "red"
        # That they are compared at all is worth a line only if something is wrong with it.
        if verbose or check.name not in ("url", "tables") or not check.passed or "full" in check.reason:
            lines.append(f"[{colour}]{'yes' if check.passed else 'no '}[/] {as_markup(check.reason)}")
    if explanation.same_text:
        lines.append("both texts are equal, but for case, punctuation and white space")
    elif explanation.shingles is not None:
        shared, only_a, only_b = explanation.shingles.counts
        total = quantity(shared + only_a + only_b, "shingle")
        lines.append(f"they share {shared:,} of {total}; only in A: {only_a:,}, only in B: {only_b:,}")
    return lines


def _stored_reasons(stored: StoredPair) -> list[str]:
    """Return lines about what a state directory makes of the pair."""
    where, lines = as_markup(stored.directory), []
    for name, page in (("A", stored.anchor), ("B", stored.page)):
        if page is None:
            lines.append(f"{where} does not have {name} (it has no recrawls, and no pages with little text)")
            continue
        what = "unique" if page.duplicate_of is None else f"a duplicate of {as_markup(page.duplicate_of)}"
        lines.append(f"in {where}, {name} is {what}")
        if page.superseded:
            whose = f"{name} is" if page.duplicate_of is None else "that page is"
            lines.append(f"  {whose} compared with nothing any more: its URL has a newer page")
    if stored.later:
        lines.append(f"in {where}, B came before A: see `neardup explain B A`")
    if stored.by_cluster is not None:
        lines.append("so B is compared with that page instead of A:")
        lines += [f"  {line}" for line in _reasons(stored.by_cluster, verbose=False)]
    if stored.candidacy is not None:
        lines.append(_describe_candidacy(stored.candidacy, "A" if stored.by_cluster is None else "that page"))
    if stored.page is None and stored.verdict is not None:
        named = f" of {as_markup(stored.named)}" if stored.named is not None else ""
        similarity = f" (similarity {stored.similarity})" if stored.similarity is not None else ""
        lines.append(f"{where} would judge B {stored.verdict}{named}{similarity}")
        if stored.joins is not None:
            own = stored.joins == stored.named
            joins = "become one itself" if own else f"join the cluster of {as_markup(stored.joins)}"
            lines.append(f"  the cluster of that page has no anchor any more, so B would {joins}")
    if (nearest := stored.nearest) is not None:
        lines.append(f"B is nearest to {as_markup(nearest.url)}: {nearest.reason}")
    return lines


def _describe_candidacy(candidacy: Candidacy, anchor: str) -> str:
    """Return a line about the place of an anchor among the candidates of B."""
    total, compared = quantity(candidacy.candidates, "candidate"), candidacy.compared
    if candidacy.place is None:
        return f"[red]no [/] B has {total} there, and {anchor} is none of them"
    first = "first is" if compared == 1 else f"first {compared:,} are"
    limit = f"{'all are' if compared == candidacy.candidates else f'the {first}'} compared"
    is_compared = candidacy.place <= compared
    mark = "[green]yes[/]" if is_compared else "[red]no [/]"
    return f"{mark} of {total} of B there, {anchor} is number {candidacy.place:,} by rank; {limit}"


def _show_pages(console: Any, explanation: Explanation) -> None:
    console.print(f"\n[bold]Pages[/] (mode {explanation.mode}, scheme {explanation.scheme})")
    digits = _mark_digits(explanation)
    for side, page in enumerate((explanation.anchor, explanation.page)):
        console.print(f"  {'AB'[side]}: {as_markup(page.name)}")
        if page.url not in (None, page.name):
            console.print(f"     {as_markup(page.url or '')}")
        sizes = {"token": page.tokens, "feature": page.features, "shingle": page.shingles}
        if counts := ", ".join(quantity(size, name) for name, size in sizes.items() if size is not None):
            console.print(f"     {counts}")
        if page.share is not None and page.share < 1:
            console.print(f"     {page.share:.1%} of its visible text")
        if page.text_hash is not None:
            console.print(f"     text hash {page.text_hash}")
        console.print(f"     fingerprint {digits[side]}")
    if explanation.estimated_similarity is not None or explanation.exact_similarity is not None:
        console.print(
            f"  similarity: {_number(explanation.estimated_similarity)} by sketch,"
            f" exactly {_number(explanation.exact_similarity)}"
        )
    if explanation.features is not None:
        console.print(
            f"  weights: cosine {explanation.features.cosine},"
            f" so about {explanation.features.expected_distance}"
            f" of {explanation.width} bits should differ; {explanation.distance} do"
        )


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
    """Print the bits of the fingerprints that differ, with the columns for which there are values."""
    if not explanation.bits:
        return
    columns: list[tuple[str, list[str | None]]] = [
        ("bit", [str(bit.bit) for bit in explanation.bits]),
        ("block", [None if bit.block is None else str(bit.block) for bit in explanation.bits]),
    ]
    for side, name in enumerate("AB"):
        margins = [bit.margins[side] for bit in explanation.bits]
        columns.append((f"margin in {name}", [None if each is None else f"{each:+.2%}" for each in margins]))
    shown = [(head, cells) for head, cells in columns if any(cell is not None for cell in cells)]
    rows = zip(*(cells for _, cells in shown), strict=True)
    _print_table(console, "Bits of the fingerprints that differ", [head for head, _ in shown], rows)


def _show_tables(console: Any, explanation: Explanation) -> None:
    """Print what brings the pages together: their minima, or the tables of fingerprints."""
    if explanation.equal_minima is not None:
        minima = explanation.equal_minima
        equal = ", ".join(str(number) for number, is_equal in enumerate(minima, 1) if is_equal)
        shared = [table for table in explanation.tables if not table.differing]
        console.print(f"\n[bold]Minima[/]\n  equal: {equal or 'none'} of {len(minima)}")
        console.print(f"  tables that bring the pages together: {_pairs(shared, kept_out=False)}")
        if any(table.kept_out for table in shared):
            console.print(f"  tables whose full bucket A did not enter: {_pairs(shared, kept_out=True)}")
        return
    if not explanation.tables:
        return
    colours = {"exact": "green", "missed": "red", "full": "red"}
    rows = []
    for probe in explanation.tables:
        differing = ", ".join(map(str, reversed(probe.differing)))
        blocks = " ".join(map(str, probe.blocks))
        outcome = "full" if probe.kept_out and not probe.differing else probe.met
        coloured = f"[{colours[outcome]}]{outcome}[/]"
        rows.append((str(probe.table), blocks, f"{probe.prefix_bits} bits", differing, coloured))
    heads = ["table", "blocks", "prefix", "bits that differ in it", "outcome"]
    _print_table(console, "Tables", heads, rows)


def _pairs(tables: Sequence[Probe], *, kept_out: bool) -> str:
    """Return which minima each of some tables has, counted from 1."""
    some = [each.blocks for each in tables if each.kept_out == kept_out]
    return ", ".join("+".join(str(minimum + 1) for minimum in blocks) for blocks in some) or "none"


def _print_table(console: Any, title: str, heads: list[str], rows: Iterable[Sequence[str | None]]) -> None:
    """Print a table whose cells are folded rather than cut."""
    from rich.table import Table

    table = Table(box=None, header_style="dim", padding=(0, 2))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(f"\n[bold]{title}[/]")
    console.print(table, soft_wrap=False)


def _show_features(console: Any, explanation: Explanation) -> None:
    assert explanation.features is not None  # noqa: S101  # checked by the caller
    columns = (explanation.features.shared, explanation.features.only_anchor, explanation.features.only_page)
    heads = [
        f"{head} ({count:,})"
        for head, count in zip(("shared", "only in A", "only in B"), explanation.features.counts, strict=True)
    ]

    def cell(features: list[Feature], place: int, sides: tuple[int, ...]) -> str:
        if place >= len(features):
            return ""
        feature = features[place]
        shares = " ".join(f"{feature.weights[side]:.2%}" for side in sides)
        return f"{as_markup(feature.feature)} [dim]{shares}[/]"

    rows = [
        (cell(columns[0], place, (0, 1)), cell(columns[1], place, (0,)), cell(columns[2], place, (1,)))
        for place in range(max(map(len, columns)))
    ]
    _print_table(console, "Features by weight", heads, rows)


def _show_shingles(console: Any, diff: ShingleDiff) -> None:
    """Print both texts, with marks and, on a terminal, colours around what is in no shared shingle."""
    from rich.text import Text

    def side_text(name: str, runs: list[TextRun], left_out: int, marks: tuple[str, str], style: str) -> Text:
        text = Text(f"{name} ")
        for run in runs:
            # So that no text imitates the marks.
            shown = _MARKS.sub(r"\\\g<0>", run.text)
            if run.shared:
                text.append(shown + " ")
            else:
                text.append(f"{marks[0]}{shown}{marks[1]}", style).append(" ")
        return text.append(f"(and {quantity(left_out, 'more run')})") if left_out else text

    console.print()
    console.print(side_text("A:", diff.anchor, diff.left_out[0], ("[-", "-]"), "red"))
    console.print(side_text("B:", diff.page, diff.left_out[1], ("{+", "+}"), "green"))
