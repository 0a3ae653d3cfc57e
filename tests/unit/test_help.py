"""`--help` begins with what people use."""

from __future__ import annotations

import re

import click
import pytest

from stream.cli import COMMANDS, cli
from tests.commands import neardup


def commands() -> list[tuple[str, ...]]:
    names: list[tuple[str, ...]] = []
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        names += (
            [(name, each) for each in command.commands] if isinstance(command, click.Group) else [(name,)]
        )
    return names


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_limits_are_listed_last_and_no_rule_of_ours_is_cited(command: tuple[str, ...]) -> None:
    shown = neardup(*command, "--help").stdout
    assert not re.search(r"\brules?\s+\d", shown)
    assert "[default: False]" not in shown
    limits = re.findall(r"^  (--(?:\w+-memory|page-bytes|worker-processes))", shown, re.MULTILINE)
    for limit in limits if command != ("plan",) else []:  # which limits nothing
        assert shown.index("Limits of time and memory:") < shown.index(f"  {limit}")
    sections = re.findall(r"^(\w.*):$", shown, re.MULTILINE)
    order = ["Options", "How sources are read", "What counts as alike", "Limits of time and memory"]
    assert [each for each in sections if each in order] == [each for each in order if each in sections]
