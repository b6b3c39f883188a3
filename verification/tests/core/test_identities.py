r"""Every law is zero on true values and clearly not on false ones.

True values come from mpmath at 30 digits: wp and its derivatives as csc² row sums, sigma as
a theta quotient, zeta as its logarithmic derivative. A law that could not fail would pass
the first half of this file; the second half changes one argument at a time.
"""

import cmath
import inspect
import math
from functools import cache

import numpy as np
import pytest
from mpmath import mp

from wefpe_core import identities

DPS = 30
# Laws have degree six at most and about ten operations, and values ten digits to spare.
EXACT = 10.0 ** (5 - DPS)

LATTICES = {
    "square": (0.5, 0.5j),
    "hexagonal": (0.5, 0.25 + 0.25j * math.sqrt(3)),
    "oblique": (1.1 - 0.3j, (1.1 - 0.3j) * (0.31 + 1.07j)),
    "thin": (0.7j, 0.7j * (-0.42 + 3.5j)),
}


class Functions:
    """The functions of one lattice at the working precision, by definition and rows."""

    def __init__(self, omega1, omega3):
        self.omega1, self.omega3 = mp.mpc(omega1), mp.mpc(omega3)
        self.scale = mp.pi / (2 * self.omega1)
        self.turn = mp.pi * self.omega3 / self.omega1
        nome_squared = mp.expj(2 * self.turn)
        weights = [nome_squared**k / (1 - nome_squared**k) for k in range(1, 60)]

        def eisenstein(constant, power):
            return 1 + constant * mp.fsum(k**power * x for k, x in enumerate(weights, start=1))

        self.g2 = 4 * self.scale**4 * eisenstein(240, 3) / 3
        self.g3 = 8 * self.scale**6 * eisenstein(-504, 5) / 27
        self.eta1 = self.scale**2 * self.omega1 * eisenstein(-24, 1) / 3
        self.eta3 = self.zeta(self.omega3)
        self.e1, self.e3 = self.wp(self.omega1), self.wp(self.omega3)
        self.e2 = self.wp(self.omega1 + self.omega3)

    def rows(self, f, z):
        v = self.scale * z
        return mp.fsum(f(v + n * self.turn) for n in range(-16, 17))

    def wp(self, z):
        # The constant of the row sum is -eta1/omega1.
        return self.scale**2 * self.rows(lambda v: mp.csc(v) ** 2, z) - self.eta1 / self.omega1

    def wp_prime(self, z):
        return self.scale**3 * self.rows(lambda v: -2 * mp.cot(v) * mp.csc(v) ** 2, z)

    def wp_second(self, z):
        return self.scale**4 * self.rows(lambda v: 6 * mp.csc(v) ** 4 - 4 * mp.csc(v) ** 2, z)

    def zeta(self, z):
        # Rows n and -n together, or the cotangents tend to i and -i.
        return self.scale * self.rows(mp.cot, z) + self.eta1 * z / self.omega1

    def sigma(self, z):
        nome = mp.expj(self.turn)
        theta = mp.jtheta(1, self.scale * z, nome) / mp.jtheta(1, 0, nome, 1)
        return mp.exp(self.eta1 * z**2 / (2 * self.omega1)) * theta / self.scale

    def scaled(self, factor):
        return Functions(factor * self.omega1, factor * self.omega3)

    def conjugate(self):
        return Functions(-mp.conj(self.omega1), mp.conj(self.omega3))


@cache
def true_arguments(lattice_name):
    """Name of each law -> list of true argument tuples for it, as 30-digit numbers."""
    with mp.workdps(DPS + 10):
        f = Functions(*LATTICES[lattice_name])
        u = 2 * f.omega1 * mp.mpf("0.23") + 2 * f.omega3 * mp.mpf("0.14")
        v = 2 * f.omega1 * mp.mpf("-0.31") + 2 * f.omega3 * mp.mpf("0.22")
        small = u / 10**4
        factor = mp.mpc("0.8", "-1.7")
        g = f.scaled(factor)
        conjugate = f.conjugate()
        u_bar = mp.conj(u)
        period = 2 * f.omega1 - 4 * f.omega3
        roots = (f.e1, f.e2, f.e3)
        halves = ((f.omega1, f.eta1), (f.omega3, f.eta3))
        return {
            "differential_equation": [(f.wp(z), f.wp_prime(z), f.g2, f.g3) for z in (u, v)],
            "second_derivative": [(f.wp(u), f.wp_second(u), f.g2)],
            "addition": [(f.wp(u), f.wp_prime(u), f.wp(v), f.wp_prime(v), f.wp(u + v))],
            "collinearity": [
                (f.wp(u), f.wp_prime(u), f.wp(v), f.wp_prime(v), f.wp(u + v), f.wp_prime(u + v))
            ],
            "duplication": [(f.wp(u), f.wp_prime(u), f.wp(2 * u), f.g2)],
            "homogeneity": [
                (f.wp(u), g.wp(factor * u), factor, -2),
                (f.wp_prime(u), g.wp_prime(factor * u), factor, -3),
                (f.zeta(u), g.zeta(factor * u), factor, -1),
                (f.sigma(u), g.sigma(factor * u), factor, 1),
                # The invariant that is not zero by symmetry: zero has no relative error.
                (f.g3, g.g3, factor, -6)
                if lattice_name == "hexagonal"
                else (f.g2, g.g2, factor, -4),
            ],
            "periodicity": [(h(u), h(u + period)) for h in (f.wp, f.wp_prime)],
            "evenness": [(f.wp(u), f.wp(-u))],
            "oddness": [(h(u), h(-u)) for h in (f.wp_prime, f.zeta, f.sigma)],
            "conjugate_symmetry": [
                (f.wp(u), conjugate.wp(u_bar)),
                (f.zeta(u), conjugate.zeta(u_bar)),
            ],
            "zeta_quasi_periodicity": [
                (f.zeta(u), f.zeta(u + 2 * omega), eta) for omega, eta in halves
            ],
            "sigma_quasi_periodicity": [
                (f.sigma(u), f.sigma(u + 2 * omega), u, omega, eta, mp.exp) for omega, eta in halves
            ],
            "legendre_relation": [(f.eta1, f.eta3, f.omega1, f.omega3, +mp.pi)],
            "roots_sum_to_zero": [roots],
            "g2_from_roots": [(f.g2, *roots)],
            "g3_from_roots": [(f.g3, *roots)],
            "laurent_start": [(small, f.wp(small), f.g2, f.g3)],
        }


LAWS = {
    name: law
    for name, law in inspect.getmembers(identities, inspect.isfunction)
    if not name.startswith("_")
}
every_law = pytest.mark.parametrize("name", sorted(LAWS))
every_lattice = pytest.mark.parametrize("lattice_name", sorted(LATTICES))


def test_every_law_is_tried():
    assert set(true_arguments("square")) == set(LAWS)


@every_law
@every_lattice
def test_law_holds_for_true_values(name, lattice_name):
    for arguments in true_arguments(lattice_name)[name]:
        with mp.workdps(DPS):
            assert LAWS[name](*arguments) <= EXACT


def is_decisive(lattice_name, name, position):
    """Whether a law depends on its argument at `position` to first order."""
    if name == "laurent_start":
        return position < 2  # g2 and g3 have a test of their own, farther from 0
    if lattice_name == "square" and name == "g2_from_roots":
        return position != 2  # e2 = 0 enters with the factor e1 + e3 = 0
    if lattice_name == "square" and name == "g3_from_roots":
        return position not in (1, 3)  # e1 and e3 have the factor e2
    return True


@every_law
@every_lattice
def test_law_fails_when_one_value_is_off_by_a_thousandth(name, lattice_name):
    for arguments in true_arguments(lattice_name)[name]:
        numbers = {i: a for i, a in enumerate(arguments) if isinstance(a, mp.mpc | mp.mpf)}
        size = max(map(abs, numbers.values()))
        for position, argument in numbers.items():
            if not is_decisive(lattice_name, name, position):
                continue
            with mp.workdps(DPS):
                # A root or invariant that vanishes by symmetry is moved by the size of the rest.
                vanishes = abs(argument) < size * 2.0**-40
                wrong = argument + (size if vanishes else argument) * mp.mpc("1e-3", "5e-4")
                changed = [*arguments[:position], wrong, *arguments[position + 1 :]]
                # Ten digits above the exact residual: no rounding looks like this.
                assert LAWS[name](*changed) >= 10**10 * EXACT


def test_parity_laws_tell_even_from_odd():
    assert identities.evenness(2 + 1j, 2 + 1j) == 0
    assert identities.evenness(2 + 1j, -2 - 1j) == 1
    assert identities.oddness(2 + 1j, -2 - 1j) == 0
    assert identities.oddness(2 + 1j, 2 + 1j) == 1


def test_unconjugated_values_break_conjugate_symmetry():
    assert identities.conjugate_symmetry(1 + 2j, 1 - 2j) == 0
    assert identities.conjugate_symmetry(1 + 2j, 1 + 2j) > 0.5


def test_legendre_relation_has_a_sign_and_half_periods():
    with mp.workdps(DPS):
        eta1, eta3, omega1, omega3, pi = true_arguments("oblique")["legendre_relation"][0]
        for changed in (
            (eta3, eta1, omega3, omega1),  # the orientation reversed
            (eta1, eta3, 2 * omega1, 2 * omega3),  # full periods taken for half-periods
        ):
            assert identities.legendre_relation(*changed, pi) > 0.1


def test_laurent_start_leaves_the_next_term_it_names_and_needs_g2_and_g3():
    with mp.workdps(DPS):
        f = Functions(*LATTICES["oblique"])
        z = f.omega1 / 64
        p = f.wp(z)
        residual = identities.laurent_start(z, p, f.g2, f.g3)
        # p and z^-2 are alike, so the next term g2^2 z^6/1200 is measured against 2/z^2; what
        # follows it is smaller by z^2 in units of the period, or 2^-14, and a factor of g3/g2.
        next_term = abs(f.g2**2 * z**8) / 2400
        assert next_term * (1 - 2.0**-8) <= residual <= next_term * (1 + 2.0**-8)
        # A tenth of the terms before it is larger by z^-4 and z^-2.
        assert identities.laurent_start(z, p, f.g2 * mp.mpf("1.1"), f.g3) > 100 * residual
        assert identities.laurent_start(z, p, f.g2, f.g3 * mp.mpf("1.1")) > 10 * residual


def test_residual_is_zero_where_all_terms_are():
    assert identities.periodicity(0j, 0j) == 0
    assert identities.differential_equation(0, 0, 1, 0) == 0
    assert identities.roots_sum_to_zero(mp.mpc(0), mp.mpc(0), mp.mpc(0)) == 0
    np.testing.assert_array_equal(
        identities.evenness(np.array([0, 1 + 1j, 2]), np.array([0, 1 + 1j, -2])), [0, 0, 1]
    )


def as_double(argument):
    if argument is mp.exp:
        return np.exp
    return argument if isinstance(argument, int) else complex(argument)


@every_law
def test_arrays_give_the_residuals_of_their_elements(name):
    law = LAWS[name]
    rows = [row for lattice in LATTICES for row in true_arguments(lattice)[name][:1]]
    rows = [[as_double(argument) for argument in row] for row in rows]
    columns = [
        column[0] if callable(column[0]) or isinstance(column[0], int) else np.array(column)
        for column in zip(*rows, strict=True)
    ]
    residuals = law(*columns)
    assert residuals.shape == (len(LATTICES),)
    assert residuals.dtype == np.float64
    one_by_one = [law(*(cmath.exp if a is np.exp else a for a in row)) for row in rows]
    # Array and scalar arithmetic may round differently: 64 roundings of 2^-53.
    np.testing.assert_allclose(residuals, one_by_one, rtol=0, atol=2.0**-47)
    # The values themselves are rounded once each; sigma's exponent has modulus below 2^5.
    assert residuals.max() <= 2.0**-42


@every_law
def test_tensors_keep_their_dtype(name):
    torch = pytest.importorskip("torch")
    for dtype, real in ((torch.complex128, torch.float64), (torch.complex64, torch.float32)):
        arguments = [
            torch.exp
            if argument is mp.exp
            else argument
            if isinstance(argument, int)
            else torch.tensor([complex(argument)], dtype=dtype)
            for argument in true_arguments("oblique")[name][0]
        ]
        residual = LAWS[name](*arguments)
        assert residual.dtype == real
        assert residual.shape == (1,)
        assert residual.item() <= 2.0**10 * torch.finfo(real).eps
