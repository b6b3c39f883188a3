"""What a run records about where it was made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("accelerate", reason="the training extra is not installed")

from training.engine.environment import commit, peak_memory_mb, processor


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_the_source_is_found_and_changes_show(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    assert commit(tmp_path) is None
    git("init", "-q")
    (tmp_path / "file.py").write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "One")
    git("tag", "-a", "v1", "-m", "a tag does not replace the hash")
    assert commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "file.py").write_text("2\n")
    assert commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"


def test_source_that_lies_nowhere_has_no_commit(tmp_path: Path) -> None:
    assert commit(tmp_path / "missing") is None


def test_processor_and_memory_say_something() -> None:
    assert processor().strip()
    assert peak_memory_mb() > 10
