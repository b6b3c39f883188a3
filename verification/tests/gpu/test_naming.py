"""Nothing that was measured on the emulated device is called CUDA; each test starts a process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")

GREEN = ("--device", "cuda", "--size", "small", "--dtype", "complex64", "--function", "green")


def verify(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "training.cli", "gpu", "verify", *GREEN, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def lines_that_say_cuda(text: str) -> list[str]:
    return [line for line in text.splitlines() if "cuda" in line.lower()]


def test_every_report_says_that_the_device_is_emulated(tmp_path: Path) -> None:
    result = verify("--output", str(tmp_path))
    assert result.returncode == 0, result.stderr
    texts = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert {"report.json", "report.md", "report.html"} <= set(texts)
    for name, text in {**texts, "terminal": result.stdout}.items():
        lines = lines_that_say_cuda(text)
        assert lines, name
        for line in lines:
            # The reason of a skip may stand on a line of its own, after the name that it is about.
            assert "cuda (emulated)" in re.sub(r'^\s*"cuda": ', "", line), f"{name}: {line}"
    subjects = {row["subject"] for row in json.loads(texts["report.json"])["rows"]}
    assert "torch cuda (emulated)" in subjects
    assert all("cuda" not in s.replace("cuda (emulated)", "") for s in subjects)


def test_an_emulated_device_is_not_the_one_required() -> None:
    result = verify("--require", "cuda")
    assert result.returncode == 1
    assert "required, but skipped: cuda: the device here is cuda (emulated)" in result.stdout
