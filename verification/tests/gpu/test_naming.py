"""Nothing that was measured on the emulated device is called CUDA."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")

GREEN = ("--device", "cuda", "--size", "small", "--dtype", "complex64", "--function", "green")


@pytest.mark.slow
@pytest.mark.nightly
def test_every_report_says_that_the_device_is_emulated(tmp_path: Path) -> None:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "training.cli", "gpu", "verify", *GREEN),
            *("--require", "cuda", "--output", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    texts = {path.name: path.read_text("utf-8") for path in tmp_path.glob("report.*")}
    (receipt,) = tmp_path.glob("torch-*.json")
    assert json.loads(receipt.read_text("utf-8"))["device"] == "cuda (emulated)"
    assert set(texts) == {"report.json", "report.md", "report.html"}, result.stderr
    for name, text in {**texts, "terminal": result.stdout}.items():
        lines = [line for line in text.splitlines() if "cuda" in line.lower()]
        assert lines, name
        for line in lines:
            # What is skipped, a real device, has the name that --require gives it.
            assert "cuda (emulated)" in re.sub(r'^\s*"cuda": ', "", line), f"{name}: {line}"
    subjects = {row["subject"] for row in json.loads(texts["report.json"])["rows"]}
    assert "torch cuda (emulated)" in subjects
    assert all("cuda" not in subject.replace("cuda (emulated)", "") for subject in subjects)

    # An emulated device is not the one required.
    assert result.returncode == 1
    (failure,) = json.loads(texts["report.json"])["failures"]
    assert failure == "required, but skipped: cuda: the device here is cuda (emulated)"
