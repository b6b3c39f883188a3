"""What an encoding learned, in the report of a run, by the letters of the paper."""

from __future__ import annotations

import pytest

pytest.importorskip("accelerate")

import torch

from training.engine.run_folder import RunFolder
from training.engine.run_report import _learned_table
from verification.tests.encoding_cases import HEADS, small
from verification.tests.models.test_transfer import config_of, held_by_a_run


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("weierstrass", {"ω3/i", "α_scale", "β_pos"}),
        ("weierstrass_fourier", {"ω3′", "β", "γ", "σ", "μ"}),
        ("weierstrass_green", {"ω3/i", "s_h"}),
        ("weierstrass_heat", {"ω3/i", "s_h", "width √t_h in patches", "|d_h|"}),
        ("weierstrass_relative", {"ω3/i", "s"}),
        ("gaussian", {"σ_h in patches", "|d_h|"}),
        ("learned", set()),
    ],
)
def test_encodings_name_what_they_learn(name, letters):
    assert small(name).learned_numbers().keys() == letters


def test_the_hybrid_has_its_gate_and_what_is_mixed():
    numbers = small("weierstrass_hybrid", table="fresh").learned_numbers()
    assert {"λ", "μ", "β", "γ"} <= numbers.keys()
    assert float(numbers["λ"].detach()) == pytest.approx(1.0 / (1.0 + 2.718281828459045**-0.5))


def test_values_are_those_of_the_start_where_nothing_was_trained():
    with torch.no_grad():
        numbers = small("weierstrass").learned_numbers()
    assert float(numbers["ω3/i"]) == pytest.approx(1.8540746773013719)
    assert float(numbers["α_scale"]) == pytest.approx(0.15)
    assert float(numbers["β_pos"].detach()) == pytest.approx(0.8)
    assert small("weierstrass_green").learned_numbers()["s_h"].shape[1] == HEADS


def test_the_report_has_the_start_and_the_end(tmp_path):
    path, model = held_by_a_run(tmp_path, "weierstrass_fourier")
    table = _learned_table(RunFolder(path), config_of("weierstrass_fourier", 8, "seed=5"))
    [row] = [line for line in table.splitlines() if line.startswith("| μ ")]
    assert row.split("|")[2].strip() == "1 1 1 1"
    ends = [float(text) for text in row.split("|")[3].split()]
    assert ends == pytest.approx(model.encoding.mu.tolist(), rel=1e-3)
    assert not torch.allclose(model.encoding.mu, torch.ones(4))
