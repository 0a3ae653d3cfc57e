"""Shell completion of NAME=VALUE in bash, which splits words at `=`. Click does not join them again."""

from __future__ import annotations

import os

from click.shell_completion import BashComplete, CompletionItem, split_arg_string
from click.shell_completion import add_completion_class as _add


class Bash(BashComplete):
    """Click's completion for bash, with NAME=VALUE treated as one word.

    Bash completes only the part after `=`, so completions omit the part before it.
    """

    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete words before the cursor, and the incomplete word at the cursor."""
        place = int(os.environ["COMP_CWORD"])
        cut = [*split_arg_string(os.environ["COMP_WORDS"]), ""][: place + 1]
        words: list[str] = []
        for word in cut:
            if words and (word == "=" or words[-1].endswith("=")):
                words[-1] += word
            else:
                words.append(word)
        if len(words) < len(cut):
            name, equals, _ = words[-1].rpartition("=")
            self._before = name + equals
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return the type of a completion and the text that replaces bash's word."""
        return f"{item.type},{str(item.value).removeprefix(self._before)}"


def add_bash() -> None:
    """Register this class with Click for bash."""
    _add(Bash)
