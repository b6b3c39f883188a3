"""Addition, the truncated series, the Green function and the inverse, for every array backend."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest

from verification import cases, oracle
from verification.judge import load_contracts
from verification.subjects import Subject
from wefpe_core import InputError, Lattice, bounds, get_backend
from wefpe_core.accuracy import in_eps

EPS = 2.0**-52
TRUTH = get_backend("mpmath", dps=30)
CEILINGS = load_contracts()["accuracy"]
SQUARE = Lattice(1.0, 1.0j)
OBLIQUE = Lattice(1.25, 0.5 + 1.75j)
LATTICES = {
    "square": SQUARE,
    "lemniscatic": Lattice.lemniscatic(),
    "hexagonal": Lattice.equianharmonic(),
    "oblique": OBLIQUE,
    "turned": Lattice(1.5 - 0.25j, 0.75 + 1.125j),
    "unreduced": Lattice(4.5 + 2.25j, 2.75 + 1.625j),
    "thin": cases.FAMILIES["thin"][0],
    "tall": Lattice(0.75, 3.0j),
}
every_lattice = pytest.mark.parametrize("name", LATTICES)


@cache
def reduced_periods(lattice: Lattice) -> tuple[complex, complex]:
    reduced = lattice.reduced()[0]
    return 2 * complex(reduced.omega1), 2 * complex(reduced.omega3)


def call(subject: Subject, method: str, *arguments: Any) -> tuple[np.ndarray, ...]:
    """Any method of the backend with array arguments first; NumPy arrays come back."""
    converted = [
        subject.to_backend(value) if isinstance(value, np.ndarray) else value for value in arguments
    ]
    values = getattr(subject.backend, method)(*converted)
    values = values if isinstance(values, tuple) else (values,)
    return tuple(np.asarray(value.cpu() if hasattr(value, "cpu") else value) for value in values)


def cell_points(lattice: Lattice, count: int, seed: int) -> np.ndarray:
    a, b = reduced_periods(lattice)
    rng = np.random.default_rng(seed)
    return (rng.random(count) - 0.5) * a + (rng.random(count) - 0.5) * b


# --- Addition, DLMF 23.10.1 ----------------------------------------------------------------


def addition_error(
    got: tuple[Any, ...], want: tuple[Any, ...], lattice: Lattice, *terms: np.ndarray
) -> float:
    """Normwise: |error of wp| over the sizes of the three values of wp, plus period^-2.

    The formula subtracts wp(z1) and wp(z2) from the square of a slope, so their sizes count;
    of wp', the powers 3/2 of the same.
    """
    scale = sum(abs(value) for value in (want[0], *terms))
    scale = scale + abs(reduced_periods(lattice)[0]) ** -2
    return float(
        max(
            (abs(got[0] - want[0]) / scale).max(),
            (abs(got[1] - want[1]) / scale**1.5).max(),
        )
    )


def test_differences_of_all_pairs_of_a_grid_are_safe(subject: Subject) -> None:
    """The centres of 14x14 patches over one period of the square lattice: z and -z are both there.

    On 98 pairs z1 = -z2, so that wp(z1 - z2) = wp(2 z1) is 0/0 in the textbook form. The safe
    form reaches some 1e-15, normwise (`addition_error`); 1e-13 is promised for every pair.
    """
    lattice = Lattice.lemniscatic()
    centres = (np.arange(14) + 0.5) / 14
    z = (2 * lattice.omega1 * centres[None, :] + 2 * lattice.omega3 * centres[:, None]).ravel()
    p, dp = subject.evaluate("wp_and_prime", z, lattice=lattice)
    i, j = (index.ravel() for index in np.indices((z.size, z.size)))
    apart = i != j
    i, j = i[apart], j[apart]
    got = call(subject, "add", p[i], dp[i], p[j], -dp[j], lattice)
    want = subject.evaluate("wp_and_prime", z[i] - z[j], lattice=lattice)
    assert addition_error(got, want, lattice, p[i], p[j]) <= 1e-13
    # The textbook slope really is degenerate on these: its denominator is rounding noise.
    degenerate = abs(p[i] - p[j]) <= 1e-13 * (abs(p[i]) + abs(p[j]))
    assert np.count_nonzero(degenerate) == 2 * 98  # each pair in both orders


def test_the_difference_of_a_point_and_itself_is_infinite(subject: Subject) -> None:
    """z2 = -z1 with the same bits up to sign: no slope at all, and the sum is a lattice point."""
    z = cell_points(OBLIQUE, 200, seed=1)
    p, dp = subject.evaluate("wp_and_prime", z, lattice=OBLIQUE)
    for value in call(subject, "add", p, dp, p, -dp, OBLIQUE):
        np.testing.assert_array_equal(value.real, np.inf)
        assert np.isnan(value.imag).all()


class Inputs(NamedTuple):
    """Two points and their values, with the sizes an eps of error in each is measured by."""

    z: tuple[np.ndarray, np.ndarray]
    p: tuple[np.ndarray, np.ndarray]
    dp: tuple[np.ndarray, np.ndarray]
    p_size: np.ndarray
    dp_size: np.ndarray
    g2: complex

    @classmethod
    def at(cls, subject: Subject, z1: np.ndarray, z2: np.ndarray, lattice: Lattice) -> Inputs:
        first = subject.evaluate("wp_and_prime", z1, lattice=lattice)
        second = subject.evaluate("wp_and_prime", z2, lattice=lattice)
        g2 = complex(subject.backend.invariants(lattice)[0])
        period = abs(reduced_periods(lattice)[0])
        # |f| + |z f'| + period^-k, as in the contract; wp'' is DLMF 23.3.12.
        sizes = [
            (
                abs(p) + abs(z * dp) + period**-2,
                abs(dp) + abs(z * (6 * p * p - g2 / 2)) + period**-3,
            )
            for z, (p, dp) in ((z1, first), (z2, second))
        ]
        p_size, dp_size = (np.maximum(*pair) for pair in zip(*sizes, strict=True))
        return cls((z1, z2), (first[0], second[0]), (first[1], second[1]), p_size, dp_size, g2)

    def allowance(self, p3: np.ndarray, dp3: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What an eps in every value and operation does to the sum, to first order.

        The slope is a quotient of differences or, where that suffers less, the equal quotient
        with denominator wp'1 + wp'2. Where the points do not determine their sum well (in the
        middle of a tall lattice all values are nearly the same), this says by how much.
        """
        (p1, p2), (dp1, dp2) = self.p, self.dp
        chord = (dp1 - dp2, p1 - p2, self.dp_size, self.p_size)
        numerator = 4 * (p1 * p1 + p1 * p2 + p2 * p2) - self.g2
        numerator_size = 12 * self.p_size * self.p_size + abs(self.g2)
        tangent = (numerator, dp1 + dp2, numerator_size, self.dp_size)
        slope, slope_error = np.zeros(p1.shape), np.full(p1.shape, np.inf)
        with np.errstate(all="ignore"):
            for top, bottom, top_size, bottom_size in (chord, tangent):
                quotient = abs(top / bottom)
                error = 2 * (top_size + quotient * bottom_size) / abs(bottom) + quotient
                better = error < slope_error  # false for NaN, where the quotient is 0/0
                slope = np.where(better, quotient, slope)
                slope_error = np.where(better, error, slope_error)
        p_error = slope * slope_error / 2 + slope**2 / 4 + 2 * self.p_size
        dp_error = slope_error * abs(p1 - p3) + slope * (self.p_size + p_error) + self.dp_size
        z3 = abs(self.z[0] + self.z[1])  # rounded as well, and read by the function compared with
        ddp3 = 6 * p3 * p3 - self.g2 / 2
        return p_error + abs(z3 * dp3), dp_error + abs(z3 * ddp3)


# Eps per value: what the contract allows wp and wp', and as much again for the operations.
EACH = 2 * CEILINGS["wp"]["complex128"]["largest"]


def assert_sum(subject: Subject, z1: np.ndarray, z2: np.ndarray, lattice: Lattice) -> None:
    inputs = Inputs.at(subject, z1, z2, lattice)
    got = call(subject, "add", inputs.p[0], inputs.dp[0], inputs.p[1], inputs.dp[1], lattice)
    want = subject.evaluate("wp_and_prime", z1 + z2, lattice=lattice)
    for value, true, allowed in zip(got, want, inputs.allowance(*want), strict=True):
        assert np.isfinite(allowed).all()
        assert (abs(value - true) <= EACH * EPS * allowed).all()


@every_lattice
def test_sums_of_random_points_are_the_values_at_the_sum(subject: Subject, name: str) -> None:
    lattice = LATTICES[name]
    assert_sum(subject, cell_points(lattice, 500, 2), cell_points(lattice, 500, 3), lattice)


@every_lattice
def test_doubling_is_addition_of_a_point_to_itself_dlmf_23_10_7(
    subject: Subject, name: str
) -> None:
    """The 0/0 of the textbook form; away from half-periods, where 2z is a pole."""
    lattice = LATTICES[name]
    a, b = reduced_periods(lattice)
    s, r = np.random.default_rng(4).uniform(0.08, 0.42, (2, 200)) * np.array([[1], [-1]])
    z = s * a + r * b
    assert_sum(subject, z, z, lattice)


@every_lattice
def test_nearly_equal_points_are_as_safe_as_equal_ones(subject: Subject, name: str) -> None:
    """z2 = z1 + d for d from 1e-16 to 1e-2 of a period: both quotients are tried on the way."""
    lattice = LATTICES[name]
    a, b = reduced_periods(lattice)
    d = 10.0 ** np.linspace(-16, -2, 57) * abs(a)
    z1 = np.full(d.size, 0.21 * a + 0.13 * b)
    assert_sum(subject, z1, z1 + d, lattice)


@every_lattice
def test_adding_a_half_period_is_dlmf_23_10_i(subject: Subject, name: str) -> None:
    """wp' = 0 at one of the points; at both, the sum is the third half-period or infinity."""
    lattice = LATTICES[name].reduced()[0]
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    halves = np.array([w1, w1 + w3, w3])
    assert_sum(subject, np.full(3, 0.34 * w1 + 0.22 * w3), halves, lattice)
    roots = np.array([complex(root) for root in subject.backend.roots(lattice)])
    zero = np.zeros(3, complex)
    for value in call(subject, "add", roots, zero, roots, zero, lattice):
        np.testing.assert_array_equal(value.real, np.inf)
        assert np.isnan(value.imag).all()
    # Two different ones make the third; the slope is 0 there, so nothing is lost.
    p, dp = call(subject, "add", roots, zero, np.roll(roots, 1), zero, lattice)
    size = abs(roots).max() + abs(2 * w1) ** -2
    assert (abs(p - np.roll(roots, 2)) <= EACH * EPS * size).all()
    np.testing.assert_array_equal(dp, 0)


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_infinity_is_the_neutral_element(subject: Subject, dtype: str) -> None:
    z = cell_points(OBLIQUE, 50, seed=5).astype(dtype)
    p, dp = subject.evaluate("wp_and_prime", z, lattice=OBLIQUE)
    inf, nan = math.inf, math.nan
    for written in (complex(inf, nan), complex(inf, 0), complex(-inf, 2), complex(nan, inf)):
        infinity = np.full(50, written, dtype)
        for got in (
            call(subject, "add", p, dp, infinity, infinity, OBLIQUE),
            call(subject, "add", infinity, infinity, p, dp, OBLIQUE),
        ):
            np.testing.assert_array_equal(got[0], p)
            np.testing.assert_array_equal(got[1], dp)
        for value in call(subject, "add", infinity, infinity, infinity, infinity, OBLIQUE):
            assert np.isinf(value.real).all() or np.isinf(value.imag).all()


# NaN in either part, and what is infinite in the imaginary part only.
NANS = (complex(math.nan, 0), complex(1, math.nan), complex(math.nan, math.nan))


@pytest.mark.parametrize("nan", NANS)
def test_nan_stays_nan(subject: Subject, nan: complex) -> None:
    p, dp = subject.evaluate("wp_and_prime", cell_points(OBLIQUE, 4, seed=6), lattice=OBLIQUE)
    for place in range(4):
        arguments = [p.copy(), dp.copy(), p[::-1].copy(), dp[::-1].copy()]
        arguments[place][1] = nan
        got = call(subject, "add", *arguments, OBLIQUE)
        clean = call(subject, "add", p, dp, p[::-1].copy(), dp[::-1].copy(), OBLIQUE)
        for value, untouched in zip(got, clean, strict=True):
            assert np.isnan(value[1])
            assert not np.isinf(value[1].real)
            np.testing.assert_array_equal(np.delete(value, 1), np.delete(untouched, 1))


@pytest.mark.parametrize(
    ("dtype", "exponents"), [("complex128", (-300, -77, 77, 300)), ("complex64", (-38, -9, 9, 36))]
)
def test_addition_scales_exactly_dlmf_23_10_iv(
    subject: Subject, dtype: str, exponents: tuple[int, ...]
) -> None:
    """By powers of two, up to where wp' leaves the range; its square leaves it much earlier."""
    z = cell_points(OBLIQUE, 60, seed=9).astype(dtype)
    z[3], z[5] = z[2], -z[4]  # equal and opposite points too
    p, dp = subject.evaluate("wp_and_prime", z, lattice=OBLIQUE)
    p, dp, q, dq = p[::2], dp[::2], p[1::2], dp[1::2]
    sums = call(subject, "add", p, dp, q, dq, OBLIQUE)
    for exponent in exponents:
        scale = np.dtype(dtype).type(2.0**exponent)
        wide = scale * scale
        lattice = Lattice(2.0**-exponent * OBLIQUE.omega1, 2.0**-exponent * OBLIQUE.omega3)
        scaled = (p * wide, dp * wide * scale, q * wide, dq * wide * scale)
        got = call(subject, "add", *scaled, lattice)
        ordinary = np.isfinite(sums[0])
        assert np.count_nonzero(~ordinary) == 1
        np.testing.assert_array_equal(got[0][ordinary], sums[0][ordinary] * wide)
        np.testing.assert_array_equal(got[1][ordinary], sums[1][ordinary] * wide * scale)
        assert np.isinf(got[0].real[~ordinary]).all()


def test_addition_next_to_the_pole_in_single_precision(subject: Subject) -> None:
    """wp is 1e20 there, and its square beyond the range."""
    z = np.array([1e-10, 3e-10, 4e-10], np.complex64)
    p, dp = subject.evaluate("wp_and_prime", z, lattice=OBLIQUE)
    got = call(subject, "add", p[:1], dp[:1], p[1:2], dp[1:2], OBLIQUE)
    allowed = EACH * np.finfo(np.complex64).eps
    # The slope is formed from p1 and p2, sixteen times the sum (sixty-four, of wp').
    assert abs(got[0][0] - p[2]) <= allowed * abs(p[0])
    assert abs(got[1][0] - dp[2]) <= allowed * abs(dp[0])


def test_a_zero_of_wp_can_be_doubled(subject: Subject) -> None:
    """Both wp are 0, and so are their difference and what it is compared with."""
    lattice = Lattice.from_invariants(1.0, -1.0)  # wp'^2 = 1 where wp = 0
    zero, one = np.zeros(1, complex), np.ones(1, complex)
    g2, _ = (complex(value) for value in subject.backend.invariants(lattice))
    p, dp = call(subject, "add", zero, one, zero, one, lattice)
    slope = -g2 / 2
    assert abs(p[0] - slope**2 / 4) <= EACH * EPS
    assert abs(dp[0] - (-slope * slope**2 / 4 - 1)) <= EACH * EPS


def test_addition_commutes_up_to_rounding(subject: Subject) -> None:
    z1, z2 = (cell_points(OBLIQUE, 300, seed) for seed in (7, 8))
    inputs = Inputs.at(subject, z1, z2, OBLIQUE)
    (p1, p2), (dp1, dp2) = inputs.p, inputs.dp
    forth = call(subject, "add", p1, dp1, p2, dp2, OBLIQUE)
    back = call(subject, "add", p2, dp2, p1, dp1, OBLIQUE)
    for first, second, allowed in zip(forth, back, inputs.allowance(*forth), strict=True):
        assert (abs(first - second) <= EACH * EPS * allowed).all()


# --- The truncated series, DLMF 23.2.4 -----------------------------------------------------


def series_by_loops(
    z: complex, lattice: Lattice, m_max: int, n_max: int
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The sums as written, and the sums of the absolute values of their terms."""
    w1, w3 = mpmath.mpc(complex(lattice.omega1)), mpmath.mpc(complex(lattice.omega3))
    wp = wp_prime = mpmath.mpc(0)
    wp_size = prime_size = mpmath.mpf(0)
    for m in range(-m_max, m_max + 1):
        for n in range(-n_max, n_max + 1):
            w = 2 * m * w1 + 2 * n * w3
            counter = 1 / w**2 if (m, n) != (0, 0) else 0
            term, slope = 1 / (z - w) ** 2, -2 / (z - w) ** 3
            wp, wp_prime = wp + term - counter, wp_prime + slope
            wp_size += abs(term) + abs(counter)
            prime_size += abs(slope)
    return (wp, wp_prime), (wp_size, prime_size)


@pytest.mark.parametrize("name", ["square", "oblique", "turned", "unreduced"])
@pytest.mark.parametrize(("m_max", "n_max"), [(1, 1), (3, 2), (5, 12), (12, 12)])
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_lattice_sum_is_the_double_loop_up_to_rounding(
    subject: Subject, name: str, m_max: int, n_max: int, dtype: str
) -> None:
    """Recursive summation: each term meets at most a row and a column of additions.

    Ten more roundings make the term itself: w, z - w, its reciprocal and powers.
    """
    lattice = LATTICES[name]
    z = np.array([0.37 + 0.21j, -0.8 + 0.11j, 0.05 - 1.3j], dtype)
    got = call(subject, "lattice_sum", z, lattice, m_max, n_max)
    unit = float(np.finfo(dtype).eps) / 2
    roundings = (2 * m_max + 1) + (2 * n_max + 1) + 10
    for k, point in enumerate(z):
        with mpmath.workdps(30):
            wants, sizes = series_by_loops(mpmath.mpc(complex(point)), lattice, m_max, n_max)
            for value, want, size in zip(got, wants, sizes, strict=True):
                assert value.dtype == dtype
                assert abs(mpmath.mpc(complex(value[k])) - want) <= roundings * unit * size


@pytest.mark.parametrize(
    "bad", [*NANS, complex(0.3, math.inf), complex(-math.inf, 0.3), complex(math.inf, math.inf)]
)
def test_the_sum_at_no_point_is_nan_and_not_infinite(subject: Subject, bad: complex) -> None:
    z = np.array([0.3 + 0.2j, bad, 0.5])
    clean = call(subject, "lattice_sum", np.array([0.3 + 0.2j, 0.1, 0.5]), OBLIQUE, 2, 2)
    for value, untouched in zip(call(subject, "lattice_sum", z, OBLIQUE, 2, 2), clean, strict=True):
        assert np.isnan(value[1].real)
        assert np.isnan(value[1].imag)
        np.testing.assert_array_equal(value[[0, 2]], untouched[[0, 2]])


@pytest.mark.parametrize("name", ["square", "lemniscatic", "hexagonal", "oblique", "tall"])
@pytest.mark.parametrize(("m_max", "n_max"), [(2, 2), (12, 12), (25, 10), (40, 40)])
def test_lattice_sum_is_within_its_bounds_of_the_truth(
    subject: Subject, name: str, m_max: int, n_max: int
) -> None:
    """The bounds are of truncation; rounding is added as in the test before."""
    lattice = LATTICES[name].reduced()[0]
    z = cell_points(lattice, 40, seed=9)
    got = call(subject, "lattice_sum", z, lattice, m_max, n_max)
    halves = (complex(lattice.omega1), complex(lattice.omega3))
    period = abs(2 * halves[0])
    # Sums of |terms|: the pole next to z, and sums of |w|^-2 and |w|^-3 over the box.
    size = abs(z) ** -2 + 16 * math.log(m_max + n_max + 2) * period**-2
    slope_size = 2 * abs(z) ** -3 + 64 * period**-3
    roundings = (2 * m_max + 1) + (2 * n_max + 1) + 10
    for k, point in enumerate(z):
        truth = TRUTH.wp_and_prime(complex(point), lattice)
        paired, signed = (
            bound(complex(point), *halves, m_max=m_max, n_max=n_max)
            for bound in (bounds.paired_sum_bound, bounds.signed_sum_bound)
        )
        for value, want, limits, rounding in (
            (got[0][k], truth[0], (paired.wp, signed.wp), size[k]),
            (got[1][k], truth[1], (paired.wp_prime, signed.wp_prime), slope_size[k]),
        ):
            error = abs(complex(value) - complex(want))
            for limit in limits:
                assert error <= limit + roundings * EPS * rounding


def test_lattice_sum_converges_like_one_over_m_squared(subject: Subject) -> None:
    """On the square lattice with periods 1 and i, |wp - S| (M + 1/2)^2 tends to |z|^2.

    The leading term of the tail is 3 g4 z^2 with g4 = 1/(3 (M + 1/2)^2) up to 1/M^2 of itself,
    and the next term is smaller by (|z|/M)^2. So 1/M bounds the deviation with room to spare.
    """
    lattice = Lattice.from_periods(1.0, 1.0j)
    z = np.array([0.31 + 0.17j])
    truth = complex(TRUTH.wp(complex(z[0]), lattice))
    for m_max in (8, 16, 32, 64):
        (value, _) = call(subject, "lattice_sum", z, lattice, m_max, m_max)
        leading = abs(complex(value[0]) - truth) * (m_max + 0.5) ** 2
        assert abs(leading / abs(z[0]) ** 2 - 1) <= 1 / m_max


@pytest.mark.parametrize("bad", [0, -1, True, False, 1.5, 2.0, "3", None, [3]])
@pytest.mark.parametrize("name", ["m_max", "n_max"])
def test_truncations_are_positive_integers(subject: Subject, name: str, bad: Any) -> None:
    sizes = {"m_max": 3, "n_max": 3} | {name: bad}
    with pytest.raises(InputError) as caught:
        subject.backend.lattice_sum(subject.to_backend(np.array([0.5])), SQUARE, **sizes)
    assert name in str(caught.value)
    assert repr(bad) in str(caught.value)


def test_integers_of_numpy_are_integers(subject: Subject) -> None:
    z = np.array([0.5 + 0.25j])
    for first, second in zip(
        call(subject, "lattice_sum", z, SQUARE, np.int64(3), np.uint8(2)),
        call(subject, "lattice_sum", z, SQUARE, 3, 2),
        strict=True,
    ):
        np.testing.assert_array_equal(first, second)


# --- The Green function --------------------------------------------------------------------


def green_by_definition(z: complex, lattice: Lattice) -> Any:
    """-log|sigma| + Re(G2* z^2)/2 + pi|z|^2/(2A), G2* = eta1/omega1 - pi conj(omega1)/(A omega1).

    That constant makes zeta(z) - G2* z - (pi/A) conj(z), which is -2 dG/dz, doubly periodic.
    """
    with mpmath.workdps(30):
        w1, w3 = mpmath.mpc(complex(lattice.omega1)), mpmath.mpc(complex(lattice.omega3))
        area = 4 * mpmath.im(mpmath.conj(w1) * w3)
        eta1, _ = TRUTH.quasi_periods(lattice)
        constant = eta1 / w1 - mpmath.pi * mpmath.conj(w1) / (area * w1)
        x = mpmath.mpc(z)
        return (
            -mpmath.log(abs(TRUTH.sigma(z, lattice)))
            + mpmath.re(constant * x * x) / 2
            + mpmath.pi / (2 * area) * abs(x) ** 2
        )


@every_lattice
def test_green_is_its_definition_by_sigma(subject: Subject, name: str) -> None:
    lattice = LATTICES[name]
    z = cell_points(lattice, 25, seed=10)
    (got,) = subject.evaluate("green", z, lattice=lattice)
    assert got.dtype == np.float64
    for value, point in zip(got, z, strict=True):
        want = green_by_definition(complex(point), lattice)
        with mpmath.workdps(30):
            error = float(abs(mpmath.mpf(float(value)) - want) / (abs(want) + 1))
        assert in_eps(error, "complex128") <= CEILINGS["green"]["complex128"]["largest"]


@pytest.mark.parametrize("name", ["square", "oblique", "turned", "unreduced"])
def test_green_is_doubly_periodic(subject: Subject, name: str) -> None:
    """Few-bit periods and points: the translated argument is exact, so the values are equal."""
    lattice = LATTICES[name]
    w1, w3 = 2 * complex(lattice.omega1), 2 * complex(lattice.omega3)
    rng = np.random.default_rng(11)
    z = (rng.integers(-2000, 2000, 100) + 1j * rng.integers(-2000, 2000, 100) + 0.5) / 1024.0
    (here,) = subject.evaluate("green", z, lattice=lattice)
    for m, n in ((1, 0), (0, 1), (-3, 2), (1000, 777)):
        (there,) = subject.evaluate("green", z + m * w1 + n * w3, lattice=lattice)
        np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize(("width", "height"), [(1.0, 1.0), (1.25, 0.75), (1.0, 2.5), (3.0, 1.0)])
def test_green_decreases_along_rows_and_columns(
    subject: Subject, width: float, height: float
) -> None:
    """A theorem on rectangular lattices: G falls strictly with |Re z| and with |Im z|.

    Along each line up to half a period. Steps are at least a hundredth of the line, which is
    far above rounding wherever the line runs; their ends are random.
    """
    lattice = Lattice.rectangular(width, height)
    rng = np.random.default_rng(12)
    for _ in range(40):
        along = np.cumsum(rng.uniform(0.01, 0.03, 33))
        along = np.concatenate([[0.0], along[along < 1], [1.0]])
        across = rng.uniform(0.02, 1.0) * rng.choice([-1.0, 1.0])
        sign = rng.choice([-1.0, 1.0])
        row = sign * along * width + 1j * across * height
        column = across * width + 1j * sign * along * height
        for line in (row, column):
            (values,) = subject.evaluate("green", line, lattice=lattice)
            # The last step may be shorter than the others; all of them must go down.
            assert (np.diff(values[:-1]) < 0).all()
            assert values[-1] <= values[-2]


@pytest.mark.parametrize("name", ["square", "hexagonal", "oblique", "turned"])
def test_the_laplacian_of_green_is_two_pi_over_the_area(name: str) -> None:
    """Second differences with step 1e-10 of forty-digit values.

    Their own error: G is a constant Laplacian plus logarithms, so the fourth derivatives of
    -log|z - w| decide, which are at most 6/|z - w|^4; the stencil leaves h^2/6 of them. All
    lattice points together contribute less than five times the nearest (sum of |w|^-4, with
    w the hexagonal lattice, is 7.7). Rounding: 4e-40 |G| / h^2.
    """
    lattice = LATTICES[name]
    backend = get_backend("mpmath", dps=40)
    a, b = reduced_periods(lattice)
    h = mpmath.mpf(10) ** -10
    for s, r in ((0.31, 0.17), (0.5, 0.5), (-0.2, 0.45), (0.05, 0.03)):
        with mpmath.workdps(45):
            z = s * mpmath.mpc(a) + r * mpmath.mpc(b)
            w1, w3 = mpmath.mpc(complex(lattice.omega1)), mpmath.mpc(complex(lattice.omega3))
            area = 4 * mpmath.im(mpmath.conj(w1) * w3)
            around = [backend.green(z + step, lattice) for step in (h, -h, 1j * h, -1j * h)]
            laplacian = (sum(around) - 4 * backend.green(z, lattice)) / h**2
            distance = min(abs(z - m * a - n * b) for m in (-1, 0, 1) for n in (-1, 0, 1))
            allowed = 5 * h**2 / distance**4 + 100 * mpmath.mpf(10) ** -40 / h**2
            assert abs(laplacian - 2 * mpmath.pi / area) <= allowed


# --- The inverse ---------------------------------------------------------------------------


def coordinates(z: Any, lattice: Lattice) -> tuple[Any, Any]:
    """r and Re(z/2w1), where z = s 2w1 + r 2w3 in the reduced basis."""
    a, b = reduced_periods(lattice)
    ratio, tau = z / a, b / a
    return ratio.imag / tau.imag, ratio.real


@every_lattice
def test_inverse_lies_in_the_documented_region(subject: Subject, name: str) -> None:
    """0 <= r <= 1/2 and |Re(z/2w1)| <= 1/2, up to the rounding of these coordinates."""
    lattice = LATTICES[name]
    rng = np.random.default_rng(13)
    unit = abs(reduced_periods(lattice)[0]) ** -2
    w = 10.0 ** rng.uniform(-3, 3, 400) * np.exp(2j * np.pi * rng.random(400)) * unit
    (z,) = subject.evaluate("inverse_wp", w, lattice=lattice)
    r, column = coordinates(z, lattice)
    tall = abs(complex(lattice.reduced()[0].tau))
    assert (r >= -16 * EPS).all()  # within the width that counts as on the edge
    assert (r <= 0.5 + 16 * EPS).all()
    assert (abs(column) <= 0.5 + 16 * EPS * tall).all()


def inverse_errors(
    subject: Subject, z: np.ndarray, w: np.ndarray, got: np.ndarray, lattice: Lattice
) -> np.ndarray:
    """Distance from the ground truth's solution, in eps of what the contract counts by.

    The contract is on w; z moves by 1/wp' times what w does.
    """
    (slope,) = subject.evaluate("wp_prime", z, lattice=lattice)
    floor = abs(reduced_periods(lattice)[0]) ** -2
    truth = TRUTH.inverse_wp([complex(value) for value in w], lattice)
    errors = [abs(mpmath.mpc(complex(x)) - want) for x, want in zip(got, truth, strict=True)]
    scale = abs(z) + (abs(w) + floor) / abs(slope)
    return np.array([float(error) for error in errors]) / scale / EPS


INVERSE_CEILING = CEILINGS["inverse_wp"]["complex128"]["largest"]


@every_lattice
def test_inverse_takes_the_branch_of_the_ground_truth(subject: Subject, name: str) -> None:
    """Inside the region, a twentieth away from its edges: the very same solution."""
    lattice = LATTICES[name]
    a, b = reduced_periods(lattice)
    rng = np.random.default_rng(14)
    r = rng.uniform(0.05, 0.45, 40)
    column = rng.uniform(-0.45, 0.45, 40)
    z = (column - r * (b / a).real) * a + r * b
    (w,) = subject.evaluate("wp", z, lattice=lattice)
    (got,) = subject.evaluate("inverse_wp", w, lattice=lattice)
    assert (inverse_errors(subject, z, w, got, lattice) <= INVERSE_CEILING).all()


@pytest.mark.parametrize("name", ["square", "lemniscatic", "tall"])
@pytest.mark.parametrize("edge", [0.0, 0.5])
def test_on_the_edges_the_solution_farther_right_is_taken(
    subject: Subject, name: str, edge: float
) -> None:
    """Rectangular lattices: real w, whose solutions lie on r = 0 or r = 1/2, at both z and -z."""
    lattice = LATTICES[name]
    a, b = reduced_periods(lattice)
    z = np.linspace(0.04, 0.46, 30) * a + edge * b
    w = subject.evaluate("wp", z, lattice=lattice)[0].real
    for given_as in (w + 0j, w):
        (got,) = subject.evaluate("inverse_wp", given_as, lattice=lattice)
        _, column = coordinates(got, lattice)
        assert (column > 0).all()
        assert (inverse_errors(subject, z, w, got, lattice) <= INVERSE_CEILING).all()


@pytest.mark.parametrize("name", ["oblique", "turned", "unreduced", "hexagonal"])
def test_on_the_upper_edge_of_an_oblique_cell_the_solution_stays_in_the_region(
    subject: Subject, name: str
) -> None:
    """The other solution is 2w3 - z, moved by a period if it would leave |Re(z/2w1)| <= 1/2."""
    lattice = LATTICES[name]
    a, b = reduced_periods(lattice)
    z = np.linspace(-0.49, 0.49, 50) * a + 0.5 * b
    z = z - np.rint((z / a).real) * a
    mirror = b - z
    mirror = mirror - np.rint((mirror / a).real) * a
    want = np.where((z / a).real > (mirror / a).real, z, mirror)
    (w,) = subject.evaluate("wp", want, lattice=lattice)
    (got,) = subject.evaluate("inverse_wp", w, lattice=lattice)
    _, column = coordinates(got, lattice)
    assert (abs(column) <= 0.5 + 16 * EPS).all()
    (slope,) = subject.evaluate("wp_prime", want, lattice=lattice)
    # Both w and the solution are rounded; a unit more where two solutions nearly meet.
    scale = abs(want) + (abs(w) + abs(a) ** -2) / abs(slope)
    assert (abs(got - want) <= 2 * INVERSE_CEILING * EPS * scale).all()


@every_lattice
def test_inverse_of_a_root_is_its_half_period(subject: Subject, name: str) -> None:
    """wp is flat there: (z - omega)^2 = 2 (w - e)/wp''(omega), and the contract bounds w - e."""
    lattice = LATTICES[name].reduced()[0]
    a, b = reduced_periods(lattice)
    halves = [a / 2, (a + b) / 2, b / 2]
    roots = np.array([complex(root) for root in subject.backend.roots(lattice)])
    g2 = complex(subject.backend.invariants(lattice)[0])
    (got,) = subject.evaluate("inverse_wp", roots, lattice=lattice)
    ceiling = INVERSE_CEILING
    for root, half, z in zip(roots, halves, got, strict=True):
        (reference,) = oracle.inverse_wp(complex(root), lattice)
        assert in_eps(reference.error_of(complex(z)), "complex128") <= ceiling
        curvature = abs(6 * root**2 - g2 / 2)  # DLMF 23.3.12
        off = ceiling * EPS * (abs(root) + abs(a) ** -2)
        distance = min(
            abs(sign * z - half - m * a - n * b)
            for sign in (1, -1)
            for m in (-1, 0, 1)
            for n in (-1, 0, 1)
        )
        assert distance <= math.sqrt(2 * off / curvature) + 4 * EPS * abs(b)


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_inverse_keeps_nan_and_the_dtype(subject: Subject, dtype: str) -> None:
    w = np.array([math.nan, complex(1, math.nan), 2.0 + 1.0j], dtype)
    (z,) = subject.evaluate("inverse_wp", w, lattice=OBLIQUE)
    assert z.dtype == dtype
    assert np.isnan(z[:2]).all()
    assert np.isfinite(z[2])


@pytest.mark.parametrize("name", ["square", "tall"])
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_on_the_sides_the_right_one_is_taken(subject: Subject, name: str, dtype: str) -> None:
    """Real w between e2 and e1 of a rectangular lattice: z and z - 2w1 are on the two sides."""
    lattice = LATTICES[name]
    a, b = reduced_periods(lattice)
    e1, e2, _ = (complex(root).real for root in subject.backend.roots(lattice))
    w = np.linspace(e2, e1, 403)[1:-1].astype(dtype)
    (z,) = subject.evaluate("inverse_wp", w, lattice=lattice)
    row, column = coordinates(z.astype(complex), lattice)
    assert (abs(column - 0.5) <= 16 * np.finfo(dtype).eps).all()
    assert (row >= 0).all()
    # At the upper end too, which belongs to both edges.
    (corner,) = subject.evaluate("inverse_wp", np.array([e2], dtype), lattice=lattice)
    assert abs(corner[0] - (a + b) / 2) <= 0.01 * abs(a)


@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [("complex128", (-500, -262, -30, 3, 30, 262, 500)), ("complex64", (-55, -33, -2, 3, 33, 55))],
)
def test_the_inverse_scales_with_the_lattice_dlmf_23_10_iv(
    subject: Subject, dtype: str, exponents: tuple[int, ...]
) -> None:
    """By powers of two, so exactly."""
    w = np.array([0.3 + 0.2j, -1.5 + 0.1j, 12.0 - 3.0j, 0.0, 5.0, 900j], dtype)
    (here,) = subject.evaluate("inverse_wp", w, lattice=OBLIQUE)
    for exponent in exponents:
        factor = np.dtype(dtype).type(2.0**exponent)
        scaled = Lattice(2.0**exponent * OBLIQUE.omega1, 2.0**exponent * OBLIQUE.omega3)
        (there,) = subject.evaluate("inverse_wp", w / factor / factor, lattice=scaled)
        np.testing.assert_array_equal(there, here * factor)
