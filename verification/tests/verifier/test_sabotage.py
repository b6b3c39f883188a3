"""Sabotage: deliberately broken backends must each be caught, in the right row.

A verifier that a saboteur survives is a bug in the verifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends import (
    argument,
    emitters,
    kernel,
    numpy_backend,
    numpy_compiled,
    numpy_ops,
    numpy_scalar,
)
from backends.constants import (
    Precision,
    SeriesConstants,
    SplitComplex,
    map_reals,
    prepared_for,
)
from backends.pair import Pair
from verification import cases
from verification.functions import FUNCTIONS
from verification.judge import JudgedRow, judge, load_contracts
from verification.measure import measure
from verification.precision_report import describe_failure
from verification.subjects import (
    Subject,
    compiled_numpy_subject,
    numpy_subject,
    scalar_subject,
)
from wefpe_core import Lattice

# --- In the kernel -------------------------------------------------------------------------

Sabotage = Callable[[pytest.MonkeyPatch], None]


def with_constants(
    change: Callable[[SeriesConstants, Precision], SeriesConstants],
) -> Sabotage:
    """Change what NumPy's kernel knows of a lattice, without touching any cache."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        def changed(function: Any, lattice: Lattice, precision: Precision) -> SeriesConstants:
            return change(prepared_for(function, lattice, precision), precision)

        patch.setattr(numpy_backend, "prepared_for", changed)

    return apply


def single(x: Pair) -> Pair:
    return Pair(float(np.float32(x.re)), float(np.float32(x.im)))


def all_single(roots: tuple[Pair, Pair, Pair]) -> tuple[Pair, Pair, Pair]:
    return single(roots[0]), single(roots[1]), single(roots[2])


def without_low_parts(x: SplitComplex) -> SplitComplex:
    return SplitComplex(*(part._replace(low=(0.0,), lowest=0.0) for part in x))


def flip_a_sign_in_the_rows(patch: pytest.MonkeyPatch) -> None:
    row_sums = kernel.row_sums

    def flipped(x: Pair, c: SeriesConstants) -> tuple[Pair, Pair]:
        factor, slope = row_sums(x, c)
        return -factor, slope

    patch.setattr(kernel, "row_sums", flipped)


def forget_the_rounding_errors_of_the_reduction(patch: pytest.MonkeyPatch) -> None:
    def plain(x: Any, m: Any, a: Any, n: Any, b: Any, precision: Precision) -> Any:
        return x + m * a.high + n * b.high

    patch.setattr(argument, "plus_multiples", plain)


def leave_the_argument_unreduced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(numpy_ops.NumpyOps, "rint", staticmethod(np.zeros_like))


SABOTAGES: dict[str, tuple[Sabotage, str, str, set[str]]] = {
    # what is done: how, the function and region measured, the values that must fail
    "the sign of wp' is flipped": (
        with_constants(lambda c, _: c._replace(wp_prime_scale=-c.wp_prime_scale)),
        *("wp_and_prime", "generic", {"wp_prime"}),
    ),
    "a sign in the rows is flipped": (
        flip_a_sign_in_the_rows,
        *("wp_and_prime", "generic", {"wp"}),
    ),
    "two terms of the series are dropped": (
        with_constants(lambda c, _: c._replace(rows=c.rows[:-2], rows_slope=c.rows_slope[:-2])),
        *("wp_and_prime", "zeros", {"wp", "wp_prime"}),
    ),
    "the unit of the rows is rounded to single precision": (
        with_constants(lambda c, _: c._replace(row_unit=single(c.row_unit))),
        *("wp_and_prime", "zeros", {"wp"}),
    ),
    "a root is rounded to single precision": (
        with_constants(lambda c, _: c._replace(roots=all_single(c.roots))),
        *("wp_and_prime", "half-periods", {"wp"}),
    ),
    "the period is known to working precision only": (
        with_constants(
            lambda c, _: c._replace(
                period1_re=c.period1_re._replace(low=(0.0,), lowest=0.0),
                period3_im=c.period3_im._replace(low=(0.0,), lowest=0.0),
            )
        ),
        *("wp_and_prime", "far away", {"wp", "wp_prime"}),
    ),
    "the reduction forgets its rounding errors": (
        forget_the_rounding_errors_of_the_reduction,
        *("wp_and_prime", "other poles", {"wp", "wp_prime"}),
    ),
    "the argument is not reduced": (
        leave_the_argument_unreduced,
        *("wp_and_prime", "far away", {"wp", "wp_prime"}),
    ),
    "a quasi-period is rounded to single precision": (
        with_constants(
            lambda c, _: c._replace(eta1=map_reals(c.eta1, lambda x: float(np.float32(x))))
        ),
        *("zeta", "far away", {"zeta"}),
    ),
    "a quasi-period has the wrong sign": (
        with_constants(lambda c, _: c._replace(eta3=map_reals(c.eta3, lambda x: -x))),
        *("sigma", "other poles", {"sigma"}),
    ),
    "a quasi-period is known to working precision only": (
        with_constants(lambda c, _: c._replace(eta1=without_low_parts(c.eta1))),
        *("zeta", "quasi-periods cancel", {"zeta"}),
    ),
    "a logarithm is rounded to single precision": (
        with_constants(
            lambda c, _: c._replace(log_period_over_pi=float(np.float32(c.log_period_over_pi)))
        ),
        *("green", "generic", {"green"}),
    ),
    "the gap of two roots is rounded to single precision": (
        with_constants(lambda c, _: c._replace(root_gap=single(c.root_gap))),
        *("inverse_wp", "half-periods", {"inverse_wp"}),
    ),
}


def verdicts_of(
    function: str, region: str, subject: Subject | None = None, count: int = 4
) -> dict[str, JudgedRow]:
    rows = [
        measured
        for family in cases.FAMILIES
        for measured in measure(
            subject or numpy_subject(),
            dtype="complex128",
            function=function,
            family=family,
            region=region,
            count=count,
        )
    ]
    return {verdict.function: verdict for verdict in judge(rows, load_contracts())}


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_sabotaged_kernel_fails_in_the_right_row(
    sabotage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, function, region, damaged = SABOTAGES[sabotage]
    monkeypatch.setattr(numpy_scalar, "FEW", 0)  # few points are arrays here, like many
    whole = verdicts_of(function, region)
    assert all(verdict.largest <= verdict.ceiling for verdict in whole.values())
    apply(monkeypatch)
    failed = {name for name, v in verdicts_of(function, region).items() if v.largest > v.ceiling}
    assert failed >= damaged


# --- In the emitted code -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "key", "wrong"),
    [
        (emitters._PYTHON, "sub", "{1} - {0}"),
        (emitters._PYTHON, "sign_of", "-copysign(1.0, {0})"),
        (emitters._PYTHON, "rint", "{0} * 1.0"),
        (emitters._PYTHON, "expm1", "float(exp({0})) - 1.0"),
        (emitters._NUMBA_TARGETS["float64"], "where", "{2} if {0} else {1}"),
        (emitters._NUMBA_TARGETS["float64"], "rint", "np.floor({0})"),
    ],
    ids=lambda value: value if isinstance(value, str) else "in",
)
def test_a_sabotaged_emitter_fails(
    table: dict[str, str], key: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_python = table is emitters._PYTHON
    if not is_python:
        pytest.importorskip("numba", reason="the numba extra is not installed")
    subject = scalar_subject() if is_python else compiled_numpy_subject()
    caches = (numpy_scalar._on_lattice, numpy_scalar._compiled, numpy_compiled._compiled)

    def fails() -> bool:
        for remembered in caches:
            remembered.cache_clear()
        regions = ("generic", "pole at 0")
        verdicts = [v for r in regions for v in verdicts_of("wp_and_prime", r, subject).values()]
        return any(not verdict.largest <= verdict.ceiling for verdict in verdicts)

    assert not fails()
    monkeypatch.setitem(table, key, wrong)
    try:
        assert fails()
    finally:
        for remembered in caches:
            remembered.cache_clear()


# --- In a backend --------------------------------------------------------------------------


def with_values(change: Callable[[np.ndarray], np.ndarray]) -> Subject:
    """NumPy with every value changed on its way out."""

    class Changed(Subject):
        def evaluate(self, *arguments: Any, **options: Any) -> Any:
            return tuple(map(change, super().evaluate(*arguments, **options)))

    return Changed(**vars(numpy_subject()))


def with_lattice(change: Callable[[complex, complex], tuple[complex, complex]]) -> Subject:
    """NumPy on another lattice than the one it was given."""

    def to_lattice(lattice: Lattice, dtype: Any) -> Lattice:
        return Lattice(*change(complex(lattice.omega1), complex(lattice.omega3)))

    return replace(numpy_subject(), to_lattice=to_lattice)


def clamped(values: np.ndarray) -> np.ndarray:
    """As in the paper's listing: each part within 10,000."""
    return np.clip(values.real, -1e4, 1e4) + 1j * np.clip(values.imag, -1e4, 1e4)


BROKEN: dict[str, tuple[Subject, str, str, set[str], set[str]]] = {
    # the backend; function and region measured; values that must fail, values that must hold
    "values near the pole are clamped": (
        with_values(clamped),
        *("wp_and_prime", "pole at 0", {"wp", "wp_prime"}, set()),
    ),
    "a clamp does not show away from the pole": (
        with_values(clamped),
        *("inverse_wp", "half-periods", set(), {"inverse_wp"}),
    ),
    "the half-period is wrong in the tenth digit": (
        with_lattice(lambda w1, w3: (w1 * (1 + 1e-10), w3)),
        *("wp_and_prime", "generic", {"wp", "wp_prime"}, set()),
    ),
    "the half-periods are rounded to single precision": (
        with_lattice(lambda w1, w3: (complex(np.complex64(w1)), complex(np.complex64(w3)))),
        *("invariants", "the lattice", {"g2", "g3"}, set()),
    ),
    # Swapped half-periods span the same lattice: only what belongs to the basis can tell.
    "the half-periods are swapped, as the roots see it": (
        with_lattice(lambda w1, w3: (w3, -w1)),
        *("roots", "the lattice", {"e1", "e3"}, {"e2"}),
    ),
    "the half-periods are swapped, as the quasi-periods see it": (
        with_lattice(lambda w1, w3: (w3, -w1)),
        *("quasi_periods", "the lattice", {"eta1", "eta3"}, set()),
    ),
    "the half-periods are swapped, as wp sees it": (
        with_lattice(lambda w1, w3: (w3, -w1)),
        *("wp_and_prime", "generic", set(), {"wp", "wp_prime"}),
    ),
    "one value in many is off by a few eps": (
        with_values(lambda v: np.where(np.arange(v.size) == 3, v * (1 + 1e-14), v)),
        *("wp_and_prime", "generic", {"wp", "wp_prime"}, set()),
    ),
    "the sum of two points has the sign of its slope wrong": (
        with_values(lambda v: np.conj(v)),
        *("add", "generic", {"add wp", "add wp_prime"}, set()),
    ),
    "the truncated series lacks its last digits": (
        with_values(lambda v: v.astype(np.complex64).astype(np.complex128)),
        *("lattice_sum", "generic", {"sum wp", "sum wp_prime"}, set()),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_backend_fails_in_the_right_row_and_nowhere_else(name: str) -> None:
    subject, function, region, damaged, whole = BROKEN[name]
    verdicts = verdicts_of(function, region, subject)
    failed = {value for value, verdict in verdicts.items() if not verdict.passes}
    assert failed >= damaged
    assert not failed & whole
    for value in damaged:
        text = describe_failure(verdicts[value])
        assert text.startswith(f"{subject.label} complex128 {value}, {region}: ")
        assert "float.fromhex" in text


def test_gradients_of_the_wrong_basis_are_caught_though_the_values_are_right() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    from backends.torch_backend import TorchBackend
    from verification.subjects import tensor_lattice_subject

    class WrongBasis(TorchBackend):
        def wp_and_prime(self, z: Any, lattice: Lattice) -> Any:
            # The same numbers, but omega3 seems to follow omega1.
            follows = lattice.omega1 - lattice.omega1.detach()
            return super().wp_and_prime(z, Lattice(lattice.omega1, lattice.omega3 + follows))

    sound = tensor_lattice_subject("cpu")
    broken = replace(sound, backend=WrongBasis())
    assert torch.is_tensor(sound.to_backend(np.zeros(1)))
    values = verdicts_of("wp_and_prime", "generic", broken)
    assert all(verdict.passes for verdict in values.values())
    gradients = verdicts_of("gradient", "generic", broken, count=1)
    failed = {name for name, verdict in gradients.items() if not verdict.passes}
    assert failed == {"wp_omega1", "wp_prime_omega1"}
    assert set(gradients) == set(FUNCTIONS["gradient"].values)
