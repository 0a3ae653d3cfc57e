"""Options come from flags, environment and file, in this order, and an error names the one that was wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stream.errors import EXIT_REFUSED, SettingsError
from stream.settings import Settings, load


@pytest.fixture(autouse=True)
def _no_other_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("NEARDUP_") and name != "NEARDUP_TEST_SESSION":
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "neardup.toml"
    monkeypatch.setenv("NEARDUP_CONFIG", str(path))
    return path


def test_flags_win_over_environment_over_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('namespace = "file"\njudge_rows = 7\npage_bytes = "3MiB"\n')
    monkeypatch.setenv("NEARDUP_NAMESPACE", "variable")
    monkeypatch.setenv("NEARDUP_JUDGE_ROWS", "8")
    found = load(namespace="flag", judge_rows=None)
    assert (found.namespace, found.judge_rows, found.page_bytes) == ("flag", 8, 3 << 20)


@pytest.mark.parametrize(
    ("written", "size"), [("4194304", 4 << 20), ("4MiB", 4 << 20), ("4 MB", 4_000_000), (4 << 20, 4 << 20)]
)
def test_sizes_may_have_units(written: object, size: int) -> None:
    found = load(worker_memory=written).worker_memory
    assert found == size
    assert type(found) is int


def test_an_error_names_the_flag() -> None:
    with pytest.raises(SettingsError, match=r"^--worker-memory: .*'4 horses' is no size; write .* 128MiB$"):
        load(worker_memory="4 horses")


def test_an_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARDUP_page_deadline", "soon")
    with pytest.raises(SettingsError, match=r"^NEARDUP_PAGE_DEADLINE: "):
        load()


def test_an_error_names_the_file(file: Path) -> None:
    file.write_text("page_deadline = 0\nno_such_option = 1\n")
    with pytest.raises(SettingsError) as refused:
        load()
    assert f"page_deadline in {file}: " in str(refused.value)
    assert f"no_such_option in {file}: " in str(refused.value)
    file.write_text("page_deadline = = 0")
    with pytest.raises(SettingsError, match=f"NEARDUP_CONFIG, file {file}: "):
        load()
    file.unlink()
    with pytest.raises(SettingsError, match=f"NEARDUP_CONFIG: no file {file}"):
        load()


def test_wrong_options_are_refused_for_good() -> None:
    assert SettingsError.exit_code == EXIT_REFUSED == 78


def test_the_environment_of_settings_loads_equal_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = load(state_dir=tmp_path, dev=True, page_bytes="2MiB", ops_port=-1)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings
