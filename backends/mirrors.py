r"""Lattices that complex conjugation maps to themselves: f(conj z) = conj f(z), bit for bit.

Their invariants are real. With the periods and z -> -z, conjugation generates a group of motions,
and points that it moves to one another get the same value but for signs. So a function is evaluated
at one representative of them. The argument goes to the first quadrant; the lattice point of a cell
that all motions respect is subtracted exactly; what is left goes to the first quadrant again. The
signs are undone last. On lines that a motion keeps, one part of the value is 0 by theory, and it
is written so.

Zeta and sigma have no periods, and only the first of these steps.

`on_lattice` chooses. Lattices with other invariants, and those of tensors, which nobody may look
at, run the functions of `backends.kernel` themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from backends import derived, kernel
from backends.argument import PointInCell, locate, offset_from
from backends.constants import Precision, SeriesConstants
from backends.pair import ArrayOps, Pair
from backends.slopes import Matrix, SlopeFunction, ValuesAndSlopes
from backends.tracing import KernelFunction
from wefpe_core.backend import LARGEST_ORDER
from wefpe_core.errors import InputError
from wefpe_core.lattice import Lattice
from wefpe_core.lattice_constants import is_its_conjugate

# What torch and JAX call the function on these lattices.
SUFFIX = "_mirrored"


class Symmetry(NamedTuple):
    """What the motions do to the values of a function."""

    is_periodic: bool
    parities: tuple[int, ...]  # +1 for an even value, -1 for an odd one, 0 for a real number


# A real number is even, and its slope is odd like that of an even value.
SYMMETRIES: dict[KernelFunction, Symmetry] = {
    kernel.wp_and_prime: Symmetry(True, (1, -1)),
    kernel.wp: Symmetry(True, (1,)),
    kernel.wp_prime: Symmetry(True, (-1,)),
    kernel.green: Symmetry(True, (0,)),
    kernel.zeta: Symmetry(False, (-1,)),
    kernel.sigma: Symmetry(False, (-1,)),
    derived.modified_zeta: Symmetry(True, (-1,)),
    derived.modified_sigma: Symmetry(False, (-1,)),
    **{derived.wp_derivative(n): Symmetry(True, ((-1) ** n,)) for n in range(LARGEST_ORDER + 1)},
}


class Motion(NamedTuple):
    """How the argument came to its representative."""

    sign_re: Any  # +1 or -1, by which its parts were multiplied
    sign_im: Any
    off_vertical: Any  # 0.0 on a vertical line of symmetry, 1.0 elsewhere
    off_horizontal: Any

    def undone(self, ops: ArrayOps, value: Pair, parity: int) -> Pair:
        """The value at the argument from the one at its representative."""
        if parity == 0:
            return value
        if parity > 0:
            # Real on all lines.
            sign, weight = self.sign_re * self.sign_im, self.off_vertical * self.off_horizontal
            return Pair(value.re, _times(ops, value.im, sign, weight))
        re = _times(ops, value.re, self.sign_re, self.off_vertical)
        # The inf of a pole has no sign.
        re = ops.where(ops.isinf(value.re), value.re, re)
        return Pair(re, _times(ops, value.im, self.sign_im, self.off_horizontal))


def _times(ops: ArrayOps, part: Any, sign: Any, weight: Any) -> Any:
    """A part of a value with its sign, or 0 where the weight is 0; there it has a derivative."""
    moved = part * sign
    return ops.with_derivative_of(ops.constant(moved * weight), lambda: moved)


def _into_quadrant(ops: ArrayOps, z: Pair) -> tuple[Pair, Any, Any]:
    sign_re, sign_im = ops.sign_of(z.re), ops.sign_of(z.im)
    return Pair(z.re * sign_re, z.im * sign_im), sign_re, sign_im


def _representative(
    ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, is_periodic: bool
) -> tuple[Any, Motion]:
    """The point to evaluate a function at; `z` is in no units, the point in those it is given."""
    point, sign_re, sign_im = _into_quadrant(ops, z)
    if not is_periodic:
        weights = (ops.as_weight(part != 0.0) for part in (point.re, point.im))
        return point, Motion(sign_re, sign_im, *weights)
    point = point.scale(c.unit)
    cell = locate(ops, point, c, precision, c.cell_shift)
    offset = offset_from(ops, point, cell.m, cell.n, c, precision)
    offset, again_re, again_im = _into_quadrant(ops, offset)
    weights = (
        ops.as_weight((part != 0.0) & (part != line))
        for part, line in ((offset.re, c.mirror_re), (offset.im, c.mirror_im))
    )
    return PointInCell(offset), Motion(sign_re * again_re, sign_im * again_im, *weights)


@cache
def mirrored(function: KernelFunction) -> KernelFunction:
    """A function of the kernel for lattices that conjugation maps to themselves."""
    symmetry = SYMMETRIES[function]

    def evaluated(ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision) -> Any:
        point, motion = _representative(ops, z, c, precision, symmetry.is_periodic)
        found = function(ops, point, c, precision)
        if not isinstance(found, tuple):
            return (
                found
                if symmetry.parities == (0,)
                else motion.undone(ops, found, *symmetry.parities)
            )
        pairs = zip(found, symmetry.parities, strict=True)
        return tuple(motion.undone(ops, value, parity) for value, parity in pairs)

    evaluated.__name__ = function.__name__ + SUFFIX
    return evaluated


def with_mirrored_slopes(function: KernelFunction, slopes: SlopeFunction) -> SlopeFunction:
    """A function of `backends.slopes` for these lattices; the slope of an even value is odd."""
    symmetry = SYMMETRIES[function]

    def evaluated(
        ops: ArrayOps, z: Pair, c: SeriesConstants, precision: Precision, matrix: Matrix | None
    ) -> ValuesAndSlopes:
        if matrix is not None:
            raise InputError("a lattice of numbers has no slopes in its half-periods")
        point, motion = _representative(ops, z, c, precision, symmetry.is_periodic)
        found = slopes(ops, point, c, precision, None)

        def undone(values: Sequence[Pair], parities: Sequence[int]) -> tuple[Pair, ...]:
            pairs = zip(values, parities, strict=True)
            return tuple(motion.undone(ops, value, parity) for value, parity in pairs)

        in_z = undone([row[0] for row in found.slopes], [-p or -1 for p in symmetry.parities])
        return ValuesAndSlopes(
            undone(found.values, symmetry.parities), tuple((slope,) for slope in in_z)
        )

    return evaluated


def on_lattice(function: KernelFunction, lattice: Lattice) -> KernelFunction:
    """The function that a lattice of numbers needs."""
    if function in SYMMETRIES and has_mirrors(lattice):
        return mirrored(function)
    return function


@lru_cache(maxsize=512)
def has_mirrors(lattice: Lattice) -> bool:
    """`is_its_conjugate`, which is exact arithmetic, once for each lattice."""
    return is_its_conjugate(lattice)
