"""References of the heat kernel, and the points and times it is asked at.

The logarithm is a difference of |z_r|^2/2t and of logarithms of t and of the area, so that the
scale of its error is 1 + |log K| + |log t| + |log A|, and that of the kernel is K times that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import numpy.typing as npt

from verification import cases
from verification.oracle import DIGITS, Reference
from wefpe_core import Lattice, get_backend

if TYPE_CHECKING:
    from verification.subjects import Subject

Array = npt.NDArray[Any]
# 2 pi t over the area of the cell, on either side of 1, where the sums change places.
_LEAST, _MOST = 1e-3, 1e2


def points_and_times(region: str, lattice: Lattice, dtype: str, count: int) -> Array:
    z = cases.points(region, lattice, dtype, count)
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    area = 4.0 * (w1.conjugate() * w3).imag
    rng = np.random.default_rng([cases.SEED, count])
    shares = np.exp(rng.uniform(np.log(_LEAST), np.log(_MOST), count))
    return np.stack((z, (shares * area / (2.0 * np.pi)).astype(dtype)), 1)


def evaluate(subject: Subject, arguments: Array, lattice: Lattice) -> tuple[Array, ...]:
    return tuple(
        array
        for name in ("heat", "log_heat")
        for array in subject.evaluate(name, *arguments.T, lattice=lattice)
    )


def reference(z: complex, t: complex, lattice: Lattice) -> tuple[Reference, Reference]:
    log = get_backend("mpmath", dps=DIGITS).log_heat(z, t, lattice)
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    with mpmath.workdps(DIGITS):
        area = mpmath.mpf(4.0 * (w1.conjugate() * w3).imag)
        floor = 1 + abs(mpmath.log(t.real)) + abs(mpmath.log(area))
        value = mpmath.exp(log)
        return Reference(value, 0, 0, value * (abs(log) + floor)), Reference(log, 0, 0, floor)
