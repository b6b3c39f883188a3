"""`Lattice`: two half-periods, exact and immutable, and where they may come from."""

from __future__ import annotations

import inspect
import math
import numbers
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from wefpe_core._exact import GaussianRational, IntegerMatrix, cross, exact_complex, gauss_reduce
from wefpe_core.errors import ImmutableError, InputTypeError, LatticeError, import_own

if TYPE_CHECKING:
    from wefpe_core.backend import AbstractBackend
    from wefpe_core.degenerate_lattice import DegenerateLattice


class Lattice:
    r"""The lattice :math:`\{2m\omega_1 + 2n\omega_3\}` given by its HALF-periods (DLMF 23.2(i)).

    Parameters
    ----------
    omega1, omega3
        Half-periods with ``Im(omega3/omega1) > 0``. Python, NumPy or mpmath numbers, which
        are taken as exact; or torch tensors (zero-dimensional, or of a shape that broadcasts
        against ``z``), which carry gradients and are not inspected, since that would wait
        for the device; where they span no lattice, the torch backend returns NaN.

    Raises
    ------
    LatticeError
        If a half-period is NaN, infinite or zero, or the two are collinear or negatively
        oriented. The test is exact, and so independent of scale.

    Examples
    --------
    >>> Lattice(1, 0.5 + 2j).tau
    (0.5+2j)
    >>> Lattice.lemniscatic(g2=1.0).omega1
    (1.8540746773013719+0j)
    """

    __slots__ = ("_exact", "_hash", "_omega1", "_omega3")

    _exact: tuple[GaussianRational, GaussianRational] | None
    _hash: int  # set at its first use: the hash of fractions takes longer than evaluating wp
    _omega1: Any
    _omega3: Any

    def __new__(cls, *half_periods: Any, **named: Any) -> Lattice:
        """Refuse what are not two half-periods, and say where a lattice comes from otherwise."""
        names = ("omega1", "omega3")
        given = len(half_periods) + len(named)
        if given != 2 or not named.keys() <= set(names[len(half_periods) :]):
            raise InputTypeError(_wrong_arguments(len(half_periods), list(named)))
        return super().__new__(cls)

    def __init__(self, omega1: Any, omega3: Any) -> None:
        omega1, omega3 = _checked("omega1", omega1), _checked("omega3", omega3)
        first = None if _is_tensor(omega1) else _exact_half_period("omega1", omega1)
        third = None if _is_tensor(omega3) else _exact_half_period("omega3", omega3)
        exact = None
        if first is not None and third is not None:
            exact = (first, third)
            _check_orientation(first, third, (omega1, omega3))
        self._set(_as_shown("omega1", omega1), _as_shown("omega3", omega3), exact)

    def _set(
        self, omega1: Any, omega3: Any, exact: tuple[GaussianRational, GaussianRational] | None
    ) -> None:
        object.__setattr__(self, "_omega1", omega1)
        object.__setattr__(self, "_omega3", omega3)
        object.__setattr__(self, "_exact", exact)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ImmutableError(f"a Lattice is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise ImmutableError(f"a Lattice is immutable: cannot delete {name!r}")

    @classmethod
    def _from_exact(
        cls,
        omega1: GaussianRational,
        omega3: GaussianRational,
        originals: tuple[Any, Any] = (None, None),
    ) -> Lattice:
        """A lattice of exact half-periods, shown as mpmath numbers where `originals` are such."""
        shown = (
            _as_shown("omega1", _in_kind_of(originals[0], omega1)),
            _as_shown("omega3", _in_kind_of(originals[1], omega3)),
        )
        _check_orientation(omega1, omega3, shown)
        lattice = object.__new__(cls)
        lattice._set(*shown, (omega1, omega3))
        return lattice

    @classmethod
    def from_tau(cls, tau: Any, omega1: Any = 0.5) -> Lattice:
        """Lattice with half-period ratio `tau`; by default the full periods are 1 and `tau`.

        Both are numbers, real, complex or of mpmath, or torch tensors, which carry gradients and
        broadcast. The product ``tau*omega1`` of numbers is kept exactly, so `tau` is the ratio, not
        nearly the ratio. `LatticeError` if a number tau has no positive imaginary part.

        Examples
        --------
        >>> Lattice.from_tau(0.3 + 0.9j).omega3
        (0.15+0.45j)
        """
        tau, omega1 = _checked("tau", tau), _checked("omega1", omega1)
        if _is_tensor(tau) or _is_tensor(omega1):
            return cls(omega1, tau * omega1)
        t, w = _exact_half_period("tau", tau), _exact_half_period("omega1", omega1)
        if t.im <= 0:
            raise LatticeError(f"Im(tau) must be positive, got tau={tau!r}")
        product = GaussianRational(t.re * w.re - t.im * w.im, t.re * w.im + t.im * w.re)
        try:
            return cls._from_exact(w, product)
        except LatticeError:  # the orientation is right, so only the range can be wrong
            raise LatticeError(
                f"tau*omega1 is beyond the range of doubles: tau={tau!r}, omega1={omega1!r}"
            ) from None

    @classmethod
    def from_periods(cls, period1: Any, period3: Any) -> Lattice:
        """Lattice from FULL periods, as PARI takes them; numbers are halved exactly.

        They are numbers or torch tensors, as the half-periods of `Lattice` are.

        Examples
        --------
        >>> Lattice.from_periods(2.0, 0.6 + 1.8j) == Lattice(1.0, 0.3 + 0.9j)
        True
        """
        period1, period3 = _checked("period1", period1), _checked("period3", period3)
        if _is_tensor(period1) or _is_tensor(period3):
            return cls(period1 / 2, period3 / 2)
        a, b = _exact_half_period("period1", period1), _exact_half_period("period3", period3)
        omega1, omega3 = (GaussianRational(p.re / 2, p.im / 2) for p in (a, b))
        return cls._from_exact(omega1, omega3, originals=(period1, period3))

    @classmethod
    def from_invariants(cls, g2: Any, g3: Any) -> Lattice:
        r"""Lattice with the invariants `g2`, `g3`; half-periods rounded from fifty digits.

        The invariants are numbers, real, complex or of mpmath; for tensors there is
        `AbstractBackend.lattice_from_invariants`. Real invariants give a positive real `omega1` and
        ``Re(omega3/omega1)`` equal to 0 (positive discriminant) or 1/2 (negative). Complex ones
        give the reduced basis.

        Raises
        ------
        LatticeError
            If the discriminant :math:`g_2^3 - 27 g_3^2` is zero. The test is exact if both are
            integers, fractions or numbers of mpmath. Doubles may be rounded, so a discriminant
            below :math:`2^{-50}` of its terms counts as zero if one of them is a double.

        Examples
        --------
        >>> lattice = Lattice.from_invariants(4.0, 1.0)
        >>> bool(abs(lattice.g2 - 4) + abs(lattice.g3 - 1) < 1e-14)
        True
        """
        from wefpe_core.lattice_constants import half_periods_from_invariants

        values, are_exact = [], True
        for name, value in (("g2", g2), ("g3", g3)):
            value = _checked(name, value)
            # Whoever writes a double may have rounded what it stands for.
            are_exact &= isinstance(value, numbers.Rational) or hasattr(value, "context")
            if _is_tensor(value):
                raise LatticeError(
                    f"{name} is a tensor: use lattice_from_invariants of the torch backend"
                )
            _as_double(name, value)  # refuses what is beyond the range of doubles
            values.append(_exact_finite(name, value))
        return cls(*half_periods_from_invariants(values[0], values[1], are_exact))

    @classmethod
    def from_j(cls, j: Any, omega1: Any = 0.5) -> Lattice:
        """Lattice with Klein invariant `j` (1728 for a square) and half-period `omega1`.

        The ratio tau is that of the fundamental domain, rounded to a double from fifty digits.
        `j` is a number, real, complex or of mpmath. For a tensor use
        ``Lattice.from_tau(backend.inverse_klein_j(j))``.

        Examples
        --------
        >>> Lattice.from_j(1728).tau
        1j
        """
        from wefpe_core.modular_forms import tau_of_j

        j = _checked("j", j)
        if _is_tensor(j):
            raise LatticeError("j is a tensor: use inverse_klein_j of the torch backend")
        return cls.from_tau(tau_of_j(_exact_finite("j", j)), omega1)

    @staticmethod
    def degenerate(g2: Any, g3: Any) -> DegenerateLattice:
        """The limit of lattices whose discriminant g2^3 - 27 g3^2 tends to zero.

        It is no `Lattice`, since it has one period or none; see `DegenerateLattice`. The
        invariants are numbers; `LatticeError` if their discriminant is not zero.

        Examples
        --------
        >>> Lattice.degenerate(12.0, -8.0).roots
        ((-2+0j), (1-0j), (1-0j))
        """
        from wefpe_core.degenerate_lattice import DegenerateLattice

        values = [_as_double(name, _checked(name, g)) for name, g in (("g2", g2), ("g3", g3))]
        return DegenerateLattice.from_invariants(values[0], values[1])

    @classmethod
    def lemniscatic(cls, g2: Any = 1.0) -> Lattice:
        """Square lattice: invariants `g2`, a number, and 0.

        Examples
        --------
        >>> Lattice.lemniscatic().omega1, Lattice.lemniscatic().tau
        ((1.8540746773013719+0j), 1j)
        """
        return cls.from_invariants(g2, 0.0)

    @classmethod
    def equianharmonic(cls, g3: Any = 1.0) -> Lattice:
        """Hexagonal lattice: invariants 0 and `g3`, a number.

        No lattice of doubles is exactly hexagonal. That of the rounded half-periods, which all
        functions take as exact, has a g2 of some 1e-16 instead of 0.

        Examples
        --------
        >>> bool(abs(abs(Lattice.equianharmonic().tau) - 1) < 1e-15)
        True
        """
        return cls.from_invariants(0.0, g3)

    @classmethod
    def rectangular(cls, omega1: Any, omega3_imag: Any) -> Lattice:
        """Rectangular lattice with half-periods `omega1` > 0 and ``1j*omega3_imag``.

        Both are positive real numbers, or torch tensors, which are not inspected.

        Examples
        --------
        >>> Lattice.rectangular(1.0, 1.5) == Lattice(1.0, 1.5j)
        True
        """
        omega1, omega3_imag = _checked("omega1", omega1), _checked("omega3_imag", omega3_imag)
        for name, value in (("omega1", omega1), ("omega3_imag", omega3_imag)):
            if not _is_tensor(value) and not (value.imag == 0 and value.real > 0):
                raise LatticeError(f"{name} must be a positive real number, got {value!r}")
        if _is_tensor(omega1) or _is_tensor(omega3_imag):
            return cls(omega1, omega3_imag * 1j)
        width = _exact_half_period("omega1", omega1)
        height = _exact_half_period("omega3_imag", omega3_imag).re
        omega3 = GaussianRational(Fraction(0), height)
        return cls._from_exact(width, omega3, originals=(omega1, omega3_imag))

    @property
    def omega1(self) -> Any:
        """First half-period: a complex number, a number of mpmath, or a tensor."""
        return self._omega1

    @property
    def omega3(self) -> Any:
        """The other half-period, omega3 in DLMF's numbering; omega1 + omega2 + omega3 = 0."""
        return self._omega3

    @property
    def tau(self) -> Any:
        """Half-period ratio omega3/omega1, in the upper half plane."""
        return self._omega3 / self._omega1

    @property
    def holds_tensors(self) -> bool:
        """Whether a half-period is a torch tensor (nothing is known about it on the host)."""
        return self._exact is None

    @property
    def exact(self) -> tuple[GaussianRational, GaussianRational]:
        """The half-periods as exact rational numbers; `LatticeError` if they are tensors."""
        if self._exact is None:
            raise LatticeError(
                "this lattice holds tensors; only the backend of their library takes it"
            )
        return self._exact

    def reduced(self) -> tuple[Lattice, IntegerMatrix]:
        """The same lattice with its canonical reduced basis, and the integer matrix.

        Returns ``(lattice, ((p, q), (r, s)))``: the new omega1 is ``p*omega1 + q*omega3``, the
        new omega3 is ``r*omega1 + s*omega3``, ``ps - qr = 1``, and the new tau lies in
        ``-1/2 < Re tau <= 1/2, |tau| >= 1``. Computed exactly; every basis of one lattice
        gives the same result. `LatticeError` if the half-periods are tensors.

        Examples
        --------
        >>> lattice, matrix = Lattice(1.0, 5 + 1j).reduced()
        >>> lattice.omega1, lattice.omega3, matrix
        ((1+0j), 1j, ((1, 0), (-5, 1)))
        """
        w1, w3, matrix = gauss_reduce(*self.exact)
        return Lattice._from_exact(w1, w3), matrix

    # --- Functions on it, by the backend of the argument's library (`wefpe_core.dispatch`) ------

    def wp(self, z: Any) -> Any:
        """`AbstractBackend.wp` at `z`: arrays by NumPy, tensors by torch, mpf by mpmath.

        Values are complex and have the shape, precision and device of `z`; lattice points give
        ``inf+nanj``. `AbstractBackend.wp` says more, and so for the functions below.

        Examples
        --------
        >>> lattice = Lattice.lemniscatic()
        >>> bool(abs(lattice.wp(lattice.omega1) - 0.5) < 1e-15)
        True
        """
        return self._backend(z).wp(z, self)

    def wp_prime(self, z: Any) -> Any:
        """`AbstractBackend.wp_prime` at `z`: it takes and returns what `wp` does.

        >>> lattice = Lattice(1.0, 0.3 + 0.9j)
        >>> bool(abs(lattice.wp_prime(1.0)) < 1e-14)
        True
        """
        return self._backend(z).wp_prime(z, self)

    def wp_and_prime(self, z: Any) -> tuple[Any, Any]:
        """`AbstractBackend.wp_and_prime` at `z`: the pair of `wp` and `wp_prime`.

        >>> lattice = Lattice(1.0, 0.3 + 0.9j)
        >>> p, dp = lattice.wp_and_prime(0.25)
        >>> bool(abs(dp**2 - (4 * p**3 - lattice.g2 * p - lattice.g3)) < 1e-15 * abs(dp) ** 2)
        True
        """
        return self._backend(z).wp_and_prime(z, self)

    def zeta(self, z: Any) -> Any:
        """`AbstractBackend.zeta` at `z`: it takes what `wp` does; ``inf+nanj`` at poles.

        >>> lattice = Lattice(1.0, 0.3 + 0.9j)
        >>> bool(lattice.zeta(-0.25) == -lattice.zeta(0.25))
        True
        """
        return self._backend(z).zeta(z, self)

    def sigma(self, z: Any) -> Any:
        """`AbstractBackend.sigma` at `z`: it takes what `wp` does; 0 at lattice points.

        >>> lattice = Lattice(1.0, 0.3 + 0.9j)
        >>> bool(lattice.sigma(-0.25) == -lattice.sigma(0.25))
        True
        """
        return self._backend(z).sigma(z, self)

    def green(self, z: Any) -> Any:
        """`AbstractBackend.green` at `z`: real values; it takes what `wp` does.

        >>> lattice = Lattice(1.0, 0.3 + 0.9j)
        >>> bool(lattice.green(-0.25) == lattice.green(0.25))
        True
        """
        return self._backend(z).green(z, self)

    def inverse_wp(self, w: Any) -> Any:
        """`AbstractBackend.inverse_wp` of `w`: a z with wp(z) = w; it takes what `wp` does.

        >>> lattice = Lattice(1.0, 0.3 + 0.9j)
        >>> bool(abs(lattice.wp(lattice.inverse_wp(2.0)) - 2) < 1e-14)
        True
        """
        return self._backend(w).inverse_wp(w, self)

    @property
    def g2(self) -> Any:
        """The invariant g2, complex: in double precision, or as a tensor.

        >>> bool(abs(Lattice.lemniscatic(4.0).g2 - 4) < 1e-14)
        True
        """
        return self._backend().invariants(self)[0]

    @property
    def g3(self) -> Any:
        """The invariant g3, complex: in double precision, or as a tensor.

        >>> bool(abs(Lattice.equianharmonic(4.0).g3 - 4) < 1e-14)
        True
        """
        return self._backend().invariants(self)[1]

    @property
    def j(self) -> Any:
        """Klein's invariant, complex: in double precision, or as a tensor.

        >>> bool(abs(Lattice(1, 1j).j - 1728) < 1e-11)  # a square
        True
        """
        tau = self.tau if self.holds_tensors else complex(self.tau)
        return self._backend().klein_j(tau)

    def plot(self, function: Any = "wp") -> Any:
        """A matplotlib figure of a function on this lattice: `wefpe.plot.domain_colouring`.

        `function` is a name, such as "wp", or any function of an array of complex numbers.

        >>> Lattice(1.0, 0.3 + 0.9j).plot("zeta").savefig("zeta.png")  # doctest: +SKIP
        """
        return import_own("training.plot").domain_colouring(function, self)

    def _backend(self, *arguments: Any) -> AbstractBackend[Any]:
        from wefpe_core.dispatch import backend_for

        return backend_for(*arguments, self)

    def __eq__(self, other: object) -> bool:
        """Equal bases, exactly. (Tensor lattices are equal only to themselves.)"""
        if not isinstance(other, Lattice):
            return NotImplemented
        if self._exact is None or other._exact is None:
            return self is other
        return self._exact == other._exact

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = object.__hash__(self) if self._exact is None else hash(self._exact)
            object.__setattr__(self, "_hash", value)
            return value

    def __repr__(self) -> str:
        shown = f"Lattice(omega1={self._omega1!r}, omega3={self._omega3!r})"
        if self._exact is None or self._shows_all_digits():
            return shown
        # Made from tau, from fractions or by reduction: the doubles shown are rounded.
        return f"<{shown}, rounded>"

    def _shows_all_digits(self) -> bool:
        return self._exact == (exact_complex(self._omega1), exact_complex(self._omega3))

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self._exact is None or self._shows_all_digits():
            return (Lattice, (self._omega1, self._omega3))
        return (Lattice._from_exact, self._exact)


# The signature that inspect and help show: that of __init__, not the one that catches mistakes.
Lattice.__signature__ = inspect.signature(  # type: ignore[attr-defined]
    Lattice.__init__.__get__(object.__new__(Lattice))
)

# What people call the numbers that they have, and the constructor that takes these.
_CONSTRUCTORS = {
    "tau": "Lattice.from_tau(tau, omega1)",
    "g2": "Lattice.from_invariants(g2, g3)",
    "g3": "Lattice.from_invariants(g2, g3)",
    "j": "Lattice.from_j(j)",
    "period1": "Lattice.from_periods(period1, period3)",
    "period2": "Lattice.from_periods(period1, period3)",
    "period3": "Lattice.from_periods(period1, period3)",
}


def _wrong_arguments(unnamed: int, named: list[str]) -> str:
    """The message about arguments that are not omega1 and omega3."""
    message = "Lattice takes two half-periods, omega1 and omega3"
    if "omega2" in named:
        return (
            f"{message}: what mpmath and others call omega2 is omega3 here (DLMF's omega2 is "
            "-omega1 - omega3)"
        )
    fitting = dict.fromkeys(_CONSTRUCTORS[name] for name in named if name in _CONSTRUCTORS)
    got = " and ".join([f"{unnamed} without a name"] * bool(unnamed) + named) or "none"
    if fitting:
        return f"{message}, got {got}; use {' or '.join(fitting)}"
    others = dict.fromkeys(_CONSTRUCTORS.values())
    return f"{message}, got {got}; for other numbers there are {', '.join(others)}"


def _is_tensor(value: Any) -> bool:
    # A tensor of torch or an array of JAX is recognised by an attribute, so that a lattice of
    # numbers never imports their library.
    return hasattr(value, "requires_grad") or hasattr(value, "aval")


def _checked(name: str, value: Any) -> Any:
    """Let numbers and tensors pass; a zero-dimensional array counts as the number in it."""
    if _is_tensor(value):
        return value
    if getattr(value, "shape", None) == () and not isinstance(value, numbers.Complex):
        value = value[()]
    if isinstance(value, bool) or not isinstance(value, numbers.Complex):
        raise LatticeError(f"{name} must be a number or a torch tensor, got {value!r}")
    return value


def _in_kind_of(number: Any, exact: GaussianRational) -> Any:
    """The mpmath number equal to `exact` if `number` is mpmath's, else `exact` itself."""
    if not hasattr(number, "context"):
        return exact
    context = number.context

    def part(value: Fraction) -> Any:
        # Neither function rounds to the precision of the context; every other way does. The
        # denominator is a power of two, like that of the number.
        return context.ldexp(context.convert(value.numerator), 1 - value.denominator.bit_length())

    if not exact.im:
        return part(exact.re)
    imaginary = context.fmul(part(exact.im), 1j, exact=True)
    return context.fadd(part(exact.re), imaginary, exact=True)


def _as_shown(name: str, value: Any) -> Any:
    """The half-period as users see it: a double, rounded if need be, or the mpmath number."""
    if _is_tensor(value) or hasattr(value, "context"):
        return value
    shown = _as_double(name, value)
    if shown == 0:  # a half-period that is zero itself was refused before
        raise LatticeError(f"{name} is below the range of doubles: {_in_brief(value)}")
    return shown


def _in_brief(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python does not spell out integers of more than 4300 digits
        return "a number of thousands of digits"


def _as_double(name: str, value: Any) -> complex:
    try:
        number = complex(value)
    except OverflowError:  # raised by integers and fractions; mpmath numbers become infinite
        number = complex("inf")
    if not (math.isfinite(number.real) and math.isfinite(number.imag)):
        raise LatticeError(f"{name} is beyond the range of doubles: {_in_brief(value)}")
    return number


def _exact_finite(name: str, value: Any) -> GaussianRational:
    exact = exact_complex(value)
    if exact is None:
        raise LatticeError(f"{name} must be finite, got {value!r}")
    return exact


def _exact_half_period(name: str, value: Any) -> GaussianRational:
    exact = _exact_finite(name, value)
    if not exact.re and not exact.im:
        raise LatticeError(f"{name} must not be zero, got {value!r}")
    return exact


def _check_orientation(
    omega1: GaussianRational, omega3: GaussianRational, shown: tuple[Any, Any]
) -> None:
    area = cross(omega1, omega3)
    if area == 0:
        raise LatticeError(f"half-periods are collinear: omega1={shown[0]!r}, omega3={shown[1]!r}")
    if area < 0:
        raise LatticeError(
            "Im(omega3/omega1) must be positive: "
            f"omega1={shown[0]!r}, omega3={shown[1]!r} are negatively oriented; negate omega3"
        )
