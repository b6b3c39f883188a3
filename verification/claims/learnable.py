"""F31, F35-F36: the learnable half-period, its gradients and symbol, and small formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np

from verification.claims.claim import Claim, Finding, Verdict, judge_parts
from verification.claims.numpy_listing import (
    ALPHA_SCALE,
    PRINTED_HALF_PERIOD,
    Array,
    patch_coordinates,
)
from wefpe_core import Lattice, get_backend


def softplus(alpha: float) -> float:
    """L228, without overflow."""
    return max(alpha, 0.0) + math.log1p(math.exp(-abs(alpha)))


class Gradients(NamedTuple):
    """Derivatives in the imaginary half-period, per patch and feature."""

    raw: Array
    compressed: Array

    @property
    def median(self) -> float:
        return float(np.median(np.abs(self.compressed)))

    @property
    def largest(self) -> float:
        return float(np.abs(self.compressed).max())


def gradients(
    omega1: float, height: float, size: int, alpha: float, *, lattice_follows: bool = True
) -> Gradients:
    """Derivatives of the features in Im omega3 = `height`, through z and the lattice.

    Without `lattice_follows` only z moves and the lattice stays the square of omega1, as in
    the listing, whose half-periods are constants.
    """
    backend = get_backend("torch")  # says what to install if torch is missing
    import torch  # here, because the other checks must run without this extra

    u, v = (torch.from_numpy(x) for x in patch_coordinates(size, size))

    # One half-period per patch, so that one backward pass gives the derivative of every patch.
    h = torch.full_like(u, height, requires_grad=True)
    lattice = Lattice(omega1, 1j * (h if lattice_follows else torch.full_like(u, omega1)))
    z = torch.complex(2 * alpha * omega1 * u, 2 * alpha * h * v)
    p, dp = backend.wp_and_prime(z, lattice)
    raw = torch.stack([p.real, p.imag, dp.real, dp.imag], dim=-1)

    columns = [torch.autograd.grad(raw[:, k].sum(), h, retain_graph=True)[0] for k in range(4)]
    slope = torch.stack(columns, dim=-1)
    # The derivative of tanh as 1/cosh²: 1 - tanh² would round to 0 too early.
    squeezed = slope * ALPHA_SCALE / torch.cosh(ALPHA_SCALE * raw.detach()) ** 2
    return Gradients(slope.numpy(), squeezed.numpy())


DEAD = 1e-6  # a smaller median gradient does not move the parameter in any training run

Parametrisation = Callable[[float], float]


def learnable_half_period(
    half_period: Parametrisation = softplus, *, lattice_follows: bool = False
) -> Finding:
    """F31: positivity, the square start, whether the lattice is learned, and dead regions."""
    w1 = PRINTED_HALF_PERIOD
    positive = min(half_period(alpha) for alpha in (-700.0, -30.0, -1.0, 0.0, 5.0, 700.0))
    low, high = -50.0, 50.0  # bisection for the square: both parametrisations increase with alpha
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if half_period(middle) < w1 else (low, middle)
    start = gradients(w1, w1, 14, 1.0)
    published = {
        follows: gradients(w1, softplus(0.12), 14, 0.4, lattice_follows=follows)
        for follows in (True, False)
    }
    sums = {follows: float(g.compressed.sum()) for follows, g in published.items()}
    learned = gradients(w1, 0.9 * w1, 14, 1.0, lattice_follows=lattice_follows)
    truth = gradients(w1, 0.9 * w1, 14, 1.0)
    # softplus(-2.2522) = 0.1: a height any optimiser can reach.
    thin = gradients(w1, half_period(-2.2522), 14, 1.0)
    figures = {
        "smallest half-period": positive,
        "alpha_learn of the square": low,
        "half-period at alpha_learn = 0.12": half_period(0.12),
        "half-period at alpha_learn = -2.2522": half_period(-2.2522),
        "square, 14x14: largest gradient of a raw feature": float(np.abs(start.raw).max()),
        "square, 14x14: largest gradient": start.largest,
        "square, 14x14: median gradient": start.median,
        "square, 14x14, alpha=0.5: largest gradient": gradients(w1, w1, 14, 0.5).largest,
        "square, 24x24, alpha=0.4: largest gradient": gradients(w1, w1, 24, 0.4).largest,
        "(1, i), 14x14: largest gradient": gradients(1.0, 1.0, 14, 1.0).largest,
        "(1, i), 24x24, alpha=0.4: largest gradient": gradients(1.0, 1.0, 24, 0.4).largest,
        "thin lattice: median gradient": thin.median,
        "thin lattice: largest gradient": thin.largest,
        "published setting: sum with the lattice following": sums[True],
        "published setting: sum with the lattice fixed": sums[False],
    }
    evidence = (
        f"the half-period is positive and square at alpha_learn = {low:.4f}; gradients there have "
        f"median {start.median:.2g} and maximum {start.largest:.3g} (14², alpha=1), "
        f"{figures['(1, i), 24x24, alpha=0.4: largest gradient']:.3g} on (1, i), 24², 0.4; the "
        f"listing's lattice is constant: at the published start the gradients add up to "
        f"{sums[False]:.1f} instead of {sums[True]:.1f}; at alpha_learn = -2.25 (half-period "
        f"{half_period(-2.2522):.3g}) the median is {thin.median:.1g}"
    )
    parts = (
        positive > 0 and abs(half_period(low) / w1 - 1) < 1e-12,
        bool(np.abs(learned.compressed - truth.compressed).max() < 1e-9),
        start.median > DEAD and np.isfinite(start.largest),
        thin.median > DEAD,
    )
    return Finding(judge_parts(*parts), evidence, figures)


# --- F35, F36 -------------------------------------------------------------------------------

# alpha_learn from the number reported, for each meaning the symbol can have.
READINGS: dict[str, Callable[[float], float]] = {
    "softplus(α_learn)": lambda w: math.log(math.expm1(w)),
    "0.1 + softplus(α_learn), as in the scripts": lambda w: math.log(math.expm1(w - 0.1)),
    "α_learn itself": lambda w: w,
}


def learned_value(
    value: float = 1.085, readings: dict[str, Callable[[float], float]] = READINGS
) -> Finding:
    """F35: one learned number, for a symbol the paper does not define."""
    parameters = {name: inverse(value) for name, inverse in readings.items()}
    spread = max(parameters.values()) - min(parameters.values())
    figures = {f"α_learn if ω2' is {name}": v for name, v in parameters.items()}
    figures["spread"] = spread
    evidence = f"ω2' = {value} means α_learn = " + ", ".join(
        f"{v:.3f} (ω2' is {name})" for name, v in parameters.items()
    )
    return Finding(Verdict.AMBIGUOUS if spread > 1e-3 else Verdict.TRUE, evidence, figures)


def small_formulas() -> Finding:
    """F36: softplus, sigmoid, LayerNorm and the hybrid sum as printed."""
    rng = np.random.default_rng(36)
    x = rng.normal(0, 5, 200)
    naive = np.log(1 + np.exp(x))
    normal = rng.normal(3, 2, 192)
    normal = (normal - normal.mean()) / normal.std()
    gate = 1 / (1 + np.exp(-x))
    first, second = rng.normal(0, 1, (2, x.size))
    hybrid = gate * first + (1 - gate) * second
    middle, reach = (first + second) / 2, np.abs(first - second) / 2 * (1 + 1e-12)
    figures = {
        "softplus, error": float(np.abs(naive - [softplus(a) for a in x]).max()),
        "softplus, smallest value": float(naive.min()),
        "sigmoid outside [0, 1]": float(np.sum((gate < 0) | (gate > 1))),
        "sigmoid is softplus', error": float(
            abs(
                mpmath.diff(lambda a: mpmath.log(1 + mpmath.exp(a)), 0.7) - 1 / (1 + math.exp(-0.7))
            )
        ),
        "LayerNorm, mean": float(abs(normal.mean())),
        "LayerNorm, variance - 1": float(abs(normal.var() - 1)),
        "hybrid outside its two parts": float(np.sum(np.abs(hybrid - middle) > reach)),
    }
    evidence = (
        f"softplus agrees to {figures['softplus, error']:.0e} and stays above "
        f"{figures['softplus, smallest value']:.1e}; the sigmoid stays in [0, 1] and "
        f"the hybrid between its parts; LayerNorm gives "
        f"mean {figures['LayerNorm, mean']:.0e} and variance 1 to "
        f"{figures['LayerNorm, variance - 1']:.0e}"
    )
    holds = (
        figures["softplus, error"] < 1e-13
        and figures["softplus, smallest value"] > 0
        and figures["sigmoid outside [0, 1]"] == 0
        and figures["hybrid outside its two parts"] == 0
        and figures["sigmoid is softplus', error"] < 1e-12
        and max(figures["LayerNorm, mean"], figures["LayerNorm, variance - 1"]) < 1e-12
    )
    return Finding(Verdict.TRUE if holds else Verdict.FALSE, evidence, figures)


CLAIMS = (
    Claim(
        "F31",
        "L226-L228; L597-L611, listing",
        "ω3 = i·softplus(α_learn) stays positive, starts as a square and lets the lattice adapt.",
        "Positive, yes; the square start needs α_learn = 2.5466. The listing's lattice never "
        "follows ω3, and for Im ω3 below about 0.1 gradients vanish: bound Im τ from below.",
        learnable_half_period,
    ),
    Claim(
        "F35",
        "L228, L255, L511, L1082",
        "The learned half-period is ω2' ≈ 1.085.",
        "ω3, ω3' and ω2' are used for it without definition; name one symbol and its map.",
        learned_value,
    ),
    Claim(
        "F36",
        "L224, L228, L234, L1118-L1124",
        "Softplus is positive, the sigmoid gate lies in [0, 1], LayerNorm and hybrid as printed.",
        "As printed.",
        small_formulas,
    ),
)
