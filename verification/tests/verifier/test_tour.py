"""The tour in docs/ runs, is short, and says what it promises."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[3] / "docs" / "tour.py"


def test_the_tour_runs_and_its_numbers_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(TOUR.read_text("utf-8").splitlines()) <= 60
    runpy.run_path(str(TOUR), run_name="__main__")
    said = capsys.readouterr().out
    assert "1.8540746773" in said
    assert "1.123490212018707014483905 - 3.828008579052054188481269j" in said
    residual = re.search(r"g3 = \((\S+) [+-] (\S+)j\)", said)
    assert residual is not None
    assert all(abs(float(part)) < 1e-26 for part in residual.groups())
    error = re.search(r"within (\S+) of mpmath", said)
    assert error is not None
    assert float(error[1]) < 1e-15
    correlations = dict(re.findall(r"(\w+): all pairs (\S+),", said))
    assert float(correlations["sincos2d"]) < -0.8 < float(correlations["weierstrass"]) < 0.0
    assert abs(float(correlations["learned"])) < 0.05
