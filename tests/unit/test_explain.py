"""`neardup explain` agrees with the judge."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stream.cli.options import with_verdict_options
from stream.errors import NeardupError, SettingsError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.explain.explain import ExplainedPage, explain, side_of_page, side_of_text
from stream.judge.explain.stored_pages import StoredPages
from stream.judge.rule import Rule
from stream.local.index import Index
from stream.messages.journal import Rows, SourceRange
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import Page
from stream.tables.design import Design
from tests.commands import interpreting, neardup
from tests.judged_crawls import judging, packed_minima
from tests.unit.test_sources import warc_record
from tests.url_digests import digest_of_url

FINGERPRINTER = PageFingerprinter()


def entry_of(rows: list[Row], scheme: Scheme) -> Entry:
    """Rows in one journal record."""
    source = SourceRange("c", "pages", "0" * 32, 0, 0, len(rows), len(rows), opening=True)
    return Entry(1, 0, b"", Rows.of(scheme, [source], rows, range(len(rows)), [None] * len(rows)))


def explained(*arguments: str | Path) -> dict[str, Any]:
    """What the command says of two pages, for programs."""
    found: dict[str, Any] = json.loads(neardup("explain", *arguments, "--json").stdout)
    return found


def edited(seed: int, length: int, edits: int, han: bool = False) -> tuple[str, str]:
    rng = np.random.default_rng(seed)
    alphabet = [chr(0x4E00 + i) for i in range(3000)] if han else [f"w{i}" for i in range(400)]
    words = [alphabet[i] for i in rng.integers(0, len(alphabet), length)]
    changed = list(words)
    for place in rng.integers(0, length, edits).tolist():
        changed[place] = alphabet[int(rng.integers(len(alphabet)))]
    glue = "" if han else " "
    return glue.join(words), glue.join(changed)


OPTIONS = [
    VerdictOptions(),
    VerdictOptions(bucket_cap=1, baselines=1),
    VerdictOptions(compared=1, baselines=3),
    VerdictOptions.paper(k=3),
]
FINGERPRINTERS = [
    FINGERPRINTER,
    PageFingerprinter(Scheme(sketch="minhash")),
    PageFingerprinter(Scheme(width=128)),
    PageFingerprinter(Scheme(width=32)),
]


@given(
    seed=st.integers(0, 2**32),
    length=st.integers(3, 400),
    edits=st.integers(0, 30),
    han=st.booleans(),
    same_url=st.booleans(),
    options=st.sampled_from(OPTIONS),
    fingerprinter=st.sampled_from(FINGERPRINTERS),
    cut=st.sampled_from([(None, None), (None, 2), (2, None)]),
)
@settings(max_examples=80, deadline=None)
def test_the_verdict_is_the_judges(
    seed: int,
    length: int,
    edits: int,
    han: bool,
    same_url: bool,
    options: VerdictOptions,
    fingerprinter: PageFingerprinter,
    cut: tuple[int | None, int | None],
    tmp_path_factory,
) -> None:
    assume(not options.strict or fingerprinter.scheme.width <= 64)
    assume(not options.strict or options.largest_distance < fingerprinter.scheme.width)
    first, second = (text[:end] for text, end in zip(edited(seed, length, edits, han), cut, strict=True))
    urls = ("http://a.example/", "http://a.example/#top" if same_url else "http://b.example/")
    pages = [Page(url=url, text=text) for url, text in zip(urls, (first, second), strict=True)]
    sides = [side_of_page(page.url, page, fingerprinter) for page in pages]
    found = explain(*sides, fingerprinter.scheme, options)
    entry = entry_of([fingerprinter.page(page) for page in pages], fingerprinter.scheme)
    with judging(tmp_path_factory.mktemp("state") / "s", options, scheme=fingerprinter.scheme) as judge:
        verdict = list(judge.decide([entry]).verdict_records())[-1]
    assert found.verdict == verdict.verdict
    if verdict.verdict in ("duplicate", "recrawl"):
        assert (found.distance, all(check.passed for check in found.checks)) == (verdict.distance, True)
        assert verdict.similarity in (found.estimated_similarity, None)
    elif found.verdict == "unique":
        assert not all(check.passed for check in found.checks)


@pytest.mark.parametrize("full", [0, 1, 2, 3, 4, 9])
def test_rule_16_an_anchor_that_stayed_out_of_full_buckets_is_explained(tmp_path: Path, full: int) -> None:
    """Pages of one template fill the buckets before the anchor comes."""
    rng = np.random.default_rng(full)
    scheme, options = FINGERPRINTER.scheme, VerdictOptions(bucket_cap=1)
    # The copy has three of the first pairs in common with the anchor, and all that are in reserve.
    minima, shared = packed_minima([*range(1, 31)]), packed_minima([1, 2, 3, *[0] * 6, *range(10, 31)])

    def row(number: int, word: int, content: bytes) -> Row:
        url = f"http://h.example/{number}"
        sketch = content + (900).to_bytes(8, "little") + word.to_bytes(64, "little")
        return Row(Status.READY, url, None, digest_of_url(url), 7, sketch=sketch)

    texts = [rng.bytes(scheme.sketch_bins // 8) for _ in range(full + 1)]
    rows = [row(number, minima, text) for number, text in enumerate(texts)]
    rows.append(row(full + 1, shared, texts[-1]))
    entry = entry_of(rows, scheme)
    with judging(tmp_path / "s", options, scheme=scheme) as judge:
        decided = judge.decide([entry])
        verdict = list(decided.verdict_records())[-1].verdict
        skipped = decided.verdicts.skipped.get(full, 0)
        judge.apply([entry], decided.record())
    with StoredPages(tmp_path / "s", FINGERPRINTER, options) as pages:
        sides = [pages.side(f"abababab.1.{number}") for number in (full, full + 1)]
    found = explain(*sides, scheme, options)  # type: ignore[arg-type]
    assert found.verdict == verdict
    assert (skipped > 0) == ("was kept out of" in found.checks[0].reason) == (full > 0)
    assert found.checks[0].passed == (verdict == "duplicate")
    for table in found.tables:
        unusual = skipped >> table.table & 1
        if table.table < 9:
            assert not unusual or (table.kept_out and table.met == "missed")
        else:  # of reserves, those that the anchor entered are listed
            assert unusual


@pytest.mark.parametrize("features", ["words", "ngrams", "shingles"])
@pytest.mark.parametrize("width", [32, 64, 128])
def test_margins_have_the_sign_of_the_bit(features: str, width: int) -> None:
    scheme = Scheme(features=features, width=width)  # type: ignore[arg-type]
    fingerprinter = PageFingerprinter(scheme)
    first, second = edited(1, 300, 20)
    sides = [side_of_text(name, None, text, fingerprinter) for name, text in (("a", first), ("b", second))]
    found = explain(*sides, scheme, VerdictOptions())
    assert found.distance == len(found.bits) > 0
    for bit in found.bits:
        for side, margin in zip(sides, bit.margins, strict=True):
            assert margin is not None
            assert (margin > 0) == bool(side.fingerprint >> bit.bit & 1) or margin == 0
    assert len(found.tables) == 9
    assert found.features is not None
    assert found.features.expected_distance == pytest.approx(found.distance, abs=8 + width / 8)


def test_minima_that_are_the_same_bring_two_pages_together() -> None:
    options, minima = VerdictOptions(), [100 * each for each in range(30)]
    for same in range(10):
        words = packed_minima(minima), packed_minima([*minima[:same], *[1] * (9 - same), *minima[9:]])
        sketches = (bytes(248) + word.to_bytes(64, "little") for word in words)
        sides = (ExplainedPage("page", 7, sketch=sketch) for sketch in sketches)
        found = explain(*sides, FINGERPRINTER.scheme, options)
        pairs = same // 3 * 3 + (same % 3 == 2)
        assert sum(table.met == "exact" for table in found.tables) == pairs
        assert found.checks[0].passed == (pairs > 0)
        assert f"{pairs} of the 9 pairs of minima that" in found.checks[0].reason
        assert found.equal_minima == [*[True] * same, *[False] * (9 - same), *[True] * 21]


def test_tables_meet_where_keys_are_equal() -> None:
    rng = np.random.default_rng(2)
    options = VerdictOptions.paper()
    design = Design(options.blocks, options.choose)
    for _ in range(100):
        a = int(rng.integers(0, 1 << 64, dtype=np.uint64))
        b = a ^ sum(1 << bit for bit in set(rng.integers(0, 64, 5).tolist()))
        found = explain(ExplainedPage("a", a), ExplainedPage("b", b), FINGERPRINTER.scheme, options)
        anchor, page = design.keys(np.array([a, b], np.uint64))
        assert [table.met == "exact" for table in found.tables] == (anchor == page).tolist()


def test_exact_similarity_is_jaccards() -> None:
    text = " ".join(f"w{i}" for i in range(30))
    sides = [
        side_of_text("a", None, text, FINGERPRINTER),
        side_of_text("b", None, text + " x", FINGERPRINTER),
    ]
    found = explain(*sides, FINGERPRINTER.scheme, VerdictOptions())
    assert found.exact_similarity == round(26 / 27, 4)
    assert found.features is not None
    assert found.features.counts == (30, 0, 1)
    assert [feature.feature for feature in found.features.only_page] == ["x"]


@pytest.mark.parametrize(
    ("length", "edits", "how", "least"),
    [(140, 2, "counted", 0.8), (250, 3, "estimated", 0.8), (600, 9, "estimated", 0.798)],
)
def test_similarity_is_called_counted_where_it_is_as_good_as_exact(
    length: int, edits: int, how: str, least: float
) -> None:
    """To readers the limit is one number; the JSON has that of the pair."""
    sides = [side_of_text("it", "", text, FINGERPRINTER) for text in edited(1, length, edits)]
    found = explain(*sides, FINGERPRINTER.scheme, VerdictOptions(margin="0.002"))
    similarity, reasons = found.estimated_similarity, [check.reason for check in found.checks]
    assert f"{how} similarity {similarity}; at least 0.8 is required" in reasons
    assert found.least_similarity == least
    assert how == "estimated" or similarity == int(found.exact_similarity * 10_000) / 10_000
    without = explain(*sides, FINGERPRINTER.scheme, VerdictOptions(margin="0"))
    assert f"{how} similarity {similarity}; " in " ".join(check.reason for check in without.checks)


def test_files_messages_and_places_are_explained(tmp_path: Path) -> None:
    first, second = edited(3, 200, 3)
    (tmp_path / "a.html").write_text(f"<html><body><main><p>{first}</p></main></body></html>")
    lines = [
        json.dumps({"url": f"http://x.example/{i}", "text": text}) for i, text in enumerate((first, second))
    ]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    pair = (tmp_path / "a.html", f"{tmp_path}/pages.jsonl#2")
    found = explained(*pair)
    assert (found["verdict"], found["page"]["url"]) == ("duplicate", "http://x.example/1")
    shown = neardup("explain", *pair).stdout
    assert shown.startswith("duplicate")
    assert len(shown.splitlines()) == 4
    assert "[-" not in shown
    shown = neardup("explain", *pair, "--verbose", "--diff").stdout
    for heading in ("Pages", "Bits of the fingerprints", "Minima", "Features by weight", "similarity:", "[-"):
        assert heading in shown
    assert "block" not in shown


def test_a_page_is_named_by_the_origin_of_its_verdict(tmp_path: Path) -> None:
    first, second = edited(3, 200, 3)
    record = warc_record("http://x.example/2", f"<main><p>{second}</p></main>".encode())
    (tmp_path / "crawl.warc").write_bytes(record * 2)
    line = json.dumps({"url": "http://x.example/1", "text": first})
    (tmp_path / "pages.jsonl").write_text(f"\n{line}\n")  # an empty line is no page, and counts as a line
    sources = (tmp_path / "pages.jsonl", tmp_path / "crawl.warc")
    neardup("scan", *sources, "-o", tmp_path / "verdicts.jsonl")
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    sides = [f"{verdict['origin']['file']}#{verdict['origin']['place']}" for verdict in verdicts]
    assert [side.rpartition("#")[2].rpartition(" ")[0] for side in sides] == ["line", *["record at byte"] * 2]
    found = explained(sides[0], sides[2])
    assert (found["verdict"], found["page"]["url"]) == ("duplicate", "http://x.example/2")
    number = f"{tmp_path}/crawl.warc#page 2"  # as dedup names it
    assert explained(sides[0], number)["page"]["url"][-1] == "2"
    with pytest.raises(SettingsError, match=r"it has no page there \(line 9\)"):
        neardup("explain", f"{tmp_path}/pages.jsonl#line 9", sides[1])


def test_nothing_is_cut_on_a_narrow_terminal(tmp_path: Path) -> None:
    url = f"http://x.example/{'long/' * 30}"
    text = edited(3, 100, 0)[0] + " " + "x" * 60
    (tmp_path / "a.jsonl").write_text(json.dumps({"url": url, "text": text}))
    pair = (f"{tmp_path}/a.jsonl#1", f"{tmp_path}/a.jsonl#1")
    shown = neardup("explain", *pair, "-v", env={"COLUMNS": "40"}).stdout
    found = explained(*pair)
    for whole in (url, found["anchor"]["text_hash"], found["anchor"]["fingerprint"], found["anchor"]["name"]):
        assert whole in shown
    assert "\u2026" not in shown


@pytest.mark.parametrize("similarity", [7979, 7980, 7999, 8000])
def test_the_limit_is_one_number_and_the_allowance_stands_where_it_decides(similarity: int) -> None:
    rule = Rule(VerdictOptions(), FINGERPRINTER.scheme)
    told = rule.describe_limit(similarity, rule.least_similarity)
    allowed = "0.8, less 0.002 for the noise of the estimate,"
    assert told == (allowed if 7980 <= similarity < 8000 else "0.8")
    assert rule.describe_limit(similarity, rule.least_listed) == "0.8"


@pytest.mark.parametrize(
    ("flags", "similarity", "limit"),
    [
        (("--similarity", "0.8"), VerdictOptions().similarity, "0.8"),
        (("--similarity", "0.80"), VerdictOptions().similarity, "0.8"),
        (("--similarity", ".9"), "0.898", "0.9"),
        (("--similarity", ".9", "--option", "margin=0.01"), "0.89", "0.9"),
        (("--similarity", "0.001"), "0.0", "0.002"),
        (("--similarity", "1"), "1", "1"),
    ],
)
def test_the_limit_that_is_named_is_the_limit_that_is_told(
    flags: tuple[str, ...], similarity: str, limit: str, tmp_path: Path
) -> None:
    (tmp_path / "pages.jsonl").write_text(json.dumps({"url": "http://a.example/", "text": "word " * 20}))
    pair = [f"{tmp_path}/pages.jsonl#1"] * 2
    assert f"; at least {limit} is required" in neardup("explain", *pair, *flags).stdout
    taken: list[VerdictOptions] = []
    click.command("it")(with_verdict_options(lambda options: taken.append(options))).main(
        list(flags), standalone_mode=False
    )
    assert taken[0].similarity == similarity


@pytest.mark.night
def test_python_and_machine_code_explain_alike(tmp_path: Path) -> None:
    """`neardup explain` interprets the loops of the judge, as compiling them for two pages takes 12 s."""
    lines = []
    for seed, length in enumerate((40, 200, 500, 3000)):
        texts = edited(seed, length, length // 30, han=seed == 1)
        lines += [json.dumps({"url": f"http://{i}.example/", "text": text}) for i, text in enumerate(texts)]
    pages = tmp_path / "pages.jsonl"
    pages.write_text("\n".join(lines))
    for first in (1, 3, 5, 7):
        for options in ((), ("--mode", "strict")):
            pair = ("explain", f"{pages}#{first}", f"{pages}#{first + 1}", "--json", *options)
            done = subprocess.run(
                [sys.executable, "-m", "stream.cli", *pair],
                env=interpreting(), capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert done.stdout == neardup(*pair).stdout
            assert not done.stderr


def chain() -> list[str]:
    """Texts of which each is like the one before it, and not like those before that."""
    words = [f"w{i}" for i in range(400)]
    texts = []
    for number in range(3):
        texts.append(" ".join(words))
        for place in range(number, 400, 45):
            words[place] = f"other{number}x{place}"
    return texts


def test_a_page_of_an_index_that_is_a_duplicate_itself_is_not_what_counts(tmp_path: Path) -> None:
    texts = chain()
    names = [f"http://{name}.example/" for name in "abc"]
    (tmp_path / "pages.jsonl").write_text(
        "\n".join(json.dumps({"url": name, "text": text}) for name, text in zip(names, texts, strict=True))
    )
    index = tmp_path / "index"
    with Index(index) as made:
        answers = list(made.add_all(list(zip(names, texts, strict=True))))
    assert [answer.verdict for answer in answers] == ["unique", "duplicate", "unique"]
    files = (f"{tmp_path}/pages.jsonl#2", f"{tmp_path}/pages.jsonl#3")
    for pair in (names[1:], [answers[1].id, names[2]], files):
        found = explained(*pair, "--index", index)
        stored = found["stored"]
        assert (found["verdict"], stored["verdict"]) == ("duplicate", "unique")
        assert stored["anchor"]["duplicate_of"] == names[0]
        assert (stored["anchor"]["verdict"], stored["page"]["verdict"]) == ("duplicate", "unique")
        assert stored["by_cluster"]["estimated_similarity"] < 0.8 < found["estimated_similarity"]
        shown = neardup("explain", *pair, "--index", index).stdout
        assert f"A is a duplicate of {names[0]}" in shown
        assert "so B is compared with that page instead of A:\n" in shown
    first = explained(names[0], names[1], "--index", index)["stored"]
    assert (first["verdict"], first["by_cluster"], first["later"]) == ("duplicate", None, False)
    assert "B came before A" in neardup("explain", names[1], names[0], "--index", index).stdout
    (tmp_path / "seed").write_text("ab" * 16)
    for arguments, said in (
        ((*names[1:], "--option", "baselines=3"), "was made with other verdict options"),
        ((*names[1:], "--scheme", "shingle=4"), "has scheme"),
        ((*names[1:], "--scheme", f"seed_file={tmp_path}/seed"), "has scheme"),
        (("nowhere", names[1]), "has no page with that URL or id"),
        ((*names[1:], "--index", tmp_path / "none"), "there is no index"),
    ):
        with pytest.raises(NeardupError, match=said):
            neardup("explain", "--index", index, *arguments)


def test_an_anchor_of_an_index_whose_url_has_a_newer_page_is_compared_with_nothing(tmp_path: Path) -> None:
    first, second = edited(4, 200, 2)
    other = edited(5, 200, 0)[0]
    with Index(tmp_path / "index") as index:
        old = index.add("http://a.example/", first)
        index.add("http://a.example/", other)
        assert index.add("plain name", second).verdict == "unique"
    pair = (old.id, "plain name", "--index", tmp_path / "index")
    found = explained(*pair)
    assert (found["verdict"], found["stored"]["verdict"]) == ("duplicate", "unique")
    assert found["stored"]["anchor"]["superseded"]
    assert "A is compared with nothing any more: its URL has a newer page" in neardup("explain", *pair).stdout


def test_an_index_is_explained_that_does_not_compare_the_anchor_for_its_rank(tmp_path: Path) -> None:
    """B is between two anchors that are not alike, and has only the one of less rank compared."""
    words = edited(7, 400, 0)[0].split()
    far, near = (
        " ".join(f"changed{place}" if place % step == first else word for place, word in enumerate(words))
        for step, first in ((50, 7), (90, 30))
    )
    (tmp_path / "seed").write_text("07" * 16)
    scheme, options = Scheme(seed_file=str(tmp_path / "seed")), VerdictOptions(compared=1)
    with Index(tmp_path / "index", scheme=scheme, options=options) as index:
        assert [index.add(name, text).verdict for name, text in (("far", far), ("near", near))] == [
            "unique"
        ] * 2
    (tmp_path / "b.jsonl").write_text(json.dumps({"url": "http://b.example/", "text": " ".join(words)}))
    pair = ("far", tmp_path / "b.jsonl", "--index", tmp_path / "index")
    found = explained(*pair)
    assert (found["verdict"], found["stored"]["verdict"], found["stored"]["named"]) == (
        "duplicate",
        "duplicate",
        "near",
    )
    assert found["stored"]["candidacy"] == {"candidates": 2, "place": 2, "compared": 1}
    shown = neardup("explain", *pair).stdout
    assert "no  of 2 candidates of B there, A is number 2 by rank; the first is compared" in shown
    assert "would judge B duplicate of near (similarity 0." in shown


@pytest.mark.parametrize("strict", [True, False])
def test_a_fingerprint_alone_is_judged_by_an_index_in_strict_mode_only(tmp_path: Path, strict: bool) -> None:
    options = VerdictOptions.paper() if strict else VerdictOptions()
    with Index(tmp_path / "index", options=options) as index:
        index.add("a", edited(4, 200, 0)[0])
    pair = ("a", "--index", tmp_path / "index")
    fingerprint = explained(*pair, "a")["anchor"]["fingerprint"]
    stored = explained(*pair, fingerprint)["stored"]
    judged_alone = ("duplicate", "a", {"candidates": 1, "place": 1, "compared": 1})
    assert (stored["verdict"], stored["named"], stored["candidacy"]) == (
        judged_alone if strict else (None, None, None)
    )
    assert ("would judge B" in neardup("explain", *pair, fingerprint).stdout) == strict


def test_an_index_judges_a_page_without_text_and_one_that_comes_again(tmp_path: Path) -> None:
    first, second = edited(4, 200, 2)
    with Index(tmp_path / "index") as index:
        index.add("http://a.example/", first)
    lines = [{"url": "http://b.example/", "text": " "}, {"url": "http://a.example/", "text": second}]
    (tmp_path / "pages.jsonl").write_text("\n".join(map(json.dumps, lines)))
    pair = ("http://a.example/", "--index", tmp_path / "index")
    for number, want in ((1, ("insufficient", None)), (2, ("recrawl", "http://a.example/"))):
        stored = explained(*pair, f"{tmp_path}/pages.jsonl#{number}")["stored"]
        assert (stored["verdict"], stored["named"], stored["page"]) == (*want, None)
    shown = neardup("explain", *pair, f"{tmp_path}/pages.jsonl#2").stdout
    assert "would judge B recrawl of http://a.example/ (similarity 0." in shown


def test_fingerprints_alone_tell_distance_and_tables() -> None:
    found = explained("0123456789abcdef", "0123456789abcdee", "--mode", "strict")
    assert (found["verdict"], found["distance"], len(found["tables"])) == ("duplicate", 1, 10)
    assert [table["met"] for table in found["tables"]].count("exact") == 6
    assert found["features"] is None
    assert neardup("explain", "0123456789abcdef", "fedcba9876543210").stdout.startswith("unique")


def test_pages_of_a_state_directory_are_explained_by_url_and_id(tmp_path: Path) -> None:
    first, second = edited(4, 200, 2)
    other = edited(5, 200, 0)[0]
    texts = [("http://a.example/1", first), ("http://b.example/2", second), ("http://c.example/3", other)]
    pages = [Page(url=url, text=text) for url, text in texts]
    entry = entry_of([FINGERPRINTER.page(page) for page in pages], FINGERPRINTER.scheme)
    with judging(tmp_path / "neardup" / "judge", scheme=FINGERPRINTER.scheme) as judge:
        judge.apply([entry], judge.decide([entry]).record())
    lines = [json.dumps({"url": page.url, "text": page.text}) for page in pages]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    where = ("--state-dir", tmp_path)
    wanted = explained(f"{tmp_path}/pages.jsonl#1", f"{tmp_path}/pages.jsonl#2")
    for anchor in ("http://a.example/1#top", "abababab.1.0"):
        for page in ("http://b.example/2", "abababab.1.1"):
            found = explained(anchor, page, *where)
            for name in ("distance", "estimated_similarity", "least_similarity"):
                assert found[name] == wanted[name]
            assert found["anchor"]["url"] == "http://a.example/1"
        found = explained(anchor, f"{tmp_path}/pages.jsonl#2", *where)
        assert (found["verdict"], found["tables"]) == ("duplicate", wanted["tables"])
    for arguments, said in (
        (("http://nowhere.example/",), "has no page with that URL or id"),
        (("cdcdcdcd.1.0",), "belongs to another journal"),
        (("abababab.1.1", "--option", "baselines=3"), "other verdict options"),
        (("abababab.1.1", "--scheme", "shingle=4"), "has scheme"),
    ):
        with pytest.raises(NeardupError, match=said):
            neardup("explain", "abababab.1.0", *arguments, *where)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.html", "0123456789abcdee"], r"source nowhere\.html"),
        (["{path}/bad.jsonl", "0123456789abcdee"], r"bad\.jsonl: missing_field"),
        (["{path}/bad.jsonl#7", "0123456789abcdee"], "fewer than 7 pages"),
        (["{path}/bad.jsonl#0", "0123456789abcdee"], r"#0: there is no page 0"),
        (["0" * 32, "1" * 32, "--mode", "strict", "--scheme", "width=128"], "take at most 64"),
        (["http://a/", "http://b/", "--state-dir", "{path}/none"], "--index, and a page of a file as FILE#3"),
    ],
)
def test_what_cannot_be_explained_is_named(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"url": "http://a.example/"}')
    with pytest.raises(NeardupError, match=said):
        neardup("explain", *(each.format(path=tmp_path) for each in arguments))


def test_a_page_is_explained_with_the_share_of_its_visible_text() -> None:
    """Pages whose text is a small share of what they show may be alike in what remains alone."""
    article = "The journal gives every page one place in one order, whoever asks. " * 5
    html = f"<nav><a href='/'>{'Home of all ' * 9}</a></nav><main><p>{article}</p></main>"
    sides = [
        side_of_page("a", Page(url="http://a.example/", html=html), FINGERPRINTER),
        side_of_page("b", Page(url="http://b.example/", text=article), FINGERPRINTER),
        side_of_text("c", None, article, FINGERPRINTER),
    ]
    assert [side.share and round(side.share, 1) for side in sides] == [0.8, 1.0, None]
    assert explain(sides[0], sides[1], FINGERPRINTER.scheme, VerdictOptions()).anchor.share == 0.772
