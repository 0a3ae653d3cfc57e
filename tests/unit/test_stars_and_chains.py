"""What stars and chains keep of pages of which A is like B, and B like C, but A not like C."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stream.dedup.chains import Components
from tests.bench.quality.truth import Truth
from tests.commands import neardup
from tests.kafka.judge_helpers import text

pytestmark = pytest.mark.usefixtures("no_children")

WORDS = (text("stars") + " " + text("chains")).split()[:60]
PAGES = {
    "A": WORDS,
    "B": ["four", "other", "words", "here", *WORDS[4:]],
    "C": ["four", "other", "words", "here", *WORDS[4:-4], "and", "another", "few", "there"],
}
TEXTS = {name: " ".join(words) for name, words in PAGES.items()}


def test_b_is_like_a_and_c_which_are_not_alike() -> None:
    truth = Truth([TEXTS[name] for name in "ABC"])
    alike = [truth.similarity(one, two) >= 0.8 for one, two in ((0, 1), (1, 2), (0, 2))]
    assert alike == [True, True, False]


@pytest.mark.parametrize(
    ("order", "clusters", "kept"),
    [
        ("AB", "stars", "A"),
        ("AB", "chains", "A"),
        ("ABC", "stars", "AC"),
        ("ABC", "chains", "A"),
        ("BAC", "stars", "B"),
        ("BAC", "chains", "B"),
        ("ACB", "stars", "AC"),
        ("ACB", "chains", "A"),
    ],
)
def test_stars_keep_what_is_unlike_and_chains_one_page(
    order: str, clusters: str, kept: str, tmp_path: Path
) -> None:
    source, output, dropped = (tmp_path / name for name in ("pages.jsonl", "kept.jsonl", "dropped.jsonl"))
    source.write_text("".join(json.dumps({"id": name, "text": TEXTS[name]}) + "\n" for name in order))
    arguments = (source, "--id-column", "id", "--clusters", clusters, "-o", output, "--dropped", dropped)
    result = neardup("dedup", "--worker-processes", "1", *arguments)
    assert result.exit_code == 0, result.output
    assert "Warning" not in result.output
    assert "".join(json.loads(line)["id"] for line in output.read_text().splitlines()) == kept
    named = [json.loads(line) for line in dropped.read_text().splitlines()]
    assert {line["url"][-1] for line in named} == set(order) - set(kept)
    assert {line["kept_url"][-1] for line in named} <= set(kept)


@pytest.mark.parametrize("seed", range(5))
def test_components_are_those_of_a_plain_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 60
    pairs = rng.integers(0, count, (40, 2))
    components = Components(count)
    components.join(*pairs.T.tolist())
    smallest = list(range(count))
    for _ in range(count):  # as far as a chain may reach
        for one, two in pairs.tolist():
            smallest[one] = smallest[two] = min(smallest[one], smallest[two])
    assert components.roots().tolist() == smallest
