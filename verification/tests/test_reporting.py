"""Tables in Markdown, and what a report says about the machine and the code."""

from __future__ import annotations

import importlib
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import wefpe_core
from wefpe_core.reporting import (
    cores_and_load,
    describe_versions,
    git_commit,
    markdown_table,
    package_versions,
    peak_memory_mb,
    processor_name,
)

ABSENT = "no-such-distribution"


def test_a_table_has_a_rule_and_ends_with_a_line_break() -> None:
    expected = "| name | value |\n|---|---|\n| a | 1 |\n| b | 2 |\n"
    assert markdown_table(["name", "value"], [["a", "1"], ("b", "2")]) == expected


def test_cells_cannot_break_a_table() -> None:
    assert markdown_table(["|z|"], [["two\nlines"]]) == "| \\|z\\| |\n|---|\n| two lines |\n"


def test_a_table_may_have_no_rows() -> None:
    assert markdown_table(["a"], []) == "| a |\n|---|\n"


def test_versions_are_those_installed_in_the_order_asked_for() -> None:
    found = package_versions([ABSENT, "pytest"])
    assert list(found.items()) == [(ABSENT, None), ("pytest", metadata.version("pytest"))]
    expected = f"Python {platform.python_version()}, {ABSENT} not installed, pytest"
    assert describe_versions([ABSENT, "pytest"]).startswith(expected)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_the_source_is_found_and_changes_show(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    assert git_commit(tmp_path) is None
    git("init", "-q")
    (tmp_path / "file.py").write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "One")
    git("tag", "-a", "v1", "-m", "a tag does not replace the hash")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "file.py").write_text("2\n")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"


def test_source_that_lies_nowhere_has_no_commit(tmp_path: Path) -> None:
    assert git_commit(tmp_path / "missing") is None


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit(Path(__file__).parent) is None


def test_processor_and_cores_say_something() -> None:
    assert processor_name().strip()
    assert "cores" in cores_and_load()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell")
def test_the_peak_of_memory_is_in_megabytes() -> None:
    peak = peak_memory_mb()
    assert peak is not None
    assert 10 < peak < 1e6


def test_where_the_system_does_not_tell_the_peak_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory_mb() is None


def test_the_version_is_that_of_the_distribution() -> None:
    assert wefpe_core.__version__ == metadata.version("wefpe")


def test_a_checkout_that_was_never_installed_has_a_version_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patched:
        patched.setattr(metadata, "version", not_installed)
        assert importlib.reload(wefpe_core).__version__ == "0+unknown"
    importlib.reload(wefpe_core)
