"""Bash cuts words at `=`, and Click does not put NAME=VALUE together again."""

from __future__ import annotations

import os

from click.shell_completion import BashComplete, CompletionItem, split_arg_string
from click.shell_completion import add_completion_class as _add


class Bash(BashComplete):
    """As Click's; of `features=t` bash completes the `t`, so answers leave out what stands before it."""

    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Whole words before the one that is completed, and that one."""
        place = int(os.environ["COMP_CWORD"])
        cut = [*split_arg_string(os.environ["COMP_WORDS"]), ""][: place + 1]
        words: list[str] = []
        for word in cut:
            if words and (word == "=" or words[-1].endswith("=")):
                words[-1] += word
            else:
                words.append(word)
        if len(words) < len(cut):
            name, found, _ = words[-1].rpartition("=")
            self._before = name + found
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Its kind and what bash puts in the place of the word that it sees."""
        return f"{item.type},{str(item.value).removeprefix(self._before)}"


def add_bash() -> None:
    """Let Click use it."""
    _add(Bash)
