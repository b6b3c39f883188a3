"""`weierstrass` against the mpmath reference, its symmetries, its gradients, and its fidelities."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from hypothesis import given
from hypothesis import strategies as st

from training.encodings import build_encoding
from training.encodings.learned_lattice import LatticeParameter
from training.encodings.paper_listing import LISTINGS, clamped_lattice_sum
from training.encodings.weierstrass import WeierstrassEncoding
from training.errors import EncodingOptionError
from verification.tests.encoding_cases import CEILINGS, error_in_eps, small, table_of
from wefpe_core import InputError, Lattice, get_backend

REFERENCE = get_backend("mpmath", dps=25)
FEATURES = CEILINGS["features"]["float32"]
LITERAL = CEILINGS["literal"]["float64"]
GOLDEN_HALF_PERIOD = 2.62205755429212


def exact_values(grid, lattice, alpha_u, alpha_v, origin="pole"):
    """wp and wp' at the exact patch centres, by the reference."""
    height, width = grid
    centred = origin == "half_period"
    omega1, omega3 = (mpmath.mpmathify(complex(w)) for w in (lattice.omega1, lattice.omega3))
    with mpmath.workdps(30):
        z = [
            2
            * (
                (mpmath.mpf(alpha_u) * (2 * j + 1 - centred * width) / (2 * width)) * omega1
                + (mpmath.mpf(alpha_v) * (2 * i + 1 - centred * height) / (2 * height)) * omega3
            )
            + centred * (omega1 + omega3)
            for i in range(height)
            for j in range(width)
        ]
    return REFERENCE.wp_and_prime(z, lattice)


def exact_features(grid, lattice, alpha_u, alpha_v, scale, origin="pole"):
    wp, wp_prime = exact_values(grid, lattice, alpha_u, alpha_v, origin)
    with mpmath.workdps(30):
        rows = [
            [float(mpmath.tanh(scale * x)) for x in (p.real, p.imag, dp.real, dp.imag)]
            for p, dp in zip(wp, wp_prime, strict=True)
        ]
    return np.array(rows)


@pytest.mark.parametrize("grid", [(14, 14), (16, 9), (24, 24)])
def test_features_equal_the_reference_to_float32(grid):
    encoding = small("weierstrass", learnable=False)
    want = exact_features(grid, encoding.lattice(), 0.5, 0.5, 0.15)
    got = encoding.features(grid)
    assert got.dtype == torch.float32
    assert (
        error_in_eps(got, want, torch.float32, np.abs(want).max(axis=1, keepdims=True)) <= FEATURES
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lattice": "general"},
        {"g3": 0.1},
        {"g2": 1.0, "g3": 1.0},
        {"alpha_u": 1.0},
        {"origin": "half_period"},
        {"origin": "half_period", "alpha_u": 0.8, "g3": 0.1},
    ],
    ids=str,
)
def test_features_on_a_learned_lattice_equal_the_reference_there(options):
    encoding = small("weierstrass", grid=(6, 5), **options).double()
    with torch.no_grad():
        for parameter in encoding.lattice_parameter.parameters():
            parameter.add_(0.2)
    scale = float(torch.nn.functional.softplus(encoding.alpha_raw.detach()))
    alpha = options.get("alpha_u", 0.5)
    origin = options.get("origin", "pole")
    want = exact_features((6, 5), encoding.lattice(), alpha, alpha, scale, origin)
    got = encoding.float().features((6, 5))
    assert error_in_eps(got, want, torch.float32, np.abs(want).max(axis=0)) <= FEATURES


def test_around_a_half_period_the_features_have_its_symmetry():
    encoding = small("weierstrass", learnable=False, origin="half_period").double()
    p_re, p_im, dp_re, dp_im = (x.reshape(5, 4) for x in encoding.values((5, 4)))
    size = dp_re.abs().max()
    # wp is even and wp' odd about omega1 + omega3, the middle of the grid.
    for even in (p_re, p_im):
        assert (even - even.flip(0, 1)).abs().max() < 1e-14 * size
    for odd in (dp_re, dp_im):
        assert (odd + odd.flip(0, 1)).abs().max() < 1e-14 * size
    with pytest.raises(InputError, match="row 0, column 0"):
        small("weierstrass", origin="half_period", grid=(2, 2), alpha_u=2.0)


@pytest.mark.parametrize("name", ["weierstrass", "weierstrass_relative", "weierstrass_green"])
@pytest.mark.parametrize("backend", ["numpy", "mpmath"])
def test_backends_agree_to_rounding(name, backend):
    grid = (6, 5)
    torch_values, other = (
        small(name, learnable=False, backend=each, g3=0.1).values(grid)
        for each in ("torch", backend)
    )
    ceiling = CEILINGS["backends"]["float64"]
    if name == "weierstrass_green":
        torch_values, other = (torch_values,), (other,)
    for got, want in zip(other, torch_values, strict=True):
        assert error_in_eps(got, want, torch.float64) <= ceiling
    encodings = [small(name, learnable=False, backend=each) for each in ("torch", backend)]
    tables = [
        each.additive(grid) if name == "weierstrass" else each.bias(grid, 1) for each in encodings
    ]
    assert error_in_eps(tables[0], tables[1], torch.float32) <= FEATURES


def test_resolution_changes_no_value():
    encoding = small("weierstrass", learnable=False).double()
    # The centres of a 3x3 grid are among those of a 9x9 grid.
    coarse = encoding.features((3, 3))
    fine = encoding.features((9, 9)).reshape(9, 9, 4)[1::3, 1::3].reshape(9, 4)
    assert error_in_eps(fine, coarse, torch.float64) <= CEILINGS["backends"]["float64"]


# --- Symmetries --------------------------------------------------------------


def grid_values(encoding, grid):
    p_re, p_im, dp_re, dp_im = (x.detach().reshape(grid).numpy() for x in encoding.values(grid))
    return p_re + 1j * p_im, dp_re + 1j * dp_im


def test_symmetries_of_a_grid_over_the_whole_cell():
    encoding = small("weierstrass", learnable=False, alpha_u=1.0)
    wp, dp = grid_values(encoding, (8, 8))
    ceiling = CEILINGS["backends"]["float64"]
    for want, got in [
        (wp, wp[::-1, ::-1]),  # opposite through the middle
        (dp, -dp[::-1, ::-1]),
        (wp, wp[:, ::-1].conj()),  # mirror
        (dp, -dp[:, ::-1].conj()),
        (wp, -wp.T.conj()),  # transpose, on the square
    ]:
        assert error_in_eps(got, want, torch.float64) <= ceiling
    # Two features are 2-to-1: 32 coincident pairs on 8x8.
    pairs = np.abs(wp.reshape(-1, 1) - wp.reshape(-1)) <= 1e-9
    assert (np.triu(pairs, 1)).sum() == 32


def test_the_centre_of_an_odd_grid_over_the_whole_cell_has_no_features():
    encoding = small("weierstrass", learnable=False, alpha_u=1.0)
    centre = encoding.features((3, 3))[4]
    assert float(centre.abs().max()) <= torch.finfo(torch.float32).eps


def test_half_a_period_is_injective():
    wp, _ = grid_values(small("weierstrass", learnable=False), (14, 14))
    distances = np.abs(wp.reshape(-1, 1) - wp.reshape(-1)) + np.eye(196)
    assert distances.min() > 1e-3


# --- The learned lattice -----------------------------------------------------------------------


def test_the_lattice_starts_where_it_is_told():
    square = small("weierstrass").lattice()
    assert error_in_eps(square.tau, 1j, torch.float32) <= FEATURES
    assert square.omega1.real == 1.8540746773013719
    oblong = small("weierstrass", g3=0.1).lattice()
    assert error_in_eps(oblong.tau.imag, 1.1618, torch.float32) <= 1e3  # four digits are printed
    assert (
        error_in_eps(small("weierstrass", g3=0.1, start="square").lattice().tau, 1j, torch.float32)
        <= FEATURES
    )
    rhombic = small("weierstrass", g3=1.0).lattice()
    assert error_in_eps(rhombic.tau.real, 0.5, torch.float32) <= FEATURES


@pytest.mark.parametrize(
    "options", [{}, {"lattice": "general"}, {"fidelity": "paper"}, {"fidelity": "authors"}], ids=str
)
def test_gradients_in_the_lattice_equal_differences(options):
    encoding = small("weierstrass", **options).double()
    weights = torch.linspace(-1.0, 1.0, 40 * 4, dtype=torch.float64).reshape(40, 4)

    def loss():
        return (weights * encoding.features((5, 8))).sum()

    loss().backward()
    parameters = {
        name: p
        for name, p in encoding.named_parameters()
        if name.startswith("lattice_parameter") or name in ("alpha_learn", "alpha_raw")
    }
    assert len(parameters) == (4 if options.get("lattice") == "general" else 2)
    step = 1e-5
    for name, parameter in parameters.items():
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step)
                values.append(float(loss()))
                parameter.sub_(sign * step)
        difference = (values[0] - values[1]) / (2 * step)
        assert abs(float(parameter.grad)) > 1e-3, name
        error = abs(float(parameter.grad) - difference) / abs(difference)
        assert error <= CEILINGS["gradients"]["float64"] * 2.0**-52, name


def test_the_lattice_follows_omega3_as_measured_apart():
    # Measured apart: the sum over patches and components of the derivative in omega3/i at .755,
    # 14x14, alpha .4, scale .15 is -101.7 if the lattice follows and -4.2 if it does not.
    omega3 = torch.tensor(0.755, dtype=torch.float64, requires_grad=True)
    u = (torch.arange(14, dtype=torch.float64) + 0.5) / 14
    x = (0.8 * GOLDEN_HALF_PERIOD * u).repeat(14)
    y = 0.8 * u.repeat_interleave(14) * omega3
    follows = get_backend("torch").wp_and_prime(
        torch.complex(x, y), Lattice(GOLDEN_HALF_PERIOD, 1j * omega3)
    )
    fixed = clamped_lattice_sum(x, y, GOLDEN_HALF_PERIOD, GOLDEN_HALF_PERIOD)
    parts = [follows[0].real, follows[0].imag, follows[1].real, follows[1].imag]
    for values, want in ((parts, -101.7), (fixed, -4.2)):
        total = sum(torch.tanh(0.15 * value).sum() for value in values)
        (gradient,) = torch.autograd.grad(total, omega3, retain_graph=True)
        assert round(float(gradient), 1) == want


@given(
    alpha=st.floats(-1e4, 1e4),
    skew=st.floats(-1e4, 1e4),
    scale=st.floats(-1e4, 1e4),
    grid=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_no_parameter_makes_the_lattice_collapse(alpha, skew, scale, grid):
    encoding = small("weierstrass", lattice="general")
    held = encoding.lattice_parameter
    with torch.no_grad():
        for parameter, value in (
            (held.alpha_learn, alpha),
            (held.skew, skew),
            (held.log_scale, scale),
        ):
            parameter.fill_(value)
    lattice = encoding.lattice()
    eps = torch.finfo(torch.float32).eps
    assert 0.3 * (1 - eps) <= lattice.tau.imag <= 10 / 3 * (1 + eps)
    assert abs(lattice.tau.real) <= 1.0 + eps
    assert 1.854 / 4.01 <= lattice.omega1.real <= 1.855 * 4.01
    encoding.additive(grid).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoding.parameters() if p.grad is not None)


def test_the_bounded_softplus_is_increasing_and_nearly_the_papers():
    parameter = LatticeParameter(Lattice(1.0, 1j), "omega3", 1e-9, 40.0).double()
    assert parameter.alpha_learn is not None
    previous = 0.0
    for alpha in np.linspace(-3, 20, 24):
        parameter.alpha_learn.data.fill_(alpha)
        aspect = parameter.lattice().tau.imag
        assert aspect > previous
        assert error_in_eps(aspect, math.log1p(math.exp(alpha)), torch.float32) <= 1.0
        previous = aspect


# --- The paper's ablations ---------------------------------------------------------------------


def test_what_is_not_learned_is_no_parameter():
    names = {
        name
        for name, _ in small(
            "weierstrass", learnable=False, adaptive_strength=False, class_token=False
        ).named_parameters()
    }
    assert names == {
        "projection.0.weight",
        "projection.0.bias",
        "projection.1.weight",
        "projection.1.bias",
    }
    fixed = small("weierstrass", adaptive_strength=False)
    rows = fixed.additive((5, 8))
    assert error_in_eps(rows.std(dim=1, correction=0), torch.ones(40), torch.float32) <= 1e3
    adaptive = small("weierstrass")
    assert torch.equal(adaptive.additive((5, 8)), 0.8 * rows)
    assert torch.equal(adaptive.prefix(1), 0.8 * fixed.prefix(1))


def test_two_features_are_the_first_two_of_four():
    four, two = (small("weierstrass", features=n) for n in (4, 2))
    assert torch.equal(two.features((5, 8)), four.features((5, 8))[:, :2])


# --- Fidelity ----------------------------------------------------------------------------------


def listing(z, omega1, omega3, recipe="vit"):
    """The printed listing for one number, term by term, in Python's complex arithmetic."""

    def clamp(w, limit):
        return complex(min(max(w.real, -limit), limit), min(max(w.imag, -limit), limit))

    size, kept, near, at_pole, term_limit, value_limit = LISTING_NUMBERS[recipe]
    if abs(z) < near:
        return at_pole + 0j, at_pole + 0j
    points = [
        2 * m * omega1 + 2j * n * omega3
        for m in range(-size, size + 1)
        for n in range(-size, size + 1)
        if (m, n) != (0, 0)
    ]
    wp, dp = 1 / z**2, -2 / z**3
    for w in sorted(points, key=abs)[:kept]:
        if abs(z - w) > near:
            wp += clamp(1 / (z - w) ** 2 - 1 / w**2, term_limit)
            dp += clamp(-2 / (z - w) ** 3, term_limit)
    return clamp(wp, value_limit), clamp(dp, value_limit)


# m and n up to, points kept, distance and value at the pole, clamps of terms and values.
LISTING_NUMBERS = {
    "vit": (12, 624, 15e-8, 500.0, 5e3, 1e4),
    "dhvt": (8, 64, 20e-8, 100.0, 1e3, 5e3),
}


POINTS = [
    1 + 0.5j,
    0.08 + 0.02j,
    0.004 + 0.009j,
    1e-7 + 0j,
    1e-8j,
    0.0,
    1.6e-7,
    5.0 + 5.2j,
    2 * GOLDEN_HALF_PERIOD,
    2 * GOLDEN_HALF_PERIOD + 1e-3,
    2j * GOLDEN_HALF_PERIOD + 1e-7,
]


@pytest.mark.parametrize("omega3", [GOLDEN_HALF_PERIOD, 1.3])
def test_the_literal_sum_is_the_listing(omega3):
    z = torch.tensor(POINTS, dtype=torch.complex128)
    got = clamped_lattice_sum(z.real, z.imag, GOLDEN_HALF_PERIOD, omega3)
    for n, point in enumerate(POINTS):
        wp, dp = listing(complex(point), GOLDEN_HALF_PERIOD, omega3)
        scale = max(abs(wp), abs(dp), 1.0)
        want = [wp.real, wp.imag, dp.real, dp.imag]
        assert error_in_eps([float(x[n]) for x in got], want, torch.float64, scale) <= LITERAL


def test_the_sum_of_the_dhvt_script_is_of_single_precision_over_64_points():
    points = [0.3 + 0.2j, 0.8 + 0.6j, 0.03 + 0.02j, 0.01j, 1e-7, 0.0, 2.0 + 1e-3j]
    z = torch.tensor(points, dtype=torch.complex128)
    got = clamped_lattice_sum(z.real, z.imag, 1.0, 1.0, LISTINGS["dhvt"])
    assert all(x.dtype == torch.float64 for x in got)
    for n, point in enumerate(points):
        wp, dp = listing(complex(point), 1.0, 1.0, "dhvt")
        scale = max(abs(wp), abs(dp), 1.0)
        want = [wp.real, wp.imag, dp.real, dp.imag]
        error = error_in_eps([float(x[n]) for x in got], want, torch.float32, scale)
        assert error <= CEILINGS["single"]["float32"]
    # Half of the eight points at distance 2 sqrt(20) are in: the sum is not even.
    plus, minus = (listing(w, 1.0, 1.0, "dhvt")[0] for w in (0.3 + 0.2j, -0.3 - 0.2j))
    assert abs(plus - minus) > 1e-3


def test_the_recipe_of_the_dhvt_script_brings_its_constants():
    encoding = small("weierstrass", fidelity="authors", recipe="dhvt")
    assert encoding.start[:4] == (0.8, 0.2, 0.1, "mlp")
    assert [m.p for m in encoding.modules() if isinstance(m, torch.nn.Dropout)] == [0.08]
    assert complex(encoding.lattice().omega1) == 1.0  # the placeholder, whatever g2 and g3 are
    assert round(float(encoding.compression_scale().detach()), 7) == 0.1
    z = encoding.points((2, 3)).detach()
    want = [listing(complex(w), 1.0, 1.0, "dhvt")[0] for w in z]
    got = encoding.values((2, 3))
    error = error_in_eps(torch.complex(got[0], got[1]).detach(), np.array(want), torch.float32)
    assert error <= CEILINGS["single"]["float32"]
    mixed = small("weierstrass", fidelity="authors", recipe="dhvt", g3=0.0, projection="linear")
    assert mixed.start[:4] == (0.8, 0.0, 0.1, "linear")
    assert complex(mixed.lattice().omega1) == GOLDEN_HALF_PERIOD


def test_the_literal_sum_gives_known_numbers():
    z = torch.tensor([1 + 0.5j, 0.0, 2 * GOLDEN_HALF_PERIOD, 0.003j], dtype=torch.complex128)
    p_re, p_im, dp_re, dp_im = clamped_lattice_sum(
        z.real, z.imag, GOLDEN_HALF_PERIOD, GOLDEN_HALF_PERIOD
    )
    # 1+0.5i: 0.48927976-0.62746450i exactly, and the sum within its truncation error of 4.6e-4.
    exact = complex(
        REFERENCE.wp(1 + 0.5j, Lattice.rectangular(GOLDEN_HALF_PERIOD, GOLDEN_HALF_PERIOD))
    )
    assert (round(exact.real, 8), round(exact.imag, 8)) == (0.48927976, -0.6274645)
    assert 0 < abs(complex(p_re[0], p_im[0]) - exact) < 4.6e-4
    assert (float(p_re[1]), float(p_im[1]), float(dp_re[1]), float(dp_im[1])) == (500, 0, 500, 0)
    assert round(float(p_re[2]), 4) == 0.0361  # the pole's own term is skipped
    assert f"{float(dp_re[2]):.1e}" == "-8.9e-05"
    assert float(p_re[3]) == -1e4  # the clamp


def test_the_paper_is_a_square_of_the_printed_half_period_at_the_start():
    encoding = small("weierstrass", fidelity="paper")
    assert round(float(encoding.alpha_learn.detach()), 4) == 2.5466
    lattice = encoding.lattice()
    assert lattice.omega1 == GOLDEN_HALF_PERIOD
    assert error_in_eps(lattice.tau, 1j, torch.float32) <= FEATURES
    g2, g3 = REFERENCE.invariants(Lattice.rectangular(GOLDEN_HALF_PERIOD, GOLDEN_HALF_PERIOD))
    assert round(float(g2.real), 12) == 0.25
    assert abs(g3) < 1e-12
    placeholder = small("weierstrass", fidelity="paper", g3=0.1).lattice()
    assert placeholder.omega1 == 1.0
    assert error_in_eps(placeholder.tau, 1j, torch.float32) <= FEATURES


def test_paper_and_corrected_differ_by_truncation_on_the_same_lattice():
    paper = small("weierstrass", fidelity="paper", alpha_u=0.5).double()
    want = exact_features((8, 8), paper.lattice(), 0.5, 0.5, 0.15)
    error = np.abs(paper.features((8, 8)).detach().numpy() - want).max()
    assert 1e-7 < error < 1.7e-5  # of its 12x12 sum


def test_the_authors_numbers():
    encoding = build_encoding(
        "weierstrass", dim=192, depth=12, num_heads=3, grid=(14, 14), fidelity="authors"
    )
    assert isinstance(encoding, WeierstrassEncoding)
    # 5,507,815 parameters with it and 5,544,100 with a learned table of 197 rows.
    count = sum(p.numel() for p in encoding.parameters())
    assert count == 5_507_815 - (5_544_100 - 197 * 192)
    z = encoding.points((14, 14)).detach()
    assert round(float(z.imag.max()) / (0.8 * 13.5 / 14), 5) == 0.75495
    assert round(float(z.abs().min()), 3) == 0.078
    assert encoding.lattice().tau == 1j  # whatever alpha_learn is
    assert encoding.alpha_learn is not None
    assert encoding.alpha_raw is not None
    with torch.no_grad():
        encoding.alpha_learn.fill_(3.0)
        encoding.alpha_raw.fill_(5.0)
    assert encoding.lattice().tau == 1j
    scale = encoding.compression_scale()
    assert isinstance(scale, torch.Tensor)
    assert float(scale.detach()) == 0.8
    want = [
        listing(complex(w), GOLDEN_HALF_PERIOD, GOLDEN_HALF_PERIOD)[0]
        for w in encoding.points((2, 3)).detach()
    ]
    got = encoding.values((2, 3))
    assert error_in_eps(torch.complex(got[0], got[1]), np.array(want), torch.float64) <= LITERAL


def test_the_authors_decay_protocol_gives_the_figure_of_the_paper():
    # The published protocol: content plus encoding, 79 bins, Pearson of bin means. Over 200 seeds
    # it gives -0.974 with a spread of 0.015; the paper prints -0.966.
    grid = (14, 14)
    row, column = np.divmod(np.arange(196), 14)
    i, j = np.triu_indices(196, 1)
    distance = np.hypot(row[i] - row[j], column[i] - column[j])
    distance = 100 * distance / distance.max()
    edges = np.linspace(0, 100, 80)
    correlations = []
    for seed in range(6):
        torch.manual_seed(seed)
        encoding = build_encoding(
            "weierstrass", dim=192, depth=1, num_heads=3, grid=grid, fidelity="authors"
        )
        fused = (torch.randn(196, 192) + table_of(encoding, grid)).double().numpy()
        fused /= np.linalg.norm(fused, axis=1, keepdims=True)
        similarity = (fused @ fused.T)[i, j]
        numbers = np.digitize(distance, edges) - 1
        bins = [b for b in range(79) if (numbers == b).any()]
        assert len(bins) == 56
        means = [similarity[numbers == b].mean() for b in bins]
        centres = [(edges[b] + edges[b + 1]) / 2 for b in bins]
        correlations.append(np.corrcoef(centres, means)[0, 1])
    assert abs(np.mean(correlations) + 0.974) < 0.015


def test_without_initial_bias_the_table_depends_on_the_place():
    def shares(**options):
        torch.manual_seed(0)
        encoding = build_encoding(
            "weierstrass", dim=64, depth=4, num_heads=4, grid=(8, 8), **options
        )
        table = table_of(encoding, (8, 8))
        return (table - table.mean(0)).square().mean() / table.square().mean()

    assert shares() < 0.2
    assert shares(initial_bias="zero") > 0.6
    # Its weights are those of the same seed: only the biases differ.
    torch.manual_seed(0)
    plain = build_encoding("weierstrass", dim=64, depth=4, num_heads=4, grid=(8, 8))
    torch.manual_seed(0)
    zero = build_encoding(
        "weierstrass", dim=64, depth=4, num_heads=4, grid=(8, 8), initial_bias="zero"
    )
    other = dict(zero.named_parameters())
    differ = {name for name, value in plain.named_parameters() if not value.equal(other[name])}
    assert differ == {"projection.0.bias"}


# --- Learned alpha ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"origin": "half_period"}, {"lattice": "general"}])
def test_learned_alphas_start_as_the_fixed_ones_and_have_their_derivative(options):
    fixed = small("weierstrass", alpha_u=0.4, alpha_v=0.7, **options).double()
    learned = small("weierstrass", alpha_u=0.4, alpha_v=0.7, learn_alpha=True, **options).double()
    grid = (3, 5)
    weights = torch.linspace(-1.0, 1.0, 15 * 4, dtype=torch.float64).reshape(15, 4)
    with torch.no_grad():
        # The start is kept in float32.
        assert (learned.features(grid) - fixed.features(grid)).abs().max() < 64 * 2.0**-23
    (weights * learned.features(grid)).sum().backward()
    got, step = learned.alphas_raw.grad, 1e-5
    for side in (0, 1):
        values = []
        for sign in (1.0, -1.0):
            with torch.no_grad():
                learned.alphas_raw[side] += sign * step
                values.append(float((weights * learned.features(grid)).sum()))
                learned.alphas_raw[side] -= sign * step
        want = (values[0] - values[1]) / (2.0 * step)
        assert abs(want) > 1e-3
        assert abs(float(got[side]) - want) < 1e-6 * abs(want)  # of central differences


def test_learned_alphas_stay_within_their_bounds():
    encoding = small("weierstrass", learn_alpha=True, alpha_min=0.2, alpha_max=0.9).double()
    for raw in (-50.0, 50.0):
        with torch.no_grad():
            encoding.alphas_raw.fill_(raw)
            numbers = encoding.learned_numbers()["α_u, α_v"]
            assert ((numbers >= 0.2) & (numbers <= 0.9)).all()
            assert torch.isfinite(encoding.additive((4, 6))).all()


@pytest.mark.parametrize(
    "options",
    [
        {"alpha_u": 1.0},
        {"alpha_max": 1.5},
        {"learnable": False},
        {"function": "powers"},
        {"fidelity": "authors"},
    ],
)
def test_alphas_that_cannot_be_learned_are_refused(options):
    with pytest.raises(EncodingOptionError, match="alpha"):
        small("weierstrass", learn_alpha=True, **options)
