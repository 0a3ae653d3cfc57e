"""Blocks have the features that their names say, and the scores that trees give them."""

from __future__ import annotations

import numpy as np
import pytest

from stream.text.block_features import COLUMNS, CONTEXT, FEATURES, add_context, features
from stream.text.block_scores import FEW, HOPELESS, UNIT, chances, sums
from stream.text.blocks import NAME, Blocks, read
from stream.text.content_model import Model, boxes, hash_of, hashed_table, made, model, stems
from tests.learned_content.boosting import learn

PAGE = """<html><head><title>The old pier - Harbour news</title></head><body class="single">
<nav id="menu"><ul><li><a href="/">Home</a></li><li><a href="/a">Ships</a></li></ul></nav>
<article class="post"><h1>The old pier</h1><p class="lead">In 1904 it was new, and long; now it is neither.
It will be repaired before winter.</p><div>Second, 2 ships.<br>Third.</div></article>
<form><p>Bitte geben Sie Ihre Einwilligung: Cookies! Kommentar?</p><input><textarea></textarea></form>
</body></html>"""
HOME, SHIPS, HEADING, LEAD, SECOND, CONSENT = range(6)


def rows_of(page: str, tables: Model) -> tuple[Blocks, np.ndarray]:
    blocks = read(page.encode())
    return blocks, features(blocks, tables.names, tables.words, tables.boxes)


NAMED = made(
    {hash_of("menu"): -30, hash_of("post"): 20, hash_of("lead"): 7}, {hash_of("ships"): -9}, boxes(), ([], [])
)


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        ("links", {HOME: 1000, LEAD: 0}),
        ("link count", {HOME: 1, LEAD: 0}),
        ("size", {HOME: 16, HEADING: 26}),
        ("punctuation", {LEAD: 4, SECOND: 3, CONSENT: 3}),
        ("digits", {HOME: 0, LEAD: 59}),
        ("lines", {LEAD: 0, SECOND: 1}),
        ("page title", {HOME: 0, HEADING: 2, LEAD: 0}),
        ("from title", {HOME: -2, HEADING: 0, CONSENT: 3}),
        ("from heading", {HOME: 99, LEAD: 1}),
        ("bar", {HOME: 1, LEAD: 0}),
        ("content", {HOME: 0, LEAD: 1, CONSENT: 0}),
        ("item", {HOME: 1, LEAD: 0}),
        ("form", {LEAD: 0, CONSENT: 1}),
        ("article", {HOME: 0, LEAD: 1, CONSENT: 0}),
        ("own names", {HEADING: 0, LEAD: 7}),
        ("least names", {HOME: -30, LEAD: 0}),
        ("most names", {HOME: 0, LEAD: 20}),
        ("words against", {HOME: 0, SHIPS: -9, SECOND: -9}),
        ("words against after", {HOME: -9, LEAD: -9}),
        ("consent words", {LEAD: 0, CONSENT: 2}),
        ("box words", {LEAD: 0, CONSENT: 1}),
        ("alike above", {HOME: 2, LEAD: 1}),
        ("controls of level 0", {LEAD: 0, CONSENT: 2}),
        ("free of -1", {HOME: -1, SHIPS: 0}),
        ("links of +1", {HOME: 1000, CONSENT: -1}),
    ],
)
def test_features_are_what_their_names_say(feature: str, values: dict[int, int]) -> None:
    _, rows = rows_of(PAGE, NAMED)
    column = rows[:, FEATURES.index(feature)].tolist()
    assert {block: column[block] for block in values} == values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Einwilligung EINWILLIGEN zustimmen", 3),
        ("Согласие согласен", 2),
        ("Συγκατάθεση", 1),
        ("الموافقة", 1),
        ("すべて同意する", 1),
        ("我拒绝", 1),
        ("개인정보 동의", 2),
        ("คุกกี้", 5),
        ("einverstanden, cookiebär", 1),
        ("the content of a book", 0),
    ],
)
def test_words_of_consent_are_known_in_any_script(text: str, words: int) -> None:
    _, rows = rows_of(f"<p>{text}</p>", NAMED)
    assert rows[0, FEATURES.index("consent words")] == words


def test_names_have_the_hashes_of_their_words() -> None:
    page = read('<div class="Post entry-Title" id=main role="naïve">x</div>'.encode())
    assert page.names[:, NAME].tolist() == [
        hash_of(each) for each in ("post", "entry", "title", "main", "naïve")
    ]


def test_stems_are_six_letters_or_two_characters_of_a_script_without_spaces() -> None:
    assert stems("einwilligung") == ["einwil"]
    assert stems("согласие") == ["соглас"]
    assert stems("プライバシー") == ["プラ", "ライ", "イバ", "バシ", "シー"]


def test_scores_are_the_sums_of_the_leaves_that_a_row_reaches() -> None:
    tables = made({}, {}, {}, (["1:5 10 0:2 20 30", "7"], ["2:0 1 2"]))
    rows = np.array([[0, 5, 0], [2, 6, 1], [3, 6, -1]], np.int16)
    assert sums(rows, tables.nodes, tables.roots[0]).tolist() == [17, 27, 37]
    assert sums(rows, tables.nodes, tables.roots[1]).tolist() == [1, 2, 1]


def test_a_row_that_is_hopeless_after_few_trees_is_asked_no_more() -> None:
    leaf = HOPELESS // FEW - 1
    tables = made({}, {}, {}, (["0:0 0 " + str(leaf)] * FEW + ["1000"] * 5, []))
    rows = np.array([[0], [1]], np.int16)
    assert sums(rows, tables.nodes, tables.roots[0]).tolist() == [5000, 2 * FEW * leaf]


def test_a_chance_is_that_of_the_score() -> None:
    scores = np.array([-99, -1, 0, 1, 99], np.int32) * UNIT
    assert chances(scores).tolist() == [1, 269, 500, 731, 999]


def test_the_second_stage_sees_the_scores_around_a_block() -> None:
    blocks, rows = rows_of(PAGE, NAMED)
    scores = np.array([0, 0, 900, 600, 300, 100], np.int32)
    add_context(blocks.blocks, blocks.containers, scores, len(FEATURES), rows)
    context = {name: rows[LEAD, len(FEATURES) + place] for place, name in enumerate(CONTEXT)}
    expected = {
        "first score": 600,
        "score of -1": 900,
        "score of +1": 300,
        "score of +3": -1,
        "best score": 900,
    }
    assert {name: context[name] for name in expected} == expected
    assert context["best before"] == 900
    assert context["best after"] == 300
    assert rows.shape == (6, COLUMNS)


def test_hash_tables_have_every_value_and_no_other() -> None:
    table = hashed_table({key * 64: key for key in range(1, 200)})
    assert sorted(table[1][table[0] > 0].tolist()) == list(range(1, 200))
    assert len(table[0]) & len(table[0]) - 1 == 0


def test_the_tables_of_the_program_name_columns_that_there_are() -> None:
    nodes = model().nodes
    assert all(len(stage) for stage in model().roots)
    assert nodes[0].max() < COLUMNS
    first = nodes[0, : model().roots[1][0]]
    assert first.max() < len(FEATURES)


def test_the_same_rows_teach_the_same_trees_and_what_they_show() -> None:
    random = np.random.default_rng(5)
    rows = random.integers(0, 100, (2000, 4)).astype(np.int16)
    labels = ((rows[:, 0] > 50) ^ (rows[:, 1] > 30)).astype(np.int8)
    written = learn(rows, labels, np.ones(2000), trees=30, leaves=6, rate=0.3)
    assert written == learn(rows, labels, np.ones(2000), trees=30, leaves=6, rate=0.3)
    tables = made({}, {}, {}, (written, []))
    assert ((sums(rows, tables.nodes, tables.roots[0]) > 0) == labels).mean() > 0.97
