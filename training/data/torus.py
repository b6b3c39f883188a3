"""Fields on a periodic box, made by NumPy: the world is a torus, and so is the truth.

A pair is a field and what an operator makes of it, both band-limited, on a square of side 2 pi with
periodic edges. The same fields are sampled at whatever size is asked for, so a model can be trained
at one resolution and tested at another without any interpolation. Nothing is downloaded, and the
data are the same for every seed of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from training.data.sources import FieldSource, OpenedData
from training.errors import DataError
from training.parsing import ImageSize, height_and_width, size_text

if TYPE_CHECKING:
    from training.config.schema import Data

Array = np.ndarray[Any, np.dtype[Any]]
Pairs = tuple[Array, Array]  # spectra of fields and of the truth

SIZE = 32  # pixels, unless a config says otherwise
TRAINING_FIELDS, TEST_FIELDS = 2500, 500
HIGHEST_WAVE = 6  # of the random fields, in either direction
HEAT_TIME = 0.4  # of u_t = laplacian(u)/2: a Gaussian of width 0.63, where a patch of 4 has 0.79
_SEEDS = {"train": 0, "test": 1}


def open_poisson(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    return _opened(poisson_pairs, "Poisson's equation", HIGHEST_WAVE, image_size)


def open_heat_step(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    return _opened(heat_pairs, "a step of the heat equation", HIGHEST_WAVE, image_size)


def open_flow_step(data: Data, image_size: ImageSize | None = None) -> OpenedData:
    return _opened(flow_pairs, "a step of a Kolmogorov flow", FLOW_WAVE, image_size)


def _opened(
    pairs: Callable[[str], Pairs], name: str, highest: int, image_size: ImageSize | None
) -> OpenedData:
    size = (SIZE, SIZE) if image_size is None else height_and_width(image_size)
    if min(size) <= 2 * highest:
        raise DataError(
            f"data.image_size={size_text(size)}: {name} has waves up to {highest} in either "
            f"direction, which need more than {2 * highest} pixels"
        )

    def source(part: str) -> FieldSource:
        fields, truth = (torch.from_numpy(on_grid(each, size, highest)) for each in pairs(part))
        return FieldSource(fields, truth, ("field",), f"fields of {name} ({part})")

    return OpenedData(source("train"), 0, lambda: source("test"))


# --- Spectra: rfft2 of real fields, divided by the number of pixels -----------------------------


def waves(size: int) -> tuple[Array, Array]:
    """Whole numbers of waves down and across, as rfft2 of a square orders them."""
    down = np.fft.fftfreq(size, 1.0 / size)
    across = np.fft.rfftfreq(size, 1.0 / size)
    return np.meshgrid(down, across, indexing="ij")


def on_grid(spectra: Array, size: tuple[int, int], highest: int) -> Array:
    """Fields (n, 1, height, width) in float32, sampled at the centres of pixels.

    `spectra` are rfft2 of squares divided by the number of points; their waves up to `highest` in
    either direction are taken.
    """
    height, width = size
    wide = np.zeros((len(spectra), height, width // 2 + 1), dtype=complex)
    columns = slice(0, highest + 1)
    for rows in (slice(0, highest + 1), slice(-highest, None)):
        wide[:, rows, columns] = spectra[:, rows, columns]
    down, across = np.fft.fftfreq(height), np.fft.rfftfreq(width)  # half a pixel on
    wide *= np.exp(1j * math.pi * (down[:, None] + across)) * (height * width)
    fields = np.fft.irfft2(wide, s=(height, width))
    return fields[:, None].astype(np.float32)


def _random_spectra(part: str, count: int, highest: int, power: Array) -> Array:
    """Gaussian fields of variance 1; `power` says how it is spread over the waves."""
    side = 2 * highest + 2
    noise = np.random.default_rng([_SEEDS[part], highest]).standard_normal((count, side, side))
    return np.fft.rfft2(noise) / side * np.sqrt(power / _total(power))


def _total(power: Array) -> float:
    """The sum over all waves; rfft2 leaves out half of them."""
    return float(power[:, 0].sum() + 2.0 * power[:, 1:].sum())


def _squared(highest: int) -> tuple[Array, Array]:
    """The squared number of waves, and which waves the random fields have."""
    down, across = waves(2 * highest + 2)
    here = (np.maximum(abs(down), across) <= highest) & ((down != 0) | (across != 0))
    return down**2 + across**2, here


def _through(part: str, symbol: Callable[[Array], Array]) -> Pairs:
    """Random fields of variance 1, and what an operator with this symbol makes of them."""
    squared, here = _squared(HIGHEST_WAVE)
    # Flat up to two waves, then falling: fine structure, but not noise.
    power = np.where(here, (1.0 + squared / 4.0) ** -2.0, 0.0)
    factor = np.zeros_like(power)
    factor[here] = symbol(squared[here])
    count = {"train": TRAINING_FIELDS, "test": TEST_FIELDS}[part]
    fields = _random_spectra(part, count, HIGHEST_WAVE, power)
    return fields, fields * factor


def poisson_pairs(part: str) -> Pairs:
    """The right side f and the solution u of -laplacian(u) = f on (0, 2 pi)^2, without mean."""
    return _through(part, lambda squared: 1.0 / squared)


def heat_pairs(part: str) -> Pairs:
    """A temperature now, and after `HEAT_TIME`: convolved with the heat kernel of the torus."""
    return _through(part, lambda squared: np.exp(-0.5 * HEAT_TIME * squared))


# --- A flow: vorticity w with w_t + u.grad(w) = laplacian(w)/R - m w + cos(n y) on (0, 2 pi)^2 ---

FLOW_WAVE = 8  # highest that is kept of each product
_POINTS = 25  # more than three times as many, so that no alias of a product is kept
_REYNOLDS, _FRICTION, _FORCING_WAVE = 100.0, 0.05, 4
_DT, _STEPS_BEFORE, _STEPS_BETWEEN = 0.1, 100, 5
_AHEAD = 2  # moments from a field to its truth
_FLOWS, _PAIRS = {"train": 50, "test": 10}, 50


def flow_pairs(part: str) -> Pairs:
    """The vorticity at moments of several flows, and one unit of time later.

    The flows of the test are others than those of training, and are divided by the same number.
    """
    spectra = _flows(part) / math.sqrt(_mean_square(_flows("train")))
    shape = (-1, *spectra.shape[-2:])
    return spectra[:, :-_AHEAD].reshape(shape), spectra[:, _AHEAD:].reshape(shape)


@lru_cache(maxsize=2)
def _flows(part: str) -> Array:
    """Spectra of the vorticity, (flows, moments, ...); flows go on until the start is forgotten."""
    down, across = waves(_POINTS)
    kept = np.maximum(abs(down), across) <= FLOW_WAVE
    squared, here = _squared(FLOW_WAVE)
    power = np.where(here, (1.0 + squared / 16.0) ** -3.0, 0.0)
    start = _random_spectra(part, _FLOWS[part], FLOW_WAVE, power)
    # In half the precision that NumPy has by default: it takes half the time.
    vorticity = np.zeros((len(start), *down.shape), dtype=np.complex64)
    for rows in (slice(0, FLOW_WAVE + 1), slice(-FLOW_WAVE, None)):
        vorticity[:, rows, : FLOW_WAVE + 1] = 2.0 * start[:, rows, : FLOW_WAVE + 1]
    moments = []
    for step in range(_STEPS_BEFORE + (_PAIRS + _AHEAD - 1) * _STEPS_BETWEEN + 1):
        since = step - _STEPS_BEFORE
        if since >= 0 and since % _STEPS_BETWEEN == 0:
            moments.append(vorticity)
        vorticity = flow_step(vorticity, _DT, kept)
    return np.stack(moments, 1).astype(complex)


def _mean_square(spectra: Array) -> float:
    """The mean square of fields over space and all of them."""
    return _total((abs(spectra) ** 2).mean(axis=tuple(range(spectra.ndim - 2))))


def flow_step(vorticity: Array, dt: float, kept: Array) -> Array:
    """One step of Runge and Kutta's fourth order; what falls off by itself is exact in it.

    `vorticity` are spectra of `waves`, and `kept` says which waves products may have: the others
    would be aliases.
    """
    down, across = (each.astype(vorticity.real.dtype) for each in waves(kept.shape[0]))
    squared = down**2 + across**2
    decay = np.exp(-0.5 * dt * (squared / _REYNOLDS + _FRICTION))
    forcing = _forcing(kept.shape).astype(vorticity.dtype)

    def change(w: Array) -> Array:
        return kept * advection(w, down, across) + forcing

    first = change(vorticity)
    second = change(decay * (vorticity + 0.5 * dt * first))
    third = change(decay * vorticity + 0.5 * dt * second)
    fourth = change(decay * decay * vorticity + dt * decay * third)
    middle = 2.0 * decay * (second + third)
    moved: Array = decay * decay * (vorticity + dt / 6.0 * first) + dt / 6.0 * (middle + fourth)
    return moved


def advection(vorticity: Array, down: Array, across: Array) -> Array:
    """-u.grad(w) of spectra; the velocity is (d psi/dy, -d psi/dx) with -laplacian(psi) = w."""
    side = vorticity.shape[-2]
    stream = vorticity / np.maximum(down**2 + across**2, 1)

    def field(spectrum: Array) -> Array:
        found: Array = np.fft.irfft2(spectrum * side**2, s=(side, side))
        return found

    moved = field(1j * down * stream) * field(1j * across * vorticity)
    moved -= field(1j * across * stream) * field(1j * down * vorticity)
    found: Array = -np.fft.rfft2(moved) / side**2
    return found


@lru_cache(maxsize=2)
def _forcing(shape: tuple[int, ...]) -> Array:
    """cos(n y), with y down the rows."""
    found = np.zeros(shape, dtype=complex)
    found[_FORCING_WAVE, 0] = found[-_FORCING_WAVE, 0] = 0.5
    return found
