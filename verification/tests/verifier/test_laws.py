"""The laws of DLMF chapter 23, by hypothesis, for every array backend.

The ceiling is the one users are promised (contracts.toml); inputs are exact by construction.
"""

from __future__ import annotations

import cmath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification import laws
from verification.judge import load_contracts
from verification.oracle import wp_and_prime as reference
from verification.subjects import Subject
from verification.tests.strategies import (
    SkewedLattice,
    cell_points,
    half_periods,
    lattices,
    skewed_lattices,
)
from wefpe_core import Lattice, identities
from wefpe_core.accuracy import in_eps

LAW_CEILING = load_contracts()["laws"]["residual"]["complex128"]["largest"]
WP_CEILING = load_contracts()["accuracy"]["wp"]["complex128"]["largest"]


@pytest.mark.parametrize("law", laws.LAWS)
@given(data=st.data())
def test_law_holds_on_every_lattice(law: str, subject: Subject, data: st.DataObject) -> None:
    lattice = data.draw(lattices())
    z, other = data.draw(cell_points(lattice)), data.draw(cell_points(lattice))
    # Sums and differences of the two must not be lattice points, where both sides are infinite.
    other = other * 0.75 + z * 0.125
    residual = laws.residual_in_eps(law, subject, np.array([z]), np.array([other]), lattice)
    assert residual <= LAW_CEILING


@pytest.mark.parametrize("law", laws.LAWS)
def test_law_fails_for_a_broken_backend(law: str) -> None:
    """A law that cannot fail proves nothing: damage each value it uses."""

    class Broken:
        label = "broken"

        def __init__(self, subject: Subject) -> None:
            self._subject = subject
            self.backend = self

        def evaluate(self, function, *arrays, lattice):
            values = self._subject.evaluate(function, *arrays, lattice=lattice)
            # A relative error of 1e-6 that depends on the point and the basis.
            kick = 1e-6 * (np.sin(arrays[0].real + 0.3) + abs(complex(lattice.omega1)) + 0.5j)
            return tuple(value * (1 + kick) for value in values)

        def __getattr__(self, name):
            method = getattr(self._subject.backend, name)
            return lambda lattice: tuple(
                complex(value) * (1 + 1e-6 * k) for k, value in enumerate(method(lattice), 1)
            )

    from verification.subjects import numpy_subject

    broken = Broken(numpy_subject())
    z, other = np.array([0.3 + 0.4j]), np.array([0.7 - 0.1j])
    residual = laws.residual_in_eps(law, broken, z, other, Lattice(1.25, 0.5 + 1.75j))  # type: ignore[arg-type]
    assert residual > LAW_CEILING


@given(data=st.data(), periods=st.tuples(*[st.integers(-(10**6), 10**6)] * 2))
def test_wp_repeats_a_million_periods_away_dlmf_23_2_9(
    subject: Subject, data: st.DataObject, periods: tuple[int, int]
) -> None:
    """Half-periods and points of few bits: the translated argument is exact, so must wp be."""
    lattice = data.draw(lattices())
    z = data.draw(cell_points(lattice))
    shift = 2 * periods[0] * complex(lattice.omega1) + 2 * periods[1] * complex(lattice.omega3)
    here, there = (
        subject.evaluate("wp", np.array([point]), lattice=lattice)[0] for point in (z, z + shift)
    )
    if (z + shift) - shift == z:  # true unless the sum needed more than 53 bits
        np.testing.assert_array_equal(here, there)


@given(data=st.data())
def test_values_do_not_depend_on_the_basis(subject: Subject, data: st.DataObject) -> None:
    """Modular invariance, exactly: every basis reduces to the same canonical one."""
    case: SkewedLattice = data.draw(skewed_lattices())
    z = np.array([data.draw(cell_points(case.original))])
    for function in ("wp_and_prime", "zeta", "sigma", "green"):
        first = subject.evaluate(function, z, lattice=case.original)
        second = subject.evaluate(function, z, lattice=case.skewed)
        for value, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(value, other)


@given(lattice=lattices(), exponent=st.integers(-40, 40))
def test_scaling_by_a_power_of_two_is_exact_dlmf_23_10_iv(
    subject: Subject, lattice: Lattice, exponent: int
) -> None:
    factor = 2.0**exponent
    z = np.array([0.37 + 0.21j]) * complex(lattice.omega1)
    scaled = Lattice(factor * complex(lattice.omega1), factor * complex(lattice.omega3))
    p, dp = subject.evaluate("wp_and_prime", z, lattice=lattice)
    q, dq = subject.evaluate("wp_and_prime", factor * z, lattice=scaled)
    np.testing.assert_array_equal(p, q * factor**2)
    np.testing.assert_array_equal(dp, dq * factor**3)


@given(lattice=lattices())
def test_half_periods_are_zeros_of_wp_prime_dlmf_23_3_9(subject: Subject, lattice: Lattice) -> None:
    """wp takes the values e_k there, and wp' vanishes, both to the promised error."""
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    halves = np.array([w1, -(w1 + w3), w3])
    p, dp = subject.evaluate("wp_and_prime", halves, lattice=lattice)
    roots = np.array([complex(root) for root in subject.backend.roots(lattice)])
    for k, half in enumerate(halves):
        wp_reference, slope_reference = reference(complex(half), lattice)
        assert slope_reference.value == 0
        for value in (p[k], roots[k]):
            assert in_eps(wp_reference.error_of(complex(value)), "complex128") <= WP_CEILING
        assert in_eps(slope_reference.error_of(complex(dp[k])), "complex128") <= WP_CEILING


@given(omega=half_periods(), exponent=st.integers(3, 12))
def test_laurent_expansion_starts_as_in_dlmf_23_9_2(
    subject: Subject, omega: complex, exponent: int
) -> None:
    lattice = Lattice(omega, omega * (0.25 + 1.125j))
    z = np.array([10.0**-exponent * omega])
    (p,) = subject.evaluate("wp", z, lattice=lattice)
    g2, g3 = (complex(g) for g in subject.backend.invariants(lattice))
    residual = identities.laurent_start(complex(z[0]), complex(p[0]), g2, g3)
    neglected = abs(g2 * z[0] ** 4) ** 2 / 2400  # the next term, relative to 1/z^2
    assert residual <= neglected + LAW_CEILING * 2.0**-52


@given(data=st.data())
def test_sigma_continues_by_its_quasi_periods_dlmf_23_2_15(
    subject: Subject, data: st.DataObject
) -> None:
    lattice = data.draw(lattices())
    z = data.draw(cell_points(lattice))
    etas = [complex(eta) for eta in subject.backend.quasi_periods(lattice)]
    (here,) = subject.evaluate("sigma", np.array([z]), lattice=lattice)
    for omega, eta in zip((lattice.omega1, lattice.omega3), etas, strict=True):
        omega = complex(omega)
        (there,) = subject.evaluate("sigma", np.array([z + 2 * omega]), lattice=lattice)
        exponent = 2 * eta * (z + omega)
        values = (complex(here[0]), complex(there[0]))
        if not all(1e-280 < abs(value) < 1e280 for value in values) or abs(exponent) > 600:
            continue
        residual = identities.sigma_quasi_periodicity(*values, z, omega, eta, cmath.exp)
        # The factor is the exponential of a rounded number: its error grows with the exponent.
        assert in_eps(residual, "complex128") <= LAW_CEILING * (1 + abs(exponent))


@given(data=st.data())
def test_inverse_leads_back(subject: Subject, data: st.DataObject) -> None:
    """wp(inverse_wp(w)) = w, to the accuracy wp' allows."""
    lattice = data.draw(lattices())
    z = data.draw(cell_points(lattice))
    (w,) = subject.evaluate("wp", np.array([z]), lattice=lattice)
    (back,) = subject.evaluate("inverse_wp", w, lattice=lattice)
    p_reference, _ = reference(complex(back[0]), lattice)
    ceiling = load_contracts()["accuracy"]["inverse_wp"]["complex128"]["largest"]
    assert in_eps(p_reference.error_of(complex(w[0])), "complex128") <= ceiling


def test_parity_compares_overflow_with_overflow(subject: Subject) -> None:
    """sigma grows like exp(z^2) over the area: on a thin lattice it leaves the range of doubles."""
    thin, z = Lattice(1.0, 0.015625 + 0.0009765625j), np.array([1.5 + 1.25j, 0.125 + 0.25j])
    (value,) = subject.evaluate("sigma", z, lattice=thin)
    assert not np.isfinite(value).all()
    residual = laws.residual_in_eps("parity 23.2(ii)", subject, z, z, thin)
    assert residual <= LAW_CEILING
