"""Search for the points where a backend is wrong by most, by climbing.

Random points find the largest error of a smooth function of the argument, but rounding errors add
up at few of them. From the best of some hundred points a climb goes on in steps between a tenth of
the lattice and a unit in the last place, of the argument or of the half-periods too. What it found
is kept in hardest_points.json; the verifier measures every backend there (region "hardest points").
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt

from verification import oracle
from verification.functions import FUNCTIONS, FUNCTIONS_OF_Z
from verification.judge import Contracts, DamagedFileError
from verification.measure import Row, scaled_errors
from verification.subjects import Subject
from wefpe_core import Lattice, available_backends, get_backend
from wefpe_core.accuracy import in_eps
from wefpe_core.extended import PI, ExtendedComplex
from wefpe_core.lattice_constants import lattice_constants

REGION = "hardest points"
SEED = 20
_STARTS = 2048  # points of a new lattice, of which the best is climbed from
_CHILDREN = 256  # points tried in one step
_ASKED = 16  # points that Arb is asked about at once if nothing faster tells which are bad
_PATIENCE = 24  # steps without a larger error before the next lattice
_KEPT = 6  # points kept for each value, dtype and kind of backend

Points = npt.NDArray[np.complex128]


class HardPoint(NamedTuple):
    """Where the error of one value was large, and for whom."""

    subject: str
    dtype: str
    value: str  # a name of `Function.values`
    error: float  # in eps, when it was found
    lattice: Lattice
    z: complex

    def as_json(self) -> dict[str, Any]:
        """Floats are written with all their digits, so they are read as the same floats."""
        numbers = {"omega1": self.lattice.omega1, "omega3": self.lattice.omega3, "z": self.z}
        parts = {key: [complex(x).real, complex(x).imag] for key, x in numbers.items()}
        named = {"subject": self.subject, "dtype": self.dtype, "value": self.value}
        return {**named, "error": round(self.error, 3), **parts}


@cache
def hardest_points(path: Path | None = None) -> tuple[HardPoint, ...]:
    """The points of hardest_points.json; DamagedFileError names one that is wrong."""
    source = path or files("verification").joinpath("hardest_points.json")
    try:
        known = json.loads(source.read_text("utf-8"))["points"]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{source}: {error!r}") from error
    found = []
    for k, point in enumerate(known):
        try:
            omega1, omega3, z = (complex(*point[key]) for key in ("omega1", "omega3", "z"))
            names = (point["subject"], point["dtype"], point["value"], point["error"])
            found.append(HardPoint(*names, Lattice(omega1, omega3), z))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{source}: points[{k}]: {error!r}") from error
    return tuple(found)


def record(found: Iterable[HardPoint], path: Path) -> None:
    """Write the points; of those known, the ones that were found in this way before are kept."""
    points = [*(hardest_points(path) if path.exists() else ()), *found]
    groups: dict[tuple[str, str, str], list[HardPoint]] = {}
    for point in sorted(set(points), key=lambda point: -point.error):
        groups.setdefault((point.value, point.dtype, point.subject), []).append(point)
    kept = [point.as_json() for key in sorted(groups) for point in groups[key][:_KEPT]]
    lines = ",\n  ".join(map(json.dumps, kept))
    path.write_text(f'{{\n "seed": {SEED},\n "points": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    hardest_points.cache_clear()


def hardest_rows(
    subject: Subject, function: str, dtype: str, points: Sequence[HardPoint]
) -> list[Row]:
    """One row for each value of the function, at all points known for it and this dtype."""
    asked = FUNCTIONS[function]
    places = [p for p in points if p.value in asked.values and p.dtype == dtype]
    if not places:
        return []
    errors = [
        _errors(subject, function, np.array([place.z], dtype), place.lattice)[:, 0]
        for place in places
    ]
    where: list[Any] = [((complex(place.z),), place.lattice) for place in places]
    return [
        Row(subject.label, dtype, name, "found by search", REGION, column, where, subject.contract)
        for name, column in zip(asked.values, np.array(errors).T, strict=True)
    ]


def _errors(
    subject: Subject, function: str, z: npt.NDArray[Any], lattice: Lattice
) -> npt.NDArray[np.float64]:
    """Scaled errors in eps, a row for each value of the function."""
    lattice = subject.lattice_measured(lattice, z.dtype.name)
    arrays = FUNCTIONS[function].evaluate(subject, z[:, None], lattice)
    answers = [_answers(function, subject.contract, complex(point), lattice) for point in z]
    return np.array(
        [
            [in_eps(error, z.dtype.name) for error in scaled_errors(array, references)]
            for array, references in zip(arrays, zip(*answers, strict=True), strict=True)
        ]
    )


def _answers(
    function: str, contract: str, z: complex, lattice: Lattice
) -> tuple[oracle.Answer, ...]:
    """References, by Arb where it is faster and installed."""
    if function == "wp_and_prime" and "flint" in available_backends():
        p, dp = get_backend("flint", digits=oracle.DIGITS).wp_and_prime(z, lattice)
        return oracle.references_of_wp(_as_mpmath(p), _as_mpmath(dp), z, lattice)
    return FUNCTIONS[function].reference_by(contract)(z, lattice)


def _as_mpmath(ball: Any) -> Any:
    """The midpoint of a ball, with all its bits."""
    parts = (part.mid().man_exp() for part in (ball.real, ball.imag))
    with mpmath.workdps(2 * oracle.DIGITS):
        return mpmath.mpc(*(mpmath.ldexp(mpmath.mpf(int(m)), int(e)) for m, e in parts))


_HAS_LONG_DOUBLES = bool(np.finfo(np.longdouble).eps < 1e-18)


def _rough_errors(
    got: npt.NDArray[Any], z: npt.NDArray[Any], lattice: Lattice, index: int
) -> npt.NDArray[np.float64]:
    """Scaled errors of wp (index 0) or wp' (1) by theta quotients in long doubles, all at once.

    Near a pole far from 0 they are too rough; they only choose the points that Arb is asked about.
    """
    s, a, b, q, g2 = _in_long_doubles(lattice)
    offset = z.astype(np.clongdouble)
    row = np.rint((offset / a).imag / (b / a).imag)
    offset = offset - row * b
    offset = offset - np.rint((offset / a).real) * a
    v = s * offset
    n = np.arange(7)[:, None]
    pronic, square = q ** (n * (n + 1)), 2 * q ** ((n + 1) ** 2)
    sign = (-1.0) ** n
    t1 = (sign * pronic * np.sin((2 * n + 1) * v)).sum(0)
    t2 = (pronic * np.cos((2 * n + 1) * v)).sum(0)
    cosines = np.cos(2 * (n + 1) * v)
    t3, t4 = 1 + (square * cosines).sum(0), 1 - (sign * square * cosines).sum(0)
    c2, c3, c4 = pronic.sum(), 1 + square.sum(), 1 - (sign * square).sum()
    wp = s**2 * ((c3**4 + c4**4) / 3 + (c3 * c4 * t2 / t1) ** 2)
    wp_prime = -2 * s**3 * (c2 * c3 * c4) ** 2 * t2 * t3 * t4 / t1**3
    want, slope = ((wp, wp_prime), (wp_prime, 6 * wp**2 - g2 / 2))[index]
    scale = np.abs(want) + np.abs(offset * slope) + np.abs(a) ** -(index + 2)
    return np.asarray(np.nan_to_num(np.abs(got - want) / scale), np.float64)


@lru_cache(maxsize=4)
def _in_long_doubles(lattice: Lattice) -> tuple[Any, ...]:
    """pi/a, the periods a and b of the reduced basis, the nome and g2."""

    def rounded(number: ExtendedComplex) -> Any:
        return np.clongdouble(np.longdouble(str(number.re)) + 1j * np.longdouble(str(number.im)))

    known = lattice_constants(lattice)
    a, b, nome, g2 = map(rounded, (known.period1, known.period3, known.nome, known.g2))
    return np.longdouble(str(PI)) / a, a, b, nome, g2


def climb(
    subject: Subject, function: str, dtype: str, value: str, seconds: float, seed: int = SEED
) -> HardPoint:
    """The point with the largest error found in this time."""
    end = time.monotonic() + seconds
    index = FUNCTIONS[function].values.index(value)
    rng = np.random.default_rng(
        [seed, *map(ord, f"{subject.label} {dtype} {value}")]  # another path for each
    )

    def best_of(z: Points, lattice: Lattice) -> HardPoint:
        rounded, lattice = z.astype(dtype), subject.lattice_measured(lattice, dtype)
        if function == "wp_and_prime" and _HAS_LONG_DOUBLES:
            got = FUNCTIONS[function].evaluate(subject, rounded[:, None], lattice)[index]
            suspected = np.argsort(-_rough_errors(got, rounded, lattice, index))
            rounded = rounded[suspected[:1]]
        rounded = rounded[:_ASKED]
        errors = _errors(subject, function, rounded, lattice)[index]
        k = int(np.argmax(errors))  # argmax takes NaN for the largest
        return HardPoint(
            subject.label, dtype, value, float(errors[k]), lattice, complex(rounded[k])
        )

    largest: HardPoint | None = None
    while largest is None or time.monotonic() < end:
        lattice = _random_lattice(rng)
        here = best_of(_starting_points(rng, lattice), lattice)
        waited = 0
        while waited < _PATIENCE and time.monotonic() < end:
            other, z = _moved(rng, here, float(np.finfo(dtype).eps))
            step = best_of(z, other)
            waited = 0 if step.error > here.error else waited + 1
            here = max(here, step, key=lambda point: point.error)
        largest = here if largest is None else max(largest, here, key=lambda point: point.error)
    return largest


def _random_lattice(rng: np.random.Generator) -> Lattice:
    """Any shape, the symmetric ones and their neighbours more often."""
    x = float(rng.uniform(-0.5, 0.5))
    y = float(np.sqrt(1 - x * x) * np.exp(rng.exponential(0.3)))
    on_circle = x + 1j * np.sqrt(1 - x * x)
    near_square = 1j + 0.01 * x * (1 - 1j)
    tau = rng.choice([x + 1j * y, 1j * y, 0.5 + 1j * y, on_circle, near_square])
    if rng.random() < 0.15:  # rhombs about the real axis: conjugation maps these to themselves
        corner = complex(np.exp(1j * np.pi * rng.uniform(1 / 6, 1 / 3)))
        return Lattice(corner, -corner.conjugate())
    size = np.exp(rng.uniform(-1, 1)) * rng.choice([1.0, np.exp(2j * np.pi * rng.random())])
    return Lattice(complex(size), complex(size * tau))


def _starting_points(rng: np.random.Generator, lattice: Lattice) -> Points:
    """Points of the cell, half-periods, poles, and where wp'' is 0 and excuses no error of wp'."""
    a, b = 2 * complex(lattice.omega1), 2 * complex(lattice.omega3)
    s, t = rng.uniform(-0.5, 0.5, (2, _STARTS))
    phase = np.exp(2j * np.pi * rng.random(_STARTS))
    small = abs(a) * 10.0 ** rng.uniform(-12, -1, _STARTS) * phase
    backend = get_backend("numpy")
    flat = np.sqrt(complex(backend.invariants(lattice)[0]) / 12)
    zeros = backend.inverse_wp(np.array([flat, -flat]), lattice)
    special = np.array([0, a / 2, b / 2, (a + b) / 2, *zeros, *zeros, *-zeros])
    chosen = special[rng.integers(0, len(special), _STARTS)]
    return np.asarray(np.where(rng.random(_STARTS) < 0.4, s * a + t * b, chosen + small))


def _moved(rng: np.random.Generator, here: HardPoint, eps: float) -> tuple[Lattice, Points]:
    """Children of a point; every second time their lattice has moved as well."""

    def step(count: int) -> Points:
        sizes = 10.0 ** rng.uniform(np.log10(eps), -1, count)
        return np.asarray(sizes * np.exp(2j * np.pi * rng.random(count)))

    lattice, z = here.lattice, here.z * (1 + step(_CHILDREN))
    if rng.random() < 0.5:
        first, third = (
            complex(omega) * (1 + complex(step(1)[0])) for omega in (lattice.omega1, lattice.omega3)
        )
        if rng.random() < 0.5:
            first = complex(lattice.omega1)
        if (third / first).imag > 0.1:
            lattice = Lattice(first, third)
    return lattice, z


class Found(NamedTuple):
    """The largest error of a search, and the ceiling that it is held to."""

    point: HardPoint
    ceiling: float

    @property
    def is_kept(self) -> bool:
        return self.point.error <= self.ceiling


def search(
    subjects: Sequence[Subject],
    functions: Sequence[str],
    dtypes: Sequence[str],
    contracts: Contracts,
    seconds: float,
    seed: int = SEED,
) -> Iterator[Found]:
    """Climb for so many seconds with each subject, shared by the values that have a contract."""
    for subject in subjects:
        jobs = [
            (function, dtype, value)
            for function in functions
            if function in FUNCTIONS_OF_Z
            if subject.functions is None or function in subject.functions
            for value in FUNCTIONS[function].values
            for dtype in dtypes
            if dtype in subject.dtypes and dtype in contracts[subject.contract].get(value, ())
        ]
        for function, dtype, value in jobs:
            point = climb(subject, function, dtype, value, seconds / len(jobs), seed)
            yield Found(point, contracts[subject.contract][value][dtype]["largest"])
