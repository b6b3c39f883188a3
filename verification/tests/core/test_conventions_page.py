"""docs/conventions.md: in each row of its table all expressions have the same value."""

from __future__ import annotations

import cmath
import math
import re
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from wefpe_core import special

scipy_special = pytest.importorskip("scipy.special")

PAGE = Path(__file__).parents[3] / "docs" / "conventions.md"
VALUES = {
    "m": 0.37,
    "n": 0.21,
    "phi": 0.83,
    "u": 0.71,
    "x": 0.4,
    "y": 1.7,
    "p": 2.3,
    "z": 0.31,
    "tau": 0.2 + 0.9j,
    "pi": math.pi,
}
VALUES["q"] = cmath.exp(1j * math.pi * VALUES["tau"])
# These libraries compute in double precision too, so two rounding errors meet.
AGREEMENT = 64 * np.finfo(float).eps


def rows() -> list[tuple[str, list[str]]]:
    """The function of each row of the table, and its expressions."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        expressions = [cell.strip("`") for cell in cells[1:] if re.fullmatch("`.+`", cell)]
        if line.startswith("|") and expressions and "special." in expressions[0]:
            found.append((cells[0], expressions))
    return found


def value_of(expression: str) -> complex:
    """Evaluate an expression of the page; balls of flint are rounded to their middle."""
    names: dict[str, Any] = dict(VALUES, special=special, mpmath=mpmath)
    if "acb" in expression:
        names["acb"] = pytest.importorskip("flint").acb
        names |= {key: names["acb"](value) for key, value in VALUES.items() if key != "pi"}
    if "scipy" in expression:
        import scipy

        names["scipy"] = scipy
    found = eval(expression, names)
    return complex(found.mid()) if hasattr(found, "mid") else complex(found)


def test_the_page_has_rows():
    assert len(rows()) > 20
    assert all(len(expressions) > 1 for _, expressions in rows())


@pytest.mark.parametrize(("function", "expressions"), rows(), ids=[name for name, _ in rows()])
def test_all_expressions_of_a_row_agree(function, expressions):
    ours, *others = map(value_of, expressions)
    for other in others:
        assert abs(ours - other) <= AGREEMENT * abs(other)
