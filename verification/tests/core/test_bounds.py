r"""Truncation bounds: never violated, and tight where they claim to be.

The truth is the csc² row sum in mpmath, which shares nothing with the bounds; each test
subtracts the truncated series from it at a precision that leaves 25 digits of the tail.
A bound holds if it is at least the tail: no tolerance enters, because the bounds round
outwards themselves.
"""

import cmath
import itertools
import math
import statistics
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from wefpe_core import bounds
from wefpe_core.bounds.far_points import box_tail_sum, disk_tail_sum, paired_tail
from wefpe_core.bounds.normalised_lattice import normalise
from wefpe_core.bounds.q_series import power_sum_tail
from wefpe_core.errors import InputError, LatticeError

HEXAGONAL = complex(0.5, math.sqrt(3) / 2)
SPARE_DIGITS = 40


class Case(NamedTuple):
    """A point and a reduced lattice: exactly these doubles are the question."""

    z: complex
    omega1: complex
    omega3: complex

    @property
    def tau(self):
        return self.omega3 / self.omega1


def case(tau, coordinates, omega1):
    """Case at the point with the given coordinates along the two full periods."""
    s, t = coordinates
    return Case(2 * omega1 * (s + t * tau), omega1, omega1 * tau)


def on_arc(x):
    return complex(x, math.sqrt(1 - x * x))


taus = st.one_of(
    st.sampled_from([HEXAGONAL, HEXAGONAL - 1, 1j, 0.5 + 2j, -0.5 + 1.2j, 12j]),
    st.floats(-0.5, 0.5).map(on_arc),
    st.tuples(st.floats(-0.5, 0.5), st.floats(0, 5)).map(lambda p: on_arc(p[0]) + 1j * p[1]),
)
scales = st.tuples(st.integers(-6, 6), st.floats(0, 2 * math.pi)).map(
    lambda p: cmath.rect(4.0 ** p[0], p[1])
)
coordinates = st.tuples(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5)).filter(
    lambda c: max(map(abs, c)) > 2.0**-20  # closer, the tail is below SPARE_DIGITS of wp
)
cases = st.builds(case, taus, coordinates, scales)
box_sides = st.integers(1, 5)


def random_cases(seed, count):
    """Reduced lattices of every kind, points of every region of the Voronoi cell of 0."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        tau = [
            HEXAGONAL,
            1j,
            on_arc(rng.uniform(-0.5, 0.5)),
            complex(0.5, rng.uniform(0.87, 3)),
            on_arc(rng.uniform(-0.5, 0.5)) + 1j * rng.exponential(),
            on_arc(rng.uniform(-0.5, 0.5)) + 1j * rng.uniform(3, 6),
        ][index % 6]
        omega1 = cmath.rect(10 ** rng.uniform(-2, 2), rng.uniform(0, 2 * math.pi))
        region = index // 6 % 3
        if region == 0:  # anywhere in the cell
            zeta = rng.uniform(-0.5, 0.5) + rng.uniform(-0.5, 0.5) * tau
            neighbours = itertools.product((-1, 0, 1), repeat=2)
            zeta = min((zeta - m - n * tau for m, n in neighbours), key=abs)
        elif region == 1:  # its corner: the circumcentre of 0, 1, tau, or its mirror image
            side = math.copysign(1, tau.real)
            zeta = tau * (tau.conjugate() - side) / (tau.conjugate() - tau)
        else:  # near 0
            zeta = cmath.rect(10 ** rng.uniform(-6, -1), rng.uniform(0, 2 * math.pi))
        yield Case(2 * omega1 * zeta, omega1, omega1 * tau), rng


def normalised(question):
    period = 2 * mp.mpc(question.omega1)
    return mp.mpc(question.z) / period, 2 * mp.mpc(question.omega3) / period, period


def csc2(v):
    return 1 / mp.sin(v) ** 2


def csc2_prime(v):
    return -2 * mp.cos(v) / mp.sin(v) ** 3


def rows_beyond(first, tau):
    """Row numbers n, -n from `first` on, as many as the working precision can tell from 0."""
    last = first + 2 + math.ceil(mp.dps * math.log(10) / (2 * math.pi * tau.imag))
    return [sign * n for n in range(first, int(last)) for sign in (1, -1)]


def true_values(question):
    """Return wp and wp' as sums over rows of the lattice."""
    zeta, tau, period = normalised(question)
    v, u = mp.pi * zeta, mp.pi * tau
    rows = rows_beyond(1, tau)
    wp = csc2(v) - mp.mpf(1) / 3 + mp.fsum(csc2(v + n * u) - csc2(n * u) for n in rows)
    wp_prime = csc2_prime(v) + mp.fsum(csc2_prime(v + n * u) for n in rows)
    return (mp.pi / period) ** 2 * wp, (mp.pi / period) ** 3 * wp_prime


def invariants(question, terms=60):
    """Return g2 and g3 from the Eisenstein series E4 and E6 in the squared nome."""
    _, tau, period = normalised(question)
    q = mp.expjpi(2 * tau)
    e4 = 1 + 240 * mp.fsum(k**3 * q**k / (1 - q**k) for k in range(1, terms))
    e6 = 1 - 504 * mp.fsum(k**5 * q**k / (1 - q**k) for k in range(1, terms))
    s = (mp.pi / period) ** 2
    return 4 * s**2 * e4 / 3, 8 * s**3 * e6 / 27


def box(question, m_range, n_range):
    """Full lattice points other than 0 with the given numbers."""
    period1, period3 = 2 * mp.mpc(question.omega1), 2 * mp.mpc(question.omega3)
    return [m * period1 + n * period3 for m in m_range for n in n_range if m or n]


def symmetric_box(question, m_max, n_max):
    return box(question, range(-m_max, m_max + 1), range(-n_max, n_max + 1))


def truncated_sum(question, points):
    """Return the defining series of wp and wp' over the given lattice points."""
    z = mp.mpc(question.z)
    inverses = [1 / (z - w) for w in points]
    wp = 1 / z**2 + mp.fsum(r * r for r in inverses) - mp.fsum(1 / (w * w) for w in points)
    return wp, -2 / z**3 - 2 * mp.fsum(r * r * r for r in inverses)


def tail_of(question, points):
    """What the sum over `points` leaves out, for wp and wp'."""
    with mp.workdps(30 + SPARE_DIGITS):
        pairs = zip(true_values(question), truncated_sum(question, points), strict=True)
        return tuple(true - approximate for true, approximate in pairs)


def ratios(bound, tail):
    """Bound over truth for wp and wp'; at least one where the bound holds."""
    sizes = [abs(t) for t in tail]
    return tuple(float(b / t) if t else math.inf for b, t in zip(bound, sizes, strict=True))


def assert_holds(bound, tail):
    assert min(ratios(bound, tail)) >= 1


def test_truth_agrees_with_the_theta_quotient_dlmf_23_6():
    for question, _ in random_cases(seed=20, count=18):
        with mp.workdps(30 + SPARE_DIGITS):
            zeta, tau, period = normalised(question)
            q, v = mp.expjpi(tau), mp.pi * zeta
            # Half a row up the nome's series still converge as fast as the truth's rows.
            theta = [mp.jtheta(k, 0, q) for k in (2, 3)]
            quotient = theta[0] * theta[1] * mp.jtheta(4, v, q) / mp.jtheta(1, v, q)
            e3 = -(theta[0] ** 4 + theta[1] ** 4) / 3
            want = (mp.pi / period) ** 2 * (quotient**2 + e3)
            wp, wp_prime = true_values(question)
            g2, g3 = invariants(question)
            size = abs(want) + abs((mp.pi / period) ** 2)
            # Thirty digits are what the tests keep of every true value.
            assert abs(wp - want) <= mp.mpf(10) ** -30 * size
            residual = wp_prime**2 - 4 * wp**3 + g2 * wp + g3
            assert abs(residual) <= mp.mpf(10) ** -30 * (abs(wp_prime) ** 2 + 4 * size**3)


# --- what the bounds are made of ------------------------------------------------------------


@pytest.mark.parametrize("theta", [0.05, 0.5, 0.97])
def test_closed_forms_equal_the_series_they_stand_for(theta):
    # Terms fall like theta^2j j^3: 2000 of them leave out less than a rounding. A sum of
    # positive terms is within 2^-40 of its closed form, the inward and outward slack.
    for order in (3, 5, 7, 21):
        even = math.fsum((2 * j + order) * theta ** (2 * j) for j in range(2000))
        odd = math.fsum(
            (2 * j + order) * (2 * j + order - 1) * theta ** (2 * j) for j in range(2000)
        )
        got = paired_tail(theta, radius=1.0, order=order, tail_sum=1.0)
        want = theta ** (order - 1) * even, theta ** (order - 2) * odd
        assert got == pytest.approx(want, rel=2.0**-40)
    for power, after in itertools.product(range(3), (0, 1, 5)):
        total = math.fsum(k**power * theta**k for k in range(after + 1, 4000))
        assert power_sum_tail(power, math.log(theta), after) == pytest.approx(total, rel=2.0**-40)


REACH = 200


def far_sum(p, tau, is_left_out):
    """Sum of |m + n tau|^-p over the points left out; an integral takes over at REACH."""
    n_reach = math.ceil(REACH / tau.imag)
    m_reach = REACH + n_reach
    m, n = np.meshgrid(np.arange(-m_reach, m_reach + 1), np.arange(-n_reach, n_reach + 1))
    size = abs(m + n * tau)
    summed = size[is_left_out(m, n, size) & (size <= REACH)]
    return np.sum(summed ** -float(p)) + 2 * math.pi / (tau.imag * (p - 2)) * REACH ** (2.0 - p)


tail_lattices = pytest.mark.parametrize("tau", [HEXAGONAL, 1j, 0.5 + 2j, 12j])


@pytest.mark.parametrize("p", [3, 4, 6])
@tail_lattices
@pytest.mark.parametrize("sides", [(1, 1), (6, 6), (12, 3), (3, 12)])
def test_box_tail_sums_lose_corners_only(p, tau, sides):
    true = far_sum(p, tau, lambda m, n, size: (abs(m) > sides[0]) | (abs(n) > sides[1]))
    bound = box_tail_sum(p, normalise(0, 0.5, tau / 2), *sides)
    # Corners belong to a row and to a column. Around a large square that costs sqrt(2) for
    # p = 3 and less for larger p, around the acute corners of a hexagonal box 1.47.
    assert 1 <= bound / true <= 1.5


@pytest.mark.parametrize("p", [3, 4])
@tail_lattices
@pytest.mark.parametrize("radius", [0.9999, 1.7, math.sqrt(13) - 2.0**-20, 20.0])
def test_disk_tail_sums_lose_less_than_half(p, tau, radius):
    true = far_sum(p, tau, lambda m, n, size: size > radius)
    bound = disk_tail_sum(p, normalise(0, 0.5, tau / 2), radius)
    # What is lost is a layer of cells around the disk, or the disk around an inscribed box:
    # 1.9 in the hexagonal lattice at the radius 1.7. The ceiling keeps it from growing.
    assert 1 <= bound / true <= 2


# --- the lattice sum over a box -------------------------------------------------------------


@given(cases, box_sides, box_sides)
def test_paired_unpaired_and_signed_bounds_hold(question, m_max, n_max):
    sides = {"m_max": m_max, "n_max": n_max}
    tail = tail_of(question, symmetric_box(question, m_max, n_max))
    assert_holds(bounds.paired_sum_bound(*question, **sides), tail)
    assert_holds(bounds.unpaired_sum_bound(*question, **sides), tail)
    assert_holds(bounds.signed_sum_bound(*question, **sides), tail)


@given(cases, box_sides, box_sides, st.integers(0, 3), st.integers(0, 3))
def test_unpaired_bound_holds_for_any_larger_set(question, m_max, n_max, more_m, more_n):
    points = box(question, range(-m_max, m_max + 1 + more_m), range(-n_max - more_n, n_max + 1))
    bound = bounds.unpaired_sum_bound(*question, m_max=m_max, n_max=n_max)
    assert_holds(bound, tail_of(question, points))


def test_box_bounds_over_the_cell_are_as_tight_as_their_proofs():
    paired, unpaired, signed = [], [], []
    for question, rng in random_cases(seed=21, count=180):
        sides = {"m_max": int(rng.integers(1, 11)), "n_max": int(rng.integers(1, 11))}
        tail = tail_of(question, symmetric_box(question, **sides))
        paired.append(ratios(bounds.paired_sum_bound(*question, **sides), tail))
        unpaired.append(ratios(bounds.unpaired_sum_bound(*question, **sides), tail))
        signed.append(ratios(bounds.signed_sum_bound(*question, **sides), tail))
    for observed in (paired, unpaired, signed):
        assert min(map(min, observed)) >= 1
    # The signed bound has the exact leading term; only the next one is estimated, and that is
    # smaller by (|z|/rho)^2. It must reach one near 0 and stay close to it in the cell.
    for column in zip(*signed, strict=True):
        assert min(column) <= 1.01
        assert statistics.median(column) <= 1.2


# --- the lattice sum over a disk ------------------------------------------------------------


@given(cases, st.floats(0.25, 5))
def test_disk_bounds_hold(question, radius_in_periods):
    radius = radius_in_periods * abs(2 * question.omega1)
    n_max = math.ceil(radius_in_periods / question.tau.imag)
    m_max = math.ceil(radius_in_periods + n_max)
    with mp.workdps(30 + SPARE_DIGITS):
        points = [w for w in symmetric_box(question, m_max, n_max) if abs(w) <= radius]
    tail = tail_of(question, points)
    assert_holds(bounds.disk_paired_bound(*question, radius=radius), tail)
    assert_holds(bounds.disk_unpaired_bound(*question, radius=radius), tail)


@pytest.mark.parametrize("tau", [1j, HEXAGONAL, 1e3j, 1e200j])
def test_disk_tail_sum_tends_to_the_area_integral(tau):
    # The density 1/area gives pi/(area R^2), and one row alone 2 R^-3/3. Cells that fit into
    # the disk add their diameter over R; an inscribed box of one row, as in a thin lattice,
    # counts corners twice (1.3) and the nearest rows at half their distance (4 times 1.3/3).
    near_origin, radius = 2.0**-30, 1000
    bound = bounds.disk_paired_bound(near_origin, 0.5, tau / 2, radius=radius)
    density_sum = math.pi / tau.imag / radius**2 + 2 / 3 / radius**3
    given_away = 1.01 if tau.imag < 2 else 3
    assert bound.wp_prime <= given_away * 6 * near_origin * density_sum


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, True])
def test_disk_radius_outside_its_domain_is_refused(radius):
    with pytest.raises(InputError, match="radius"):
        bounds.disk_paired_bound(0.1, 0.5, 0.5j, radius=radius)


# --- the q-series ---------------------------------------------------------------------------


def q_series_digits(question, rows, counts):
    """Digits that separate the first row left out from the tail behind the last term."""
    decades = 2 * math.pi * question.tau.imag / math.log(10)
    return SPARE_DIGITS + math.ceil(decades * (rows + 2) * (max(counts) + 1))


def q_series_tail(question, rows, counts):
    """Tail of the series: all rows behind `rows`, less the terms kept, for wp and wp'."""
    with mp.workdps(q_series_digits(question, rows, counts)):
        zeta, tau, period = normalised(question)
        v, u, scale = mp.pi * zeta, mp.pi * tau, mp.pi / period
        beyond = rows_beyond(rows + 1, tau)
        q = mp.expjpi(2 * tau)
        a, b = mp.expjpi(2 * (tau + zeta)), mp.expjpi(2 * (tau - zeta))

        def series(power, x, count):
            return mp.fsum(
                k**power * q ** (rows * k) / (1 - q**k) * x**k for k in range(1, count + 1)
            )

        wp = mp.fsum(csc2(v + n * u) - csc2(n * u) for n in beyond)
        wp -= 8 * series(1, q, counts[2])
        wp += 4 * (series(1, a, counts[0]) + series(1, b, counts[1]))
        wp_prime = mp.fsum(csc2_prime(v + n * u) for n in beyond)
        wp_prime += 8j * (series(2, a, counts[0]) - series(2, b, counts[1]))
        return scale**2 * wp, scale**3 * wp_prime


term_counts = st.integers(0, 5)


@given(cases, st.integers(0, 2), term_counts, term_counts, term_counts)
def test_q_series_bound_holds_with_a_count_for_each_series(question, rows, a, b, constant):
    counts = bounds.QSeriesTerms(a, b, constant)
    bound = bounds.q_series_bound(*question, rows=rows, terms=counts)
    assert_holds(bound, q_series_tail(question, rows, counts))


def test_q_series_bound_is_nearly_attained_over_the_cell():
    observed = []
    for question, rng in random_cases(seed=22, count=180):
        rows, terms = int(rng.integers(0, 3)), int(rng.integers(1, 7))
        bound = bounds.q_series_bound(*question, rows=rows, terms=terms)
        tail = q_series_tail(question, rows, bounds.QSeriesTerms(terms, terms, terms))
        if abs((question.z / question.omega1).imag) > 0.1 * question.tau.imag:
            # Nearer to the row through 0 the phases of A and B may cancel.
            observed.append(ratios(bound, tail))
        assert_holds(bound, tail)
    for column in zip(*observed, strict=True):
        # One term dominates the tail, and the bound takes exactly its modulus.
        assert min(column) <= 1.01
        assert statistics.median(column) <= 1.2


def phase_allowance(tau, rows, terms, power):
    """Largest bound over truth at omega3 if all terms but the first left out oppose it.

    They are a share w of it: the next of its own series, and twice the first of the constant
    series. 2^-30 is ample for the outward rounding.
    """
    nome = math.exp(-math.pi * tau.imag)
    w = ((terms + 2) / (terms + 1)) ** power * nome ** (2 * rows + 1) + 2 * nome ** (terms + 1)
    return (1 + w) / (1 - w) + 2.0**-30


@pytest.mark.parametrize("tau", [HEXAGONAL, 1j, 0.5 + 2j, 3j])
def test_q_series_bound_is_attained_at_omega3(tau):
    question = Case(tau / 2, 0.5 + 0j, tau / 2)
    for rows, terms in itertools.product((0, 1, 2), (1, 2, 4)):
        bound = bounds.q_series_bound(*question, rows=rows, terms=terms)
        tail = q_series_tail(question, rows, bounds.QSeriesTerms(terms, terms, terms))
        for power, ratio in zip((1, 2), ratios(bound, tail), strict=True):
            assert 1 <= ratio <= phase_allowance(tau, rows, terms, power)


@pytest.mark.parametrize(
    ("tau", "double", "single"),
    [(HEXAGONAL, (16, 5, 3), (8, 2, 1)), (1j, (14, 4, 2), (7, 2, 1)), (3j, (5, 1, 0), (2, 0, 0))],
)
def test_terms_needed_for_half_an_ulp_of_the_constant_term(tau, double, single):
    # In half-ulps of pi^2/3 for wp, and of the largest row of wp' at omega3 for wp'.
    for unit, expected in ((2.0**-53, double), (2.0**-24, single)):
        largest_row = 8 * math.pi**3 * math.exp(-math.pi * tau.imag)
        tolerance = bounds.TruncationBound(unit * math.pi**2 / 3, unit * largest_row)
        needed = tuple(
            bounds.q_series_terms_needed(tau / 2, 0.5, tau / 2, rows=rows, tolerance=tolerance)
            for rows in (0, 1, 2)
        )
        assert needed == expected


@given(cases, st.integers(0, 2), st.floats(-200, 2))
def test_terms_needed_is_the_smallest_sufficient_number(question, rows, exponent):
    tolerance = bounds.TruncationBound(10.0**exponent, 10.0**exponent)

    def suffices(terms):
        bound = bounds.q_series_bound(*question, rows=rows, terms=terms)
        return max(bound) <= 10.0**exponent

    needed = bounds.q_series_terms_needed(*question, rows=rows, tolerance=tolerance)
    assert suffices(needed)
    assert needed == 0 or not suffices(needed - 1)


def test_terms_needed_refuses_what_no_number_of_terms_reaches():
    with pytest.raises(InputError, match="q-series"):
        bounds.q_series_terms_needed(
            0.1, 0.5, 0.5j, rows=1, tolerance=bounds.TruncationBound(0.0, 1.0)
        )
    with pytest.raises(InputError, match="q-series"):  # divergent: a row too high
        bounds.q_series_terms_needed(
            1.5j, 0.5, 0.5j, rows=0, tolerance=bounds.TruncationBound(1.0, 1.0)
        )


# --- the Laurent series ---------------------------------------------------------------------


def laurent_tail(question, terms):
    with mp.workdps(30 + SPARE_DIGITS * 2):
        g2, g3 = invariants(question)
        c = {2: g2 / 20, 3: g3 / 28}
        for k in range(4, terms + 2):
            convolution = mp.fsum(c[m] * c[k - m] for m in range(2, k - 1))
            c[k] = 3 * convolution / ((2 * k + 1) * (k - 3))
        z = mp.mpc(question.z)
        kept = range(2, terms + 2)
        wp = 1 / z**2 + mp.fsum(c[k] * z ** (2 * k - 2) for k in kept)
        wp_prime = -2 / z**3 + mp.fsum((2 * k - 2) * c[k] * z ** (2 * k - 3) for k in kept)
        true, true_prime = true_values(question)
        return true - wp, true_prime - wp_prime


discs = st.tuples(st.floats(0.05, 0.99), st.floats(0, 2 * math.pi)).map(lambda p: cmath.rect(*p))


@given(taus, discs, scales, st.integers(0, 10))
def test_laurent_bound_holds_in_the_disk_of_convergence(tau, zeta, omega1, terms):
    # In a disk, not in the cell: the truth converges for |Im(z/a)| below the first row.
    question = Case(2 * omega1 * zeta, omega1, omega1 * tau)
    bound = bounds.laurent_bound(*question, terms=terms)
    assert_holds(bound, laurent_tail(question, terms))


def test_laurent_bound_is_attained_on_the_hexagonal_lattice():
    # There the w^-2k of the two nearest shells are in phase when 6 divides k = terms + 2.
    question = Case(2.0**-6 + 0j, 0.5 + 0j, HEXAGONAL / 2)
    for terms in (4, 10):
        tail = laurent_tail(question, terms)
        for ratio in ratios(bounds.laurent_bound(*question, terms=terms), tail):
            # The next coefficients weigh (2K+3)/(2K+1) times theta^2, with powers up to two.
            assert 1 <= ratio <= 1 + 8 * 2.0**-12


# --- what all have in common ----------------------------------------------------------------

BOX = {"m_max": 5, "n_max": 2}
EVERY_BOUND = [
    (bounds.paired_sum_bound, BOX),
    (bounds.unpaired_sum_bound, BOX),
    (bounds.signed_sum_bound, BOX),
    (bounds.q_series_bound, {"rows": 1, "terms": 2}),
    (bounds.laurent_bound, {"terms": 4}),
]
every_bound = pytest.mark.parametrize(("bound", "options"), EVERY_BOUND)


@every_bound
@pytest.mark.parametrize(
    "tau", [0.6 + 2j, -0.51 + 1j, 0.5j, 0.9999j, 1 - 1j, 2 + 0j, complex("nan"), complex("inf")]
)
def test_an_unreduced_lattice_is_refused_by_name(bound, options, tau):
    with pytest.raises(LatticeError, match="tau="):
        bound(0.1, 0.5, tau / 2, **options)


@every_bound
def test_a_period_of_zero_or_infinity_is_refused(bound, options):
    for omega1 in (0, complex("nan"), math.inf):
        with pytest.raises(LatticeError, match="omega1"):
            bound(0.1, omega1, 1j, **options)


@every_bound
def test_beyond_the_radius_of_validity_the_bound_is_infinite(bound, options):
    for z in (
        40 + 40j,
        -50j,
        complex("nan"),
        complex("inf"),
        complex(1, math.inf),
        1e308 * (1 + 1j),
    ):
        assert bound(z, 0.5, 0.5j, **options) == (math.inf, math.inf)


@every_bound
def test_scaling_by_a_power_of_two_scales_the_bound_exactly(bound, options):
    z, omega1, omega3 = 0.21 + 0.1j, 0.4 + 0.3j, (0.4 + 0.3j) * (0.3 + 1.1j)
    wp, wp_prime = bound(z, omega1, omega3, **options)
    for exponent in (-300, -40, 1, 300):
        c = 2.0**exponent
        scaled = bound(c * z, c * omega1, c * omega3, **options)
        assert scaled.wp == wp / c**2
        assert scaled.wp_prime == wp_prime / c**3


@every_bound
@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-200, 1.0, 1e200, 1e299])
def test_extreme_scales_and_thin_lattices_give_a_bound_and_no_exception(bound, options, scale):
    for tau, zeta in itertools.product((1j, 1e8j), (1e-300, 0.1)):
        assert min(bound(zeta * scale, scale, tau * scale, **options)) > 0


@every_bound
@pytest.mark.parametrize("tau", [HEXAGONAL, HEXAGONAL - 1, 0.5 + 2j, 1j])
def test_half_periods_rounded_off_the_boundary_still_count_as_reduced(bound, options, tau):
    for angle in np.random.default_rng(23).uniform(0, 7, 50):
        omega1 = cmath.rect(1.3, angle)
        assert bound(0.1 * omega1, omega1, omega1 * tau, **options).wp < math.inf


@pytest.mark.parametrize("count", [0, -1, 2.0, 1.5, "3", None, True, np.True_, 2**31])
def test_counts_that_are_no_positive_integers_are_refused(count):
    for name in ("m_max", "n_max"):
        with pytest.raises(InputError, match=name):
            bounds.paired_sum_bound(0.1, 0.5, 0.5j, **{**BOX, name: count})


@pytest.mark.parametrize("count", [-1, 2.0, "3", None, False, 2**31])
def test_series_counts_may_be_zero_but_not_less(count):
    with pytest.raises(InputError, match="terms"):
        bounds.laurent_bound(0.1, 0.5, 0.5j, terms=count)
    for options in ({"rows": count, "terms": 1}, {"rows": 1, "terms": count}):
        with pytest.raises(InputError, match=r"rows|terms"):
            bounds.q_series_bound(0.1, 0.5, 0.5j, **options)


def test_numpy_numbers_are_numbers():
    numbers: Any = (np.complex128(0.1), np.float64(0.5), np.complex64(0.5j))
    box: dict[str, Any] = {"m_max": np.int64(3), "n_max": np.int8(2)}
    assert bounds.paired_sum_bound(*numbers, **box) == bounds.paired_sum_bound(
        0.1, 0.5, 0.5j, m_max=3, n_max=2
    )
