"""The table of mutants fits the tree: whoever rewrites a line rewrites its faults with it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.table import ROOT, Mutant, read

MUTANTS = read()
by_name = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)


@by_name
def test_a_fault_can_be_put_into_its_file(mutant: Mutant) -> None:
    content = mutant.apply(ROOT)  # which refuses a text that is not there exactly once
    assert content != (ROOT / mutant.file).read_text("utf-8")
    ast.parse(content)


@by_name
def test_the_tests_of_a_fault_exist(mutant: Mutant) -> None:
    assert mutant.tests
    for each in mutant.tests:
        file, *names = each.split("::")
        content = (ROOT / file).read_text("utf-8")
        for name in names:
            defined = name.partition("[")[0]
            assert re.search(rf"^ *(async def|def|class) {defined}\b", content, re.MULTILINE)


def test_there_are_faults_in_every_room_and_many_that_were_made_once() -> None:
    assert len(MUTANTS) >= 80
    assert sum(each.mend is not None for each in MUTANTS) >= 40
    modules = (*ROOT.glob("stream/*/__init__.py"), *ROOT.glob("stream/roles/*/__init__.py"))
    rooms = {each.parent for each in modules}
    assert rooms - {parent for each in MUTANTS for parent in Path(ROOT, each.file).parents} == set()


def test_names_are_those_of_files_and_no_two_are_equal() -> None:
    assert [name for name, count in Counter(each.name for each in MUTANTS).items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z0-9-]+", each.name) for each in MUTANTS)
