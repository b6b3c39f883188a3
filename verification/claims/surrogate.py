"""F19: the Fourier-like formula for fine-tuning, as an approximation of wp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verification.claims import ground_truth
from verification.claims.claim import Claim, Finding, judge_parts
from verification.claims.numpy_listing import LISTING, PRINTED_HALF_PERIOD, Array, grid_points

# The paper names one learned value, beta = 0.610 (L511); gamma is free; the verdict does
# not depend on it.
BETA, GAMMA, TERMS = 0.61, 0.2, 10

# A value for every point, from this many terms of the series.
Surrogate = Callable[[Array, int], Array]


def printed_surrogate(z: Array, terms: int, beta: float = BETA, gamma: float = GAMMA) -> Array:
    """eq:approximation on the listing's lattice, v' = Im z/Im omega3."""
    z = np.asarray(z, dtype=np.complex128)
    u, v = z.real / PRINTED_HALF_PERIOD, z.imag / PRINTED_HALF_PERIOD
    total = 1 / (np.abs(z) ** 2 + beta)
    for k in range(1, terms + 1):
        decay_v, decay_u = np.exp(-k * np.pi * np.abs(v)), np.exp(-k * np.pi * np.abs(u))
        total += gamma / k**2 * (np.cos(k * np.pi * u) * decay_v + np.sin(k * np.pi * v) * decay_u)
    return total + 0j


def surrogate(function: Surrogate = printed_surrogate) -> Finding:
    """F19: the properties said to be kept, one by one."""
    z0, a = np.array([0.8 + 0.6j]), 2 * PRINTED_HALF_PERIOD
    values = {
        name: complex(function(z, TERMS)[0])
        for name, z in (
            ("z", z0),
            ("z+a", z0 + a),
            ("z+b", z0 + a * 1j),
            ("-z", -z0),
        )
    }
    grid = {alpha: grid_points(14, LISTING, alpha) for alpha in (1.0, 0.5)}
    given = {alpha: function(z, TERMS) for alpha, z in grid.items()}
    true = {alpha: ground_truth.wp_and_prime(z, LISTING)[0] for alpha, z in grid.items()}
    correlation = {
        alpha: float(np.corrcoef(given[alpha].real, true[alpha].real)[0, 1]) for alpha in grid
    }
    phases = _phases(function)
    tails = _tails(function)
    fit = {alpha: _best_fit(grid[alpha], true[alpha]) for alpha in grid}
    figures = {
        "S(0.8+0.6i)": values["z"].real,
        "S one real period on": values["z+a"].real,
        "S one imaginary period on": values["z+b"].real,
        "S(z) - S(-z)": values["z"].real - values["-z"].real,
        "largest imaginary part": float(np.abs(given[1.0].imag).max()),
        "Cauchy-Riemann residual": _cauchy_riemann(function),
        "phase error of the pole, degrees": phases,
        "correlation with Re wp, alpha=1": correlation[1.0],
        "correlation with Re wp, alpha=0.5": correlation[0.5],
        "relative error of the best fit, alpha=1": fit[1.0],
        "relative error of the best fit, alpha=0.5": fit[0.5],
        "tail after 10 terms next to the axis": tails[0],
        "tail after 80 terms next to the axis": tails[1],
    }
    close = 1e-6 * abs(values["z"])
    parts = {
        "periodic": max(abs(values["z+a"] - values["z"]), abs(values["z+b"] - values["z"])) < close,
        "even": abs(values["z"] - values["-z"]) < close,
        "holomorphic": figures["Cauchy-Riemann residual"] < 1e-4,
        "phase of the pole": phases < 1,
        "near wp": min(correlation.values()) > 0.9,
        "exponentially small tail": tails[1] <= tails[0] * np.exp(-10),
    }
    kept = [name for name, holds in parts.items() if holds]
    evidence = (
        f"S(0.8+0.6i) = {values['z'].real:.4f}, one period on {values['z+a'].real:.4f} and "
        f"{values['z+b'].real:.4f}, at -z {values['-z'].real:.4f}; Cauchy-Riemann residual "
        f"{figures['Cauchy-Riemann residual']:.2g}, pole out of phase by {phases:.0f}°, tail "
        f"{tails[0]:.3g} after 10 and {tails[1]:.3g} after 80 terms; correlation with Re wp "
        f"{correlation[1.0]:.3f} (alpha=1) and {correlation[0.5]:.3f} (0.5); kept: "
        f"{', '.join(kept) or 'none'}"
    )
    return Finding(judge_parts(*parts.values()), evidence, figures)


def _cauchy_riemann(function: Surrogate) -> float:
    """|d f/d conj z| over |d f/d z| at one point, by central differences."""
    z, h = 0.8 + 0.6j, 1e-5
    east, west, north, south = function(np.array([z + h, z - h, z + 1j * h, z - 1j * h]), TERMS)
    along_x, along_y = (east - west) / (2 * h), (north - south) / (2 * h)
    return float(abs(along_x + 1j * along_y) / abs(along_x - 1j * along_y))


def _phases(function: Surrogate) -> float:
    """Largest phase difference from 1/z² on a quarter circle of radius 0.3, in degrees."""
    z = 0.3 * np.exp(1j * np.linspace(0, np.pi / 2, 7))
    return float(np.degrees(np.abs(np.angle(function(z, TERMS) * z**2)).max()))


def _tails(function: Surrogate) -> tuple[float, float]:
    """What is missing after 10 and 80 terms, a thousandth of a period off the pole."""
    z = np.array([1e-3 * PRINTED_HALF_PERIOD * 1j])
    limit = function(z, 20_000)
    first, second = (float(np.abs(function(z, k) - limit)[0]) for k in (10, 80))
    return first, second


def _best_fit(z: Array, wp: Array) -> float:
    """Smallest relative L2 error against Re wp over beta > 0 and any gamma (which is linear)."""
    best, target = np.inf, wp.real
    for beta in np.geomspace(1e-3, 1e3, 60):
        main = printed_surrogate(z, TERMS, beta, 0.0).real
        series = printed_surrogate(z, TERMS, beta, 1.0).real - main
        gamma = series @ (target - main) / (series @ series)
        error = np.linalg.norm(target - main - gamma * series) / np.linalg.norm(target)
        best = min(best, float(error))
    return best


CLAIMS = (
    Claim(
        "F19",
        "L249-L258, L1079-L1082 (eq:approximation)",
        "wp(z) ≈ 1/(|z|²+β) + Σ γ/k² [cos(kπu')e^(-kπ|v'|) + sin(kπv')e^(-kπ|u'|)], keeping double "
        "periodicity, poles and asymptotics, with exponentially bounded truncation error.",
        "The formula is real, not periodic, not even and not holomorphic; it is a function of its "
        "own. csc² plus a Lambert series (DLMF 23.8.1) is the rapidly converging form of wp.",
        surrogate,
    ),
)
