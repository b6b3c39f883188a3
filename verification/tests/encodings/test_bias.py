"""Attention biases: wp at differences by the addition formula, and the Green function."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from hypothesis import given
from hypothesis import strategies as st

from training.encodings.elliptic_values import Frame, torch_differences
from training.encodings.grid import grid_offsets, patch_centres
from verification.tests.encoding_cases import CEILINGS, HEADS, error_in_eps, small
from wefpe_core import Lattice, get_backend

CPU = torch.device("cpu")
REFERENCE = get_backend("mpmath", dps=25)
DIFFERENCES = CEILINGS["differences"]["complex128"] * 2.0**-52
ROUNDING = CEILINGS["backends"]["float64"]


def displacements(grid, lattice, alpha):
    """The exact displacements of `grid_offsets`, as mpmath numbers."""
    height, width = grid
    omega1, omega3 = (mpmath.mpmathify(complex(w)) for w in (lattice.omega1, lattice.omega3))
    with mpmath.workdps(30):
        return [
            2
            * mpmath.mpf(alpha)
            * (mpmath.mpf(dx) / width * omega1 + mpmath.mpf(dy) / height * omega3)
            for dy in range(1 - height, height)
            for dx in range(1 - width, width)
        ]


def direct(grid, lattice, alpha):
    """wp, wp' and wp'' at the displacements by the reference; NaN where they are lattice points."""
    z = displacements(grid, lattice, alpha)
    wp, dp = (
        np.array([complex(x) for x in values]) for values in REFERENCE.wp_and_prime(z, lattice)
    )
    g2 = complex(REFERENCE.invariants(lattice)[0])
    return np.array([complex(x) for x in z]), wp, dp, 6 * wp**2 - g2 / 2


def scaled_errors(got, want, slope, z, period, k):
    return np.abs(got - want) / (np.abs(want) + np.abs(z * slope) + period**-k)


# --- Relative ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("shape", ["square", "oblique"])
def test_differences_of_all_pairs_equal_direct_evaluation(alpha, shape):
    grid = (14, 14)
    lattice = Lattice.lemniscatic() if shape == "square" else Lattice(1.7, 0.4 + 1.3j)
    u, v = patch_centres(grid, torch.float64, CPU)
    z = Frame(grid, alpha, alpha).on(lattice, u, v)
    first = torch.arange(196).repeat_interleave(196)
    second = torch.arange(196).repeat(196)
    got = torch_differences(z, lattice, first, second, first == second)
    offsets, wp, dp, ddp = direct(grid, lattice, alpha)
    number = grid_offsets(grid, CPU).pairs.reshape(-1).numpy()
    other = (first != second).numpy()
    period = 2 * abs(complex(lattice.omega1))
    # Relative to the nearest lattice point, for alpha = 1 not always 0.
    distances = np.abs(
        offsets[:, None]
        - np.array(
            [
                2 * m * complex(lattice.omega1) + 2 * n * complex(lattice.omega3)
                for m in (-1, 0, 1)
                for n in (-1, 0, 1)
            ]
        )
    ).min(axis=1)
    for value, want, slope, k in (
        (torch.complex(got.p_re, got.p_im), wp, dp, 2),
        (torch.complex(got.dp_re, got.dp_im), dp, ddp, 3),
    ):
        wanted, slopes, places = (x[number][other] for x in (want, slope, distances))
        errors = scaled_errors(value.numpy()[other], wanted, slopes, places, period, k)
        assert errors.max() <= DIFFERENCES
    p, _ = get_backend("torch").wp_and_prime(z, lattice)
    coincide = (p[:, None] - p).abs() <= 1e-9 * p.abs()
    degenerate = int(torch.triu(coincide, 1).sum())
    # The reflected pairs, where the textbook form is 0/0, are among them.
    assert degenerate == (98 if alpha == 1.0 else 0)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("grid", [(14, 14), (16, 9), (3, 4)])
def test_the_bias_is_made_of_direct_values(alpha, grid):
    encoding = small("weierstrass_relative", alpha_u=alpha, learnable=False).double()
    with torch.no_grad():
        encoding.self_bias.normal_()
    offsets, wp, dp, ddp = direct(grid, encoding.lattice(), alpha)
    values = encoding.values(grid)
    other = np.isfinite(wp.real) & ~np.isnan(wp)
    assert (~other).sum() == 1
    period = 2 * encoding.lattice().omega1.real
    for value, want, slope, k in (
        (torch.complex(values.p_re, values.p_im), wp, dp, 2),
        (torch.complex(values.dp_re, values.dp_im), dp, ddp, 3),
    ):
        errors = scaled_errors(
            value.numpy()[other], want[other], slope[other], offsets[other], period, k
        )
        assert errors.max() <= DIFFERENCES
    features = np.tanh(0.15 * np.stack([wp.real, wp.imag, dp.real, dp.imag], axis=-1))
    weights = encoding.weight.detach().numpy()[1]
    by_offset = np.where(
        other[:, None], features @ weights.T, encoding.self_bias.detach().numpy()[1]
    )
    want = by_offset.T[:, grid_offsets(grid, CPU).pairs.numpy()]
    got = encoding.bias(grid, 1)
    assert float((got.detach() - torch.from_numpy(want)).abs().max()) <= DIFFERENCES


def test_the_bias_of_wp_alone_is_symmetric_and_of_wp_prime_is_not():
    two, four = (small("weierstrass_relative", features=n).double() for n in (2, 4))
    bias = two.bias((5, 8), 0)
    assert error_in_eps(bias.mT, bias, torch.float64) <= ROUNDING
    bias = four.bias((5, 8), 0)
    assert float((bias.mT - bias).detach().abs().max()) > 1e-3


@pytest.mark.parametrize("learnable", [False, True])
def test_features_of_displacements_that_are_periods_are_zero(learnable):
    encoding = small("weierstrass_relative", learnable=learnable, alpha_u=1.0)
    grid = (4, 4)
    skip = encoding.is_period(grid)
    features = encoding.features(grid)
    assert skip.any()
    assert not features[skip].any()
    assert features[~skip].any()


def test_patches_a_whole_period_apart_count_as_the_same_place():
    encoding = small("weierstrass_relative", grid=(1, 4), alpha_u=2.0, alpha_v=0.5)
    with torch.no_grad():
        encoding.self_bias.fill_(7.0)
    bias = encoding.bias((1, 4), 0)
    apart = torch.arange(4)[None] - torch.arange(4)[:, None]
    assert torch.equal(bias == 7.0, (apart % 2 == 0).expand(HEADS, 4, 4))
    bias.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoding.parameters())


@pytest.mark.parametrize("diagonal", ["learned", "zero"])
def test_compressions_bound_the_bias(diagonal):
    for compression in ("tanh", "softsign"):
        encoding = small(
            "weierstrass_relative", compression=compression, diagonal=diagonal, scale=9.0
        )
        features = encoding.features((14, 14)).detach()
        assert float(features.abs().max()) <= 1.0
        assert torch.isfinite(encoding.bias((14, 14), 0)).all()
        assert not encoding.bias((14, 14), 0).diagonal(dim1=1, dim2=2).any()


@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("name", ["weierstrass_relative", "weierstrass_green"])
def test_gradients_of_biases_equal_differences(name, alpha):
    encoding = small(name, alpha_u=alpha, lattice="general").double()
    weights = torch.linspace(-1.0, 2.0, HEADS * 16 * 16, dtype=torch.float64).reshape(HEADS, 16, 16)

    def loss():
        return (weights * encoding.bias((4, 4), 0)).sum()

    loss().backward()
    step = 1e-5
    for key, parameter in encoding.lattice_parameter.named_parameters():
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step)
                values.append(float(loss().detach()))
                parameter.sub_(sign * step)
        difference = (values[0] - values[1]) / (2 * step)
        error = abs(float(parameter.grad) - difference) / max(abs(difference), 1e-2)
        assert error <= CEILINGS["gradients"]["float64"] * 2.0**-52, key


# --- Green -------------------------------------------------------------------------------------


def test_the_green_bias_equals_the_reference():
    encoding = small("weierstrass_green", g3=0.1, learnable=False).double()
    grid = (6, 5)
    z = displacements(grid, encoding.lattice(), 0.5)
    values = encoding.values(grid).numpy()
    middle = len(z) // 2
    want = np.array([float(REFERENCE.green(w, encoding.lattice())) for w in z if w != 0])
    assert error_in_eps(np.delete(values, middle), want, torch.float64) <= ROUNDING
    bias = encoding.bias(grid, 1).detach()
    strengths = encoding.strengths().detach()[1]
    table = torch.from_numpy(values)[grid_offsets(grid, CPU).pairs]
    assert error_in_eps(bias, strengths[:, None, None] * table, torch.float64) <= ROUNDING
    assert error_in_eps(bias.mT, bias, torch.float64) <= ROUNDING


@given(
    aspect=st.floats(0.31, 3.3),
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    alpha=st.floats(0.05, 0.5),
    rule=st.sampled_from(["disk_mean", "nearest"]),
)
def test_the_green_bias_decreases_with_every_growing_offset(aspect, height, width, alpha, rule):
    encoding = small("weierstrass_green", alpha_u=alpha, diagonal=rule).double()
    held = encoding.lattice_parameter
    low, high = held.bounds
    with torch.no_grad():
        raw = math.log(math.expm1(aspect - low)) - math.log(-math.expm1(aspect - high))
        held.alpha_learn.fill_(raw)
        g = encoding.values((height, width)).detach().reshape(2 * height - 1, 2 * width - 1)
    g = g[height - 1 :, width - 1 :].clone()  # offsets from 0 down and to the right
    g[0, 0] = math.inf  # the theorem is about the function; the diagonal has its rule
    assert (g.diff(dim=0) < 0).all()
    assert (g.diff(dim=1) < 0).all()


def test_with_the_form_log_the_attention_is_the_green_function_itself():
    linear, log = (
        small("weierstrass_green", grid=(4, 6), alpha_u=1.0, form=form).double()
        for form in ("linear", "log")
    )
    with torch.no_grad():
        for encoding in (linear, log):  # the start of 1 is rounded to float32
            encoding.strength_raw.fill_(math.log(math.expm1(1.0)))
        green = linear.bias((4, 6), 0)[0]
        attention = torch.softmax(log.bias((4, 6), 0)[0], -1)
    kernel = 1.0 + green - green.min()
    want = kernel / kernel.sum(-1, keepdim=True)
    assert error_in_eps(attention, want.numpy(), torch.float64) <= CEILINGS["tables"]["float64"]


def test_attention_by_the_green_bias_is_strongest_at_home():
    encoding = small("weierstrass_green")
    for grid in ((14, 14), (16, 9)):
        attention = encoding.bias(grid, 0).softmax(dim=-1)
        home = torch.arange(grid[0] * grid[1])
        assert torch.equal(attention.argmax(dim=-1), home.expand(HEADS, -1))


def test_the_disk_mean_is_the_mean_over_a_disk():
    encoding = small("weierstrass_green", g3=0.1, learnable=False).double()
    lattice, grid = encoding.lattice(), (6, 5)
    got = float(encoding.values(grid)[11 * 9 // 2])
    omega1, omega3 = lattice.omega1.real, lattice.omega3.imag
    area = omega1 * omega3 / 30
    radius = math.sqrt(area / math.pi)
    # Gauss in the squared radius, midpoints in the angle; the logarithm is taken out and put back.
    nodes, weights = np.polynomial.legendre.leggauss(12)
    squared = radius**2 * (nodes + 1) / 2
    angles = 2 * np.pi * (np.arange(16) + 0.5) / 16
    z = np.sqrt(squared)[:, None] * np.exp(1j * angles)
    smooth = get_backend("numpy").green(z, lattice) + np.log(np.abs(z))
    mean = (weights / 2) @ smooth.mean(axis=1) + 0.5 - math.log(radius)
    assert error_in_eps(got, mean, torch.float64, 1.0) <= ROUNDING


def test_the_nearest_rule_takes_the_largest_other_value():
    encoding = small("weierstrass_green", diagonal="nearest").double()
    values = encoding.values((6, 5)).detach()
    others = torch.cat([values[:49], values[50:]])
    assert values[49] == others.max()
    assert encoding.values((1, 1)).tolist() == [0.0]


def test_strengths_stay_positive():
    encoding = small("weierstrass_green", strength=0.3)
    assert error_in_eps(encoding.strengths(), torch.full((3, HEADS), 0.3), torch.float32) <= 8
    with torch.no_grad():
        encoding.strength_raw.fill_(-50.0)
    assert (encoding.strengths() > 0).all()
