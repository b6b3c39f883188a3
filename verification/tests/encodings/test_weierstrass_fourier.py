"""The paper's fine-tuning surrogate and the hybrid with a learned table."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.encodings.elliptic_values import Values
from training.encodings.learned import resample_table
from training.encodings.weierstrass_fourier import printed_series, printed_waves
from verification.tests.encoding_cases import CEILINGS, DIM, error_in_eps, small

TABLES = CEILINGS["tables"]["float64"]
GOLDEN_HALF_PERIOD = 2.62205755429212


def softplus(x):
    return math.log1p(math.exp(x))


def printed(x, y, omega1, omega3, beta, gamma, terms):
    """The series of the paper for one point."""
    u, v = x / omega1, y / omega3
    total = 1 / (x * x + y * y + beta)
    for k in range(1, terms + 1):
        a, b = math.exp(-k * math.pi * abs(v)), math.exp(-k * math.pi * abs(u))
        total += gamma / k**2 * (math.cos(k * math.pi * u) * a + math.sin(k * math.pi * v) * b)
    return total


def series(x, y, omega1, omega3, beta, gamma, terms):
    """The series of the encoding at any points."""
    waves = printed_waves(x / omega1, y / omega3, terms)
    lengths = torch.stack((omega1, omega3))[:, None]
    return Values(*printed_series(torch.stack((x, -y)), lengths, beta, gamma, waves))


@pytest.mark.parametrize("terms", [1, 3, 10])
def test_the_printed_series_and_its_wirtinger_derivative(terms):
    points = np.random.default_rng(1).uniform(-2, 2, size=(20, 2))
    x, y = (torch.tensor(points[:, k], requires_grad=True) for k in range(2))
    omega1, omega3, beta, gamma = (
        torch.tensor(t, dtype=torch.float64) for t in (1.8, 1.3, 0.4, 0.7)
    )
    values = series(x, y, omega1, omega3, beta, gamma, terms)
    want = [printed(a, b, 1.8, 1.3, 0.4, 0.7, terms) for a, b in points]
    assert error_in_eps(values.p_re, want, torch.float64) <= TABLES
    assert not values.p_im.any()
    slope_x, slope_y = torch.autograd.grad(values.p_re.sum(), (x, y))
    assert error_in_eps(values.dp_re, slope_x, torch.float64) <= TABLES
    assert error_in_eps(values.dp_im, -slope_y, torch.float64) <= TABLES


def test_the_surrogate_is_not_periodic_as_measured_apart():
    # Measured apart, for beta .61, gamma .2: S(.8+.6i) = .7295, S(z+2w1) = .0763, S(z+2w3) = .0872.
    period = 2 * GOLDEN_HALF_PERIOD
    x = torch.tensor([0.8, 0.8 + period, 0.8], dtype=torch.float64)
    y = torch.tensor([0.6, 0.6, 0.6 + period], dtype=torch.float64)
    omega, beta, gamma = (
        torch.tensor(t, dtype=torch.float64) for t in (GOLDEN_HALF_PERIOD, 0.61, 0.2)
    )
    values = series(x, y, omega, omega, beta, gamma, 3)
    assert [round(float(value), 4) for value in values.p_re] == [0.7295, 0.0763, 0.0872]


@pytest.mark.parametrize("fidelity", ["corrected", "paper"])
def test_features_of_the_surrogate(fidelity):
    encoding = small(
        "weierstrass_fourier", fidelity=fidelity, terms=4, scale=0.1, beta=0.5, gamma=0.6
    )
    omega1 = 1.8540746773013719 if fidelity == "corrected" else GOLDEN_HALF_PERIOD
    got = encoding.double().features((5, 8)).detach()
    for t in range(40):
        i, j = divmod(t, 8)
        x, y = omega1 * (j + 0.5) / 8, omega1 * (i + 0.5) / 5
        want = math.tanh(0.1 * printed(x, y, omega1, omega1, 0.5, 0.6, 4))
        # The parameters are rounded to float32 at the start.
        assert (
            error_in_eps(float(got[t, 0]), want, torch.float32) <= CEILINGS["features"]["float32"]
        )
    assert not got[:, 1].any()


RECIPES = {
    # alpha, beta, gamma (raw), floors, power, K, K', s, p, q, m, wobble and its frequency, sigma,
    # factor of Im
    "cifar100": (0.5, 0.1, None, (0.1, 0.01, 0), 1, 3, 2, 1, 0.5, 0.3, 1, 0.01, 2, 0.05, 0.8),
    "svhn": (0.5, 0.1, 0.2, (0.1, 0.01, 0.1), 2, 3, 2, 1, 0.7, 0.5, 1, 0.02, 3, 0.03, 0.8),
    "resisc45": (
        0.6,
        0.15,
        0.25,
        (0.12, 0.015, 0.15),
        1.8,
        4,
        3,
        0.8,
        0.75,
        0.6,
        1,
        0.025,
        3.5,
        0.02,
        0.85,
    ),
    "dmlab": (0.7, 0.15, 0.3, (0.12, 0.015, 0.12), 1.8, 4, 3, 1, 0.8, 0.6, 1.2, 0.03, 4, 0.05, 0.9),
}


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_the_authors_features_follow_the_table_of_their_scripts(recipe):
    alpha, beta, gamma, floors, power, terms, slope_terms, s, p, q, m, size, turn, sigma, factor = (
        RECIPES[recipe]
    )
    stretch, beta = floors[0] + softplus(alpha), floors[1] + softplus(beta)
    gamma = None if gamma is None else floors[2] + softplus(gamma)
    encoding = small("weierstrass_fourier", grid=(4, 4), fidelity="authors", recipe=recipe).double()
    got = encoding.features((4, 4)).detach().numpy()
    assert got.shape == (16, 6 if recipe == "svhn" else 4)
    for t in range(16):
        j, i = divmod(t, 4)  # the grid is transposed
        u, v = (j + 0.5) / 4, (i + 0.5) / 4
        x = u * GOLDEN_HALF_PERIOD + size * math.sin(turn * math.pi * u)
        y = v * stretch + size * math.cos(turn * math.pi * v)
        r, theta = math.hypot(x, y), math.atan2(y, x)
        a, b = x / GOLDEN_HALF_PERIOD, y / stretch
        c = d = 0.0
        for k in range(1, terms + 1):
            w = k * math.pi
            ev, eu = math.exp(-w * s * abs(b)), math.exp(-w * s * abs(a))
            c += (
                (0.05 if gamma is None else gamma)
                / k**power
                * (math.cos(w * a) * ev + math.sin(w * b) * eu)
            )
            if k <= slope_terms:
                d += (
                    (0.03 if gamma is None else gamma)
                    / k**power
                    * k
                    * (math.cos(w * b) * eu - math.sin(w * a) * ev)
                )
        main, slope = m / (r * r + beta), -2 * m / (r**3 + beta)
        values = [main * math.cos(theta) + c, factor * (main * math.sin(theta) + p * c)]
        slopes = [slope * math.cos(theta) + d, slope * math.sin(theta) + q * d]
        if recipe == "svhn":
            values.append(math.hypot(u, v))
            slopes.append(abs(slopes[0]))
        want = np.tanh(sigma * np.array(values + slopes))
        assert error_in_eps(got[t], want, torch.float32) <= CEILINGS["features"]["float32"]


def test_the_authors_projection_has_their_size():
    encoding = small("weierstrass_fourier", fidelity="authors", recipe="svhn", class_token=False)
    half = DIM // 2
    projection = (6 * half + half) + 2 * half + (half * DIM + DIM) + 2 * DIM + (DIM * DIM + DIM)
    scalars = 4 + 6 + DIM  # alpha, beta, gamma, scale; modulation; offset
    assert sum(p.numel() for p in encoding.parameters()) == projection + scalars


def test_nothing_is_learned_of_the_series_when_frozen():
    encoding = small("weierstrass_fourier", learnable=False)
    learned = {name for name, p in encoding.named_parameters() if p.requires_grad}
    assert all(name.startswith(("projection", "offset", "class_encoding")) for name in learned)


# --- Hybrid ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wef", ["weierstrass_fourier", "weierstrass"])
@pytest.mark.parametrize("fidelity", ["corrected", "authors"])
def test_the_gate_mixes_and_adds_position_once(wef, fidelity):
    encoding = small("weierstrass_hybrid", wef=wef, fidelity=fidelity, lambda_raw=0.5).eval()
    share = 1 / (1 + math.exp(-0.5))
    assert error_in_eps(float(encoding.gate().detach()), share, torch.float32) <= 1
    for grid in ((5, 8), (9, 4)):
        learned = resample_table(encoding.learned.patches, (5, 8), grid, "bicubic_antialias")
        total = 2.0 if fidelity == "authors" else 1.0  # the scripts add the table twice
        want = share * encoding.wef.additive(grid) + (total - share) * learned
        assert error_in_eps(encoding.additive(grid), want, torch.float32) <= 8
    assert torch.equal(encoding.prefix(1), encoding.learned.tokens)
    assert encoding.wef.prefix(1) is None


def test_a_state_dict_brings_the_table():
    fresh = small("weierstrass_hybrid")
    empty = small("weierstrass_hybrid", table="pretrained", seed=3).eval()
    empty.load_state_dict(fresh.state_dict())
    empty.check_ready()
    assert torch.equal(empty.additive((5, 8)), fresh.eval().additive((5, 8)))
    part = {key: value for key, value in fresh.state_dict().items() if "patches" not in key}
    other = small("weierstrass_hybrid", table="pretrained")
    other.load_state_dict(part, strict=False)
    with pytest.raises(RuntimeError, match="none was loaded"):
        other.check_ready()
