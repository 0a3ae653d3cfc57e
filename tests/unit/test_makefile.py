"""`make` shows what people need."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fails", [False, True])
def test_pips_lines_are_printed_only_if_it_fails(fails: bool, tmp_path: Path) -> None:
    for name in ("python", "pip"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        fake = f"#!/bin/sh\necho a line of pip\necho an error of pip >&2\nexit {int(fails)}\n"
        program.write_text(fake if name == "pip" else "#!/bin/sh\n")
        program.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", f"VENV={tmp_path}", f"{tmp_path}/.runs"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (not fails) == (tmp_path / ".runs").exists()
    assert "==> installing what deploy/requirements.lock names" in done.stdout
    for line in ("a line of pip", "an error of pip"):
        assert (line in done.stdout + done.stderr) == fails
