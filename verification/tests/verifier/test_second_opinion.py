"""The oracle is compared with other formulas, and a wrong oracle is noticed."""

from __future__ import annotations

from typing import Any

import mpmath
import pytest

from verification import oracle, second_opinion
from verification.functions import FUNCTIONS
from verification.second_opinion import ALLOWED, compare, theta_functions
from wefpe_core import Lattice, available_backends


@pytest.mark.parametrize("function", ["wp_and_prime", "zeta", "sigma"])
def test_theta_functions_agree_with_the_oracle(function: str) -> None:
    agreement = compare(function, "theta functions", theta_functions, count=1)
    assert agreement.points > 50
    assert agreement.holds


@pytest.mark.parametrize("function", ["wp_and_prime", "zeta", "sigma"])
def test_balls_agree_with_the_oracle(function: str) -> None:
    if "flint" not in available_backends():
        pytest.skip("flint: not installed")
    agreement = compare(function, "Arb balls", second_opinion.arb_balls, count=1)
    assert agreement.points >= 75
    assert agreement.holds


def test_an_opinion_wrong_in_the_27th_digit_is_noticed() -> None:
    def slightly_off(function: str, z: complex, lattice: Lattice) -> tuple[Any, ...]:
        values = theta_functions(function, z, lattice)
        with mpmath.workdps(second_opinion.DIGITS):
            return tuple(value * (1 + mpmath.mpf(10) ** -27) for value in values)

    agreement = compare("zeta", "a wrong formula", slightly_off, count=1)
    assert not agreement.holds
    assert ALLOWED < agreement.largest < 1e-26


def test_nan_does_not_pass_for_agreement() -> None:
    def lost(function: str, z: complex, lattice: Lattice) -> tuple[Any, ...]:
        return (mpmath.mpc("nan", "nan"),)

    assert not compare("zeta", "nothing", lost, count=1).holds


def test_the_scale_of_sums_is_made_of_what_is_added() -> None:
    """The chord through two points, by hand: y^2 = 4x^3 - 4x at x = 2 and 3."""
    lattice = Lattice.lemniscatic(g2=4.0)
    y = [mpmath.sqrt(4 * x**3 - 4 * x) for x in (2, 3)]
    p, dp = oracle.add(2, complex(y[0]), 3, complex(y[1]), lattice)
    slope = y[1] - y[0]
    assert abs(p.value - (slope**2 / 4 - 5)) < 1e-14
    assert abs(dp.value + (y[0] + slope * (p.value - 2))) < 1e-13
    assert abs(dp.value**2 - (4 * p.value**3 - 4 * p.value)) < 1e-12
    assert FUNCTIONS["add"].values == ("add wp", "add wp_prime")
