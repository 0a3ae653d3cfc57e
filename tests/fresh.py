"""`make fresh`: runs the tests that a change added three times, each time in another order.

python -m tests.fresh [BASE]

BASE is the commit before the change, by default the parent of the last one. Changes that are not committed
count as well.
"""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

TIMES: Final = 3


def tests_in(source: str) -> set[str]:
    """The test functions and methods of a module, as they are named in node ids."""
    names = set()
    for node in ast.parse(source).body:
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                names.add(prefix + each.name)
    return names


def added_since(base: str) -> list[str]:
    """Node ids of the tests that are here and not in `base`."""
    changed = _git("diff", "--name-only", "--diff-filter=d", base, "--", "tests").split()
    changed += _git("ls-files", "--others", "--exclude-standard", "--", "tests").split()
    added = []
    for file in sorted(path for path in set(changed) if Path(path).match("test_*.py")):
        before = subprocess.run(
            ["git", "show", f"{base}:{file}"], capture_output=True, text=True, check=False
        )
        names = tests_in(Path(file).read_text("utf-8")) - tests_in(before.stdout)
        added += [f"{file}::{name}" for name in sorted(names)]
    return added


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Run them. Returns pytest's exit code."""
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD~1"
    added = added_since(base)
    sys.stdout.write(f"{len(added)} tests were added since {base}\n")
    for _ in range(TIMES if added else 0):
        seed = random.randrange(10**6)
        pytest = (sys.executable, "-m", "pytest", f"--randomly-seed={seed}")
        code = subprocess.run([*pytest, *added], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
