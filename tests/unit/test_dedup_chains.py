"""Chains join pages that are alike through others; stars, those that are like the first page of a cluster."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.dedup.chains import Components
from stream.dedup.election import MEMORY, open_election
from stream.errors import SettingsError
from tests.commands import neardup
from tests.kafka.judge_helpers import text
from tests.unit.test_dedup import dedup, lines, pages, write

pytestmark = pytest.mark.usefixtures("no_children")


def chain(length: int) -> list[dict[str, Any]]:
    """Pages each of which is like the next, and not like those further away."""
    words = text("chain", 400).split()
    return [
        {"url": f"https://{n}.example/", "text": " ".join(words[n * 20 : n * 20 + 200])}
        for n in range(length)
    ]


def test_a_chain_is_one_cluster_and_several_stars(tmp_path: Path) -> None:
    others = [{"url": f"https://a.example/{n}", "text": text(n)} for n in range(5)]
    source = write(tmp_path / "pages.jsonl", [*chain(8), *others])
    stars = dedup(source, "-o", tmp_path / "stars.jsonl")
    report = tmp_path / "dropped.jsonl"
    chains = dedup(source, "-o", tmp_path / "chains.jsonl", "--clusters", "chains", "--dropped", report)
    assert 7 <= stars["kept"] < 13
    assert (chains["kept"], chains["dropped"]) == (6, {"same cluster": 7})
    assert lines(tmp_path / "chains.jsonl") == [chain(1)[0], *others]
    assert {each["kept_url"] for each in lines(report)} == {"https://0.example/"}
    # Only the next page was compared with the first; verdicts compared the others with pages in between.
    alike = [each["url"] for each in lines(report) if each.get("similarity") is not None]
    assert alike == ["https://1.example/"]
    assert [each["url"] for each in chains["examples"]] == alike


@pytest.mark.parametrize("seed", range(3))
def test_chains_are_the_components_of_the_pairs_that_match_finds(seed: int, tmp_path: Path) -> None:
    """Of the newest versions, and of those too short to compare, each with its equals."""
    made = pages(90, seed) + chain(6)
    random.Random(seed).shuffle(made)
    source = write(tmp_path / "pages.jsonl", made)
    dedup(source, "-o", tmp_path / "stars.jsonl")
    dedup(source, "-o", tmp_path / "chains.jsonl", "--clusters", "chains")
    stars, chains = (lines(tmp_path / f"{name}.jsonl") for name in ("stars", "chains"))
    assert {each["url"] for each in chains} < {each["url"] for each in stars}
    pairs = tmp_path / "pairs.jsonl"
    assert neardup("match", "--verified", tmp_path / "chains.jsonl", "-o", pairs).exit_code == 0
    assert lines(pairs) == []
    assert neardup("match", "--verified", tmp_path / "stars.jsonl", "-o", pairs).exit_code == 0
    linked = Components(len(stars))
    found = lines(pairs)
    linked.join([each["row"] for each in found], [each["match"]["row"] for each in found])
    # Two stars may also be linked through a page that neither keeps.
    assert len(chains) <= len(np.unique(linked.roots()))


def test_chains_need_the_similarity_of_pages(tmp_path: Path) -> None:
    source = write(tmp_path / "pages.jsonl", pages(3))
    with pytest.raises(SettingsError, match="clusters: chains join pages by similarity"):
        dedup(source, "-o", tmp_path / "out.jsonl", "--clusters", "chains", "--mode", "strict")


def test_an_election_keeps_to_its_memory(tmp_path: Path) -> None:
    """Whatever the number of pages: DuckDB has a limit, and a directory for what exceeds it."""
    with open_election(tmp_path) as election:
        ((limit, directory),) = election._ask(
            "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
        )
    assert (limit, directory) == ("953.6 MiB", str(tmp_path / "spilled"))
    assert MEMORY == "1GB"
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_copied_in_the_memory_of_a_page(tmp_path: Path) -> None:
    """The copies of a source take no more memory than a few of its pages."""
    import tracemalloc

    from stream.dedup.copies import copy
    from stream.dedup.kept_pages import KeptPages
    from stream.sources.jsonl import JsonlSource

    page = {"url": "https://a.example/", "text": "words " * 5_000}
    source = write(tmp_path / "pages.jsonl", [page] * 1_000)
    tracemalloc.start()
    try:
        kept = KeptPages(str(source), iter(range(0, 1_000, 2)), 1_000, lambda: None)
        copy([(JsonlSource(str(source)), kept)], tmp_path / "out.jsonl")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "out.jsonl").stat().st_size * 2 == source.stat().st_size > 25 << 20
    assert peak < 2 << 20
