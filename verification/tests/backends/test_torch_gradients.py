"""Derivatives of the torch backend, of first to third order, in z and in the half-periods.

They are judged by differences of the mpmath backend's fifty digits, by the laws that link the
functions to their derivatives, and by torch's own `gradcheck`.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from mpmath import mp

pytest.importorskip("torch", reason="the torch extra is not installed")

import torch

from verification.tests.torch_devices import every_device
from wefpe_core import Lattice, get_backend

BACKEND = get_backend("torch")
TRUTH = get_backend("mpmath", dps=50)

# Digits for arithmetic on the fifty of TRUTH, so that only its own rounding counts.
WORKING_DIGITS = 70
# A central difference is wrong by (step/d)^2 at a distance d from the pole (1e-8 at least, so by
# 1e-18), and by 1e-50/step for rounding (1e-33).
STEP = 1e-17
# A second difference is divided by the step twice, so it takes a longer one: wrong by 1e-24 for
# its length and 1e-26 for rounding, at points that are not next to a pole.
LONG_STEP = 1e-12
# The promise for the derivative with respect to x: in double precision an error of 1e-12 of
# |f_x| + |f/x|, in single precision the same number of eps. What is lost beyond the rounding of
# f is its condition: several periods away |z f'/f| of sigma is some hundreds, and on a thin
# lattice derivatives in the reduced basis are summed with factors up to 1/Im tau.
ALLOWED_EPS = 1e-12 / torch.finfo(torch.float64).eps


class Function(NamedTuple):
    """A function of z and the lattice, for any backend."""

    of: Callable[[Any, Any, Lattice], Any]
    is_holomorphic: bool = True


OF_POINTS = {
    "wp": Function(lambda backend, z, lattice: backend.wp(z, lattice)),
    "wp_prime": Function(lambda backend, z, lattice: backend.wp_prime(z, lattice)),
    "zeta": Function(lambda backend, z, lattice: backend.zeta(z, lattice)),
    "sigma": Function(lambda backend, z, lattice: backend.sigma(z, lattice)),
    "green": Function(lambda backend, z, lattice: backend.green(z, lattice), is_holomorphic=False),
    "inverse_wp": Function(lambda backend, w, lattice: backend.inverse_wp(w, lattice)),
}
OF_LATTICES = {
    "g2": Function(lambda backend, _, lattice: backend.invariants(lattice)[0]),
    "g3": Function(lambda backend, _, lattice: backend.invariants(lattice)[1]),
    "e1": Function(lambda backend, _, lattice: backend.roots(lattice)[0]),
    "e2": Function(lambda backend, _, lattice: backend.roots(lattice)[1]),
    "e3": Function(lambda backend, _, lattice: backend.roots(lattice)[2]),
    "eta1": Function(lambda backend, _, lattice: backend.quasi_periods(lattice)[0]),
    "eta3": Function(lambda backend, _, lattice: backend.quasi_periods(lattice)[1]),
}
FUNCTIONS = OF_POINTS | OF_LATTICES


def single(value: complex) -> complex:
    """The nearest number of single precision: given to both precisions, it is exact in both."""
    return torch.tensor(value, dtype=torch.complex64).item()


LATTICES = {
    "square": (1.0, 1j),
    "rectangular": (1.0, 1.3j),
    "hexagonal": (0.5, 0.25 + 0.4330127018922193j),
    "oblique": (0.8, 0.3 + 1.1j),
    "tall": (0.5, 3j),
    "unreduced": (1.0, 3.0 + 0.9j),
    "unreduced to the left": (0.7, -1.9 + 0.55j),
    "thin": (1.0, 0.45 + 0.02j),
    "thin and upright": (1.0, 0.1 + 0.02j),
    "rotated": (0.6 - 0.8j, 1.1 + 1.2j),
    "rotated and unreduced": (-0.3 + 0.4j, -1.3 - 0.2j),
}
LATTICES = {name: (single(w1), single(w3)) for name, (w1, w3) in LATTICES.items()}
PARAMETERS = ("z", "omega1", "omega3")

every_lattice = pytest.mark.parametrize("lattice", LATTICES)
some_lattices = pytest.mark.parametrize("lattice", ["rectangular", "unreduced", "rotated"])
every_function_of_points = pytest.mark.parametrize("function", OF_POINTS)
every_holomorphic = pytest.mark.parametrize("function", ["wp", "wp_prime", "zeta", "sigma"])


def reduced_periods(lattice: str) -> tuple[complex, complex]:
    reduced, _ = Lattice(*LATTICES[lattice]).reduced()
    return 2 * reduced.omega1, 2 * reduced.omega3


@cache
def points(lattice: str) -> dict[str, complex]:
    """One point of every region, placed by the reduced basis."""
    a, b = reduced_periods(lattice)
    aside = (0.6 + 0.8j) * a
    found = {
        "generic": 0.31 * a + 0.17 * b,
        "generic, upper half": -0.21 * a + 0.43 * b,
        "1e-3 of a period from the pole": 1e-3 * aside,
        "1e-6 of a period from the pole": 1e-6 * aside,
        "next to a/2": 0.5 * a + 1e-3 * aside,
        "next to b/2": 0.5 * b + 1e-3 * aside,
        "next to (a+b)/2": 0.5 * (a + b) - 1e-3 * aside,
        "several periods away": 3.2 * a - 2.3 * b,
        "1e-3 of a period from a far pole": 2 * a + b + 1e-3 * aside,
    }
    return {region: single(z) for region, z in found.items()}


@cache
def values_of_wp(lattice: str) -> dict[str, complex]:
    """Arguments for the inverse: values of wp inside the region where it looks for solutions.

    On the edges of that region and at the roots, the inverse has no derivative. Two thirds of a
    period above the poles of a tall lattice wp is nearly constant, and its inverse nearly lost.
    """
    a, b = reduced_periods(lattice)
    up = 1j * a * min((b / a).imag, 4 / 3)
    solutions = {
        "generic": 0.31 * a + 0.17 * up,
        "generic, left": -0.21 * a + 0.43 * up,
        "of large modulus": (0.6e-3 + 0.8e-3j) * a,
        "towards e1": 0.45 * a + 0.05 * up,
        "towards e3": 0.05 * a + 0.45 * up,
    }
    values = TRUTH.wp(list(solutions.values()), Lattice(*LATTICES[lattice]))
    return {region: single(complex(w)) for region, w in zip(solutions, values, strict=True)}


def arguments(function: str, lattice: str) -> dict[str, complex]:
    return values_of_wp(lattice) if function == "inverse_wp" else points(lattice)


# --- The reference: differences of fifty digits --------------------------------------------


def true_value(function: str, x: list[Any], near: Any = None) -> Any:
    """The value at x; of the inverse, the solution nearest to `near`.

    The solution that is returned jumps where the reduced basis does, as it does on square and
    hexagonal lattices. A derivative belongs to one solution, which moves with x.
    """
    lattice = Lattice(x[1], x[2])
    value = FUNCTIONS[function].of(TRUTH, x[0], lattice)
    if near is None:
        return value
    basis = [2 * mp.mpc(omega) for omega in (x[1], x[2])]
    (p, q), (r, s) = lattice.reduced()[1]
    a, b = p * basis[0] + q * basis[1], r * basis[0] + s * basis[1]
    solutions = (
        sign * value + m * a + n * b for sign in (1, -1) for m in (-1, 0, 1) for n in (-1, 0, 1)
    )
    return min(solutions, key=lambda z: abs(z - near))


def difference(f: Callable[[list[Any]], Any], x: list[Any], i: int, step: Any) -> Any:
    """Central difference quotient of f in x[i], per unit of length along `step`."""

    def moved(by: Any) -> list[Any]:
        return [value + by if k == i else value for k, value in enumerate(x)]

    return (f(moved(step)) - f(moved(-step))) / (2 * abs(step))


@cache
def true_derivatives(function: str, lattice: str) -> dict[str, tuple[complex, list[complex]]]:
    """For every region the value and the derivatives in z, omega1 and omega3.

    Of a real function, the derivative is what torch calls its gradient: f_x + i f_y.
    """
    answers = {}
    with mp.workdps(WORKING_DIGITS):
        for region, z in arguments(function, lattice).items():
            x = [mp.mpc(value) for value in (z, *LATTICES[lattice])]
            value = true_value(function, x)
            near = value if function == "inverse_wp" else None

            def along(i: int, step: Any, x=x, near=near) -> Any:
                return difference(lambda x: true_value(function, x, near), x, i, step)

            slopes = [along(i, mp.mpf(STEP)) for i in range(3)]
            if not FUNCTIONS[function].is_holomorphic:
                slopes = [mp.mpc(slopes[i], along(i, mp.mpc(0, STEP))) for i in range(3)]
            answers[region] = complex(value), [complex(slope) for slope in slopes]
    return answers


@cache
def true_second_derivative(function: str, lattice: str, region: str, i: int, j: int) -> complex:
    with mp.workdps(WORKING_DIGITS):
        x = [mp.mpc(value) for value in (points(lattice)[region], *LATTICES[lattice])]
        step = mp.mpf(LONG_STEP)

        def slope(x: list[Any]) -> Any:
            return difference(lambda x: true_value(function, x), x, i, step)

        return complex(difference(slope, x, j, step))


@every_lattice
def test_the_reference_finds_wp_prime_as_the_derivative_of_wp(lattice):
    found = true_derivatives("wp", lattice)
    for region, z in points(lattice).items():
        want = complex(TRUTH.wp_prime(z, Lattice(*LATTICES[lattice])))
        # Both are rounded to doubles at the end, which may separate them by one eps.
        assert abs(found[region][1][0] - want) <= torch.finfo(torch.float64).eps * abs(want)


# --- Evaluating and differentiating with torch ---------------------------------------------


def leaf(value: Any, device: str, dtype: torch.dtype = torch.complex128) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype, device=device, requires_grad=True)


def leaves(function: str, lattice: str, device: str, dtype=torch.complex128) -> list[Any]:
    """z of all regions, and for each of them its own copy of the half-periods."""
    z = list(arguments(function, lattice).values())
    return [leaf(value, device, dtype) for value in (z, *([w] * len(z) for w in LATTICES[lattice]))]


def derivatives(value: Any, x: list[Any], *, is_holomorphic: bool = True, again: bool = False):
    """Derivatives of each element of `value` in the elements of x that it depends on.

    torch's gradient of a real L is L_x + i L_y. For a holomorphic f and L = Re f, the
    Cauchy-Riemann equations make it Re f' - i Im f', the conjugate of f'. For a real function
    there is nothing to undo.
    """
    real = value.real if value.is_complex() else value
    gradients = torch.autograd.grad(real.sum(), x, create_graph=again)
    return [gradient.conj() if is_holomorphic else gradient for gradient in gradients]


def assert_accurate(got: Any, want: complex, scale: float, where: Any) -> None:
    """The error is at most `ALLOWED_EPS` of `scale`, in the precision of `got`."""
    error = abs(complex(got.detach()) - want) / (scale * torch.finfo(got.dtype).eps)
    assert error <= ALLOWED_EPS, f"{where}: {error:.3g} eps, {got.item()} instead of {want}"


def assert_first_derivatives(function: str, lattice: str, x: list[Any], got: list[Any]) -> None:
    for n, (region, (value, want)) in enumerate(true_derivatives(function, lattice).items()):
        for i in range(len(got)):
            scale = abs(want[i]) + abs(value / x[i][n].item())
            assert_accurate(got[i][n], want[i], scale, (lattice, region, PARAMETERS[i]))


# --- First order ---------------------------------------------------------------------------


@every_device
@every_lattice
@every_function_of_points
def test_gradients_are_the_differences_of_fifty_digits(function, lattice, device):
    x = leaves(function, lattice, device)
    value = FUNCTIONS[function].of(BACKEND, x[0], Lattice(x[1], x[2]))
    got = derivatives(value, x, is_holomorphic=FUNCTIONS[function].is_holomorphic)
    assert_first_derivatives(function, lattice, x, got)


@every_device
@every_lattice
@every_function_of_points
def test_a_lattice_of_numbers_has_the_same_gradient_in_z(function, lattice, device):
    z = leaves(function, lattice, device)[:1]
    value = FUNCTIONS[function].of(BACKEND, z[0], Lattice(*LATTICES[lattice]))
    got = derivatives(value, z, is_holomorphic=FUNCTIONS[function].is_holomorphic)
    assert_first_derivatives(function, lattice, z, got)


@every_device
@pytest.mark.parametrize("function", OF_LATTICES)
def test_gradients_of_lattice_constants_are_the_differences_of_fifty_digits(function, device):
    x = [leaf(list(omegas), device) for omegas in zip(*LATTICES.values(), strict=True)]
    got = derivatives(FUNCTIONS[function].of(BACKEND, None, Lattice(*x)), x)
    for n, lattice in enumerate(LATTICES):
        value, (_, *want) = true_derivatives(function, lattice)["generic"]
        for i in range(2):
            scale = abs(want[i]) + abs(value / x[i][n].item())
            assert_accurate(got[i][n], want[i], scale, (lattice, PARAMETERS[i + 1]))


@every_device
@some_lattices
@every_function_of_points
def test_single_precision_gradients_lose_no_more_eps(function, lattice, device):
    x = leaves(function, lattice, device, torch.complex64)
    value = FUNCTIONS[function].of(BACKEND, x[0], Lattice(x[1], x[2]))
    got = derivatives(value, x, is_holomorphic=FUNCTIONS[function].is_holomorphic)
    for gradient in got:
        assert gradient.dtype is torch.complex64
    assert_first_derivatives(function, lattice, x, got)


@every_device
@every_lattice
@every_holomorphic
def test_the_imaginary_part_has_the_gradient_that_cauchy_and_riemann_demand(
    function, lattice, device
):
    x = leaves(function, lattice, device)
    value = FUNCTIONS[function].of(BACKEND, x[0], Lattice(x[1], x[2]))
    of_real = torch.autograd.grad(value.real.sum(), x, retain_graph=True)
    of_imaginary = torch.autograd.grad(value.imag.sum(), x)
    # Im f = Re(-i f), and the conjugate of -i f' is i times the conjugate of f'.
    for n, (region, (f, want)) in enumerate(true_derivatives(function, lattice).items()):
        for i in range(3):
            scale = abs(want[i]) + abs(f / x[i][n].item())
            where = (lattice, region, PARAMETERS[i])
            assert_accurate(of_imaginary[i][n], 1j * of_real[i][n].item(), scale, where)


@every_device
@every_holomorphic
@pytest.mark.parametrize("part", ["real", "imag"])
def test_real_leaves_behind_the_half_periods_get_real_gradients(function, part, device):
    x, y, s, t = 0.37, -0.21, 1.1, 1.7

    def value_at(parameters: list[Any]) -> Any:
        x, y, s, t = parameters
        return getattr(true_value(function, [mp.mpc(x, y), s, mp.mpc(0, t)]), part)

    with mp.workdps(WORKING_DIGITS):
        numbers = [mp.mpf(value) for value in (x, y, s, t)]
        want = [complex(difference(value_at, numbers, i, mp.mpf(STEP))) for i in range(4)]
        f = complex(value_at(numbers))
    inputs = [leaf(value, device, torch.float64) for value in (x, y, s, t)]
    z, lattice = torch.complex(*inputs[:2]), Lattice(inputs[2], 1j * inputs[3])
    value = getattr(FUNCTIONS[function].of(BACKEND, z, lattice), part)
    for got, exact, number in zip(
        torch.autograd.grad(value, inputs), want, (x, y, s, t), strict=True
    ):
        assert got.dtype is torch.float64
        assert_accurate(got, exact, abs(exact) + abs(f / number), function)


@every_device
@pytest.mark.parametrize(
    "make",
    [
        lambda t: Lattice(1.0, 1j * t),
        lambda t: Lattice.rectangular(1.0, t),
        lambda t: Lattice.from_tau(1j * t, omega1=1.0),
        lambda t: Lattice.from_periods(2.0, 2j * t),
    ],
    ids=["half-periods", "rectangular", "from_tau", "from_periods"],
)
def test_every_way_to_make_a_lattice_of_a_tensor_carries_the_gradient(make, device):
    t = leaf(LATTICES["rectangular"][1].imag, device, torch.float64)
    z = torch.tensor(points("rectangular")["generic"], dtype=torch.complex128, device=device)
    [got] = torch.autograd.grad(BACKEND.wp(z, make(t)).real, t)
    value, want = true_derivatives("wp", "rectangular")["generic"]
    # d/dt at omega3 = i t is i d/d omega3.
    assert_accurate(got, (1j * want[2]).real, abs(want[2]) + abs(value / t.item()), "d/dt")


@every_device
def test_a_real_z_gets_a_real_gradient(device):
    z = leaf(0.4, device, torch.float64)
    lattice = Lattice(*LATTICES["oblique"])
    value = BACKEND.wp(z, lattice)
    [got] = torch.autograd.grad(value.real, z)
    want = complex(TRUTH.wp_prime(0.4, lattice))
    assert got.dtype is torch.float64
    assert_accurate(got, want.real, abs(want) + abs(value.item() / 0.4), "d/dx")


@every_device
@every_lattice
def test_a_point_that_moves_with_the_lattice_collects_both_derivatives(lattice, device):
    """wp at omega1, omega1 + omega3 and omega3 is a root, and so are its derivatives."""
    numbers = [complex(omega) for omega in LATTICES[lattice]]
    x = [leaf(omega, device) for omega in numbers]
    half_periods = torch.stack([x[0], x[0] + x[1], x[1]])
    values = BACKEND.wp(half_periods, Lattice(*x))
    for value, root in zip(values, ("e1", "e2", "e3"), strict=True):
        got = derivatives_of_one(value, x)
        e, (_, *want) = true_derivatives(root, lattice)["generic"]
        for i in range(2):
            scale = abs(want[i]) + abs(e / numbers[i])
            assert_accurate(got[i], want[i], scale, (root, PARAMETERS[i + 1]))


def derivatives_of_one(value: Any, x: list[Any]) -> list[Any]:
    return [g.conj() for g in torch.autograd.grad(value.real, x, retain_graph=True)]


@every_device
@pytest.mark.parametrize(
    "invariants",
    [(1.0, 0.2), (3.0, -1.9), (1.0, 0.0), (0.0, 1.0), (-2.0, 0.5), (2 + 1j, -0.3 + 0.4j)],
    ids=["generic", "two roots near", "square", "hexagonal", "one real root", "complex"],
)
def test_invariants_of_the_lattice_they_define_have_the_identity_as_jacobian(invariants, device):
    g = [leaf(complex(value), device) for value in invariants]
    again = BACKEND.invariants(BACKEND.lattice_from_invariants(*g))
    # The natural sizes are |e|^2 and |e|^3; one of the invariants may be zero.
    e = max(abs(invariants[0]) ** (1 / 2), abs(invariants[1]) ** (1 / 3))
    sizes = (e**2, e**3)
    for i in range(2):
        got = derivatives_of_one(again[i], g)
        for j in range(2):
            assert_accurate(got[j], complex(i == j), sizes[i] / sizes[j], (i, j))


# torch's forward mode compiles its own formulas with a deprecated function of its own.
forward_mode = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def every_kind_of_derivative(test: Any) -> Any:
    return forward_mode(pytest.mark.parametrize("kind", ["backward", "forward"])(test))


def derivatives_by(kind: str, f: Callable[[Any], Any], z: Any) -> Any:
    """f'(z), element by element."""
    if kind == "backward":
        return derivatives(f(z), [z])[0]
    return torch.func.jvp(f, (z.detach(),), (torch.ones_like(z),))[1]


# --- Laws of the derivatives ---------------------------------------------------------------


@every_device
@every_lattice
def test_zeta_has_the_derivative_minus_wp_and_sigma_the_logarithmic_one_zeta(lattice, device):
    """DLMF 23.2.7 and 23.2.8."""
    [z] = leaves("wp", lattice, device)[:1]
    numbers = Lattice(*LATTICES[lattice])
    zeta, sigma = BACKEND.zeta(z, numbers), BACKEND.sigma(z, numbers)
    [slope], [sigma_slope] = derivatives(zeta, [z]), derivatives(sigma, [z])
    for n, (region, point) in enumerate(points(lattice).items()):
        wp, zeta_there = complex(TRUTH.wp(point, numbers)), complex(TRUTH.zeta(point, numbers))
        assert_accurate(slope[n], -wp, abs(wp) + abs(zeta_there / point), region)
        s = sigma[n].item()
        scale = abs(s * zeta_there) + abs(s / point)
        assert_accurate(sigma_slope[n], s * zeta_there, scale, region)


@every_device
@every_kind_of_derivative
@some_lattices
def test_sigma_has_a_derivative_at_every_lattice_point(lattice, kind, device):
    """It vanishes there, and its derivative does not: it is 1 at 0."""
    w1, w3 = (complex(omega) for omega in LATTICES[lattice])
    z = [0.0, 2 * w1, 2 * w3 - 2 * w1]
    numbers = Lattice(w1, w3)
    found = derivatives_by(kind, lambda z: BACKEND.sigma(z, numbers), leaf(z, device))
    assert_accurate(found[0], 1, 1, lattice)
    with mp.workdps(WORKING_DIGITS):
        for n, point in enumerate(z):
            x = [mp.mpc(value) for value in (point, w1, w3)]
            want = complex(difference(lambda x: true_value("sigma", x), x, 0, mp.mpf(STEP)))
            assert_accurate(found[n], want, abs(want), (lattice, point))


@every_device
def test_where_sigma_overflows_nothing_else_loses_its_derivative(device):
    """Neither a lattice point, whose zero stays a zero, nor the half-periods."""
    far = [60.3, 200.0, 1e4]

    def gradients(z):
        x = [leaf(value, device) for value in (z, 1.0, 1.2j)]
        value = BACKEND.sigma(x[0], Lattice(x[1], x[2]))
        return value, torch.autograd.grad(value[:2].real.sum(), x)

    value, with_far = gradients([0.3 + 0.1j, 0.0, *far])
    assert [torch.isinf(v.real).item() for v in value] == [False, False, True, False, False]
    assert (value[[1, 3, 4]] == 0).all()
    _, without = gradients([0.3 + 0.1j, 0.0])
    assert torch.equal(with_far[0][:2], without[0])
    assert torch.equal(torch.stack(with_far[1:]), torch.stack(without[1:]))


@every_device
@every_lattice
def test_at_a_half_period_wp_has_the_slope_zero_and_a_curvature(lattice, device):
    numbers = Lattice(*LATTICES[lattice])
    a, b = reduced_periods(lattice)
    half_periods = [a / 2, b / 2, (a + b) / 2]
    z = leaf(half_periods, device)
    wp, wp_prime = BACKEND.wp_and_prime(z, numbers)
    [slope], [curvature] = (derivatives(value, [z], again=True) for value in (wp, wp_prime))
    g2 = complex(TRUTH.invariants(numbers)[0])
    for n, half_period in enumerate(half_periods):
        e = complex(TRUTH.wp(half_period, numbers))
        want = 6 * e**2 - g2 / 2
        # Rounding moves a half-period by eps of itself, and the slope by that times wp''.
        scale = abs(want * half_period)
        assert_accurate(slope[n], 0, scale, half_period)
        assert_accurate(curvature[n], want, 6 * abs(e) ** 2 + abs(g2) / 2, half_period)


@every_device
@every_lattice
def test_next_to_a_root_the_inverse_has_the_slope_one_over_wp_prime_of_its_value(lattice, device):
    # There the inverse is as good as the square root of w - e allows; its slope must be that of
    # the solution it returns.
    a, b = reduced_periods(lattice)
    up = b - (b / a).real * a
    numbers = Lattice(*LATTICES[lattice])
    near = [0.499 * a + 1e-3 * up, 1e-3 * a + 0.499 * b, 0.499 * (a + b)]
    w = leaf([complex(value) for value in TRUTH.wp(near, numbers)], device)
    z = BACKEND.inverse_wp(w, numbers)
    [slope] = derivatives(z, [w])
    for n in range(len(near)):
        want = 1 / complex(TRUTH.wp_prime(z[n].item(), numbers))
        assert_accurate(slope[n], want, abs(want), near[n])


@pytest.mark.parametrize(
    ("dtype", "powers", "tolerance"),
    [
        (torch.complex128, (-330, -170, 170, 330), 1e-13),
        (torch.complex64, (-30, -20, 30), 1e-5),
    ],
)
@every_device
def test_the_inverse_keeps_its_gradient_on_tiny_and_huge_lattices(dtype, powers, tolerance, device):
    """In other units: z is of degree 1 in the half-periods, and w of degree -2."""

    def gradients(power):
        scale = math.ldexp(1.0, power)
        w = torch.tensor([3.0 + 2.0j, 12.0 - 1.0j], dtype=torch.complex128) / scale / scale
        omegas = torch.tensor([1.1 + 0.1j, 0.2 + 1.3j], dtype=torch.complex128) * scale
        leaves = [x.to(dtype).to(device).requires_grad_() for x in (w, *omegas)]
        z = BACKEND.inverse_wp(leaves[0], Lattice(*leaves[1:]))
        found = [x.cpu().to(torch.complex128) for x in torch.autograd.grad(z.real.sum(), leaves)]
        return [found[0] / scale / scale / scale, *found[1:]]

    expected = gradients(0)
    for power in powers:
        for got, want in zip(gradients(power), expected, strict=True):
            assert (got - want).abs().max() <= tolerance * want.abs().max(), power


@every_device
@every_lattice
def test_the_second_derivative_is_6_wp_squared_minus_half_g2(lattice, device):
    """DLMF 23.3.12, from differentiating twice."""
    x = leaves("wp", lattice, device)
    [slope] = derivatives(BACKEND.wp(x[0], Lattice(x[1], x[2])), x[:1], again=True)
    [got] = derivatives(slope, x[:1])
    numbers = Lattice(*LATTICES[lattice])
    g2 = complex(TRUTH.invariants(numbers)[0])
    for n, (region, z) in enumerate(points(lattice).items()):
        wp = complex(TRUTH.wp(z, numbers))
        assert_accurate(got[n], 6 * wp**2 - g2 / 2, 6 * abs(wp) ** 2 + abs(g2) / 2, region)


@every_device
@every_lattice
def test_the_third_derivative_is_12_wp_wp_prime(lattice, device):
    """The derivative of DLMF 23.3.12, from differentiating three times."""
    [z] = leaves("wp", lattice, device)[:1]
    numbers = Lattice(*LATTICES[lattice])
    derivative = BACKEND.wp(z, numbers)
    for _ in range(3):
        [derivative] = derivatives(derivative, [z], again=True)
    shortest = abs(reduced_periods(lattice)[0])
    for n, (region, point) in enumerate(points(lattice).items()):
        wp, wp_prime = (complex(value) for value in TRUTH.wp_and_prime(point, numbers))
        want = 12 * wp * wp_prime
        # Next to a half-period wp' vanishes; the natural size of wp''' is then p^-5.
        assert_accurate(derivative[n], want, abs(want) + shortest**-5, region)


@every_device
@some_lattices
@pytest.mark.parametrize("region", ["generic", "generic, upper half", "several periods away"])
@every_holomorphic
def test_mixed_second_derivatives_are_the_differences_of_fifty_digits(
    function, region, lattice, device
):
    numbers = [points(lattice)[region], *map(complex, LATTICES[lattice])]
    x = [leaf(value, device) for value in numbers]
    value = FUNCTIONS[function].of(BACKEND, x[0], Lattice(x[1], x[2]))
    slopes = derivatives(value, x, again=True)
    f, first = true_derivatives(function, lattice)[region]
    for i in range(3):
        second = derivatives(slopes[i], x, again=True)
        for j in range(3):
            want = true_second_derivative(function, lattice, region, min(i, j), max(i, j))
            scale = (
                abs(want)
                + abs(first[i] / numbers[j])
                + abs(first[j] / numbers[i])
                + abs(f / numbers[i] / numbers[j])
            )
            assert_accurate(second[j], want, scale, (PARAMETERS[i], PARAMETERS[j]))


@every_device
@every_lattice
def test_the_laplacian_of_green_is_two_pi_over_the_area(lattice, device):
    """The delta at lattice points aside, G solves Poisson's equation (Lin and Wang 2010)."""
    z = list(points(lattice).values())
    x, y = ([getattr(value, part) for value in z] for part in ("real", "imag"))
    parts = [leaf(value, device, torch.float64) for value in (x, y)]
    value = BACKEND.green(torch.complex(*parts), Lattice(*LATTICES[lattice]))
    slopes = torch.autograd.grad(value.sum(), parts, create_graph=True)
    second = [
        torch.autograd.grad(slope.sum(), part, retain_graph=True)[0]
        for slope, part in zip(slopes, parts, strict=True)
    ]
    a, b = reduced_periods(lattice)
    want = 2 * math.pi / (a.conjugate() * b).imag
    for n, region in enumerate(points(lattice)):
        # At the pole the two terms are of the size 1/|z|^2 and cancel.
        scale = want + abs(second[0][n].item()) + abs(second[1][n].item())
        assert_accurate(second[0][n] + second[1][n], want, scale, region)


# --- gradcheck -----------------------------------------------------------------------------
# It compares with first-order differences of the backend itself, at torch's own tolerances.
# The digits are judged above; this adds forward mode, batched gradients and real parameters.


def check_inputs(device: str) -> tuple[Any, ...]:
    z = leaf([0.45 + 0.3j, -0.6 + 0.85j], device)
    return z, leaf(1.1 - 0.2j, device), leaf(0.3 + 1.4j, device)


@forward_mode
@every_device
@pytest.mark.parametrize("function", ["wp_and_prime", "zeta", "sigma", "green"])
def test_gradcheck_of_functions_of_z_and_the_lattice(function, device):
    def f(z, omega1, omega3):
        return getattr(BACKEND, function)(z, Lattice(omega1, omega3))

    assert torch.autograd.gradcheck(
        f, check_inputs(device), check_forward_ad=True, check_batched_grad=True
    )


@every_device
def test_gradcheck_of_the_truncated_sum_and_of_addition(device):
    z, omega1, omega3 = check_inputs(device)
    assert torch.autograd.gradcheck(
        lambda z, w1, w3: BACKEND.lattice_sum(z, Lattice(w1, w3), 2, 2), (z, omega1, omega3)
    )
    values = [leaf(value, device) for value in (0.3 + 1j, -1.2 + 0.4j, 2.1 - 0.3j, 0.7j)]
    assert torch.autograd.gradcheck(
        lambda p1, dp1, p2, dp2, w1, w3: BACKEND.add(p1, dp1, p2, dp2, Lattice(w1, w3)),
        (*values, omega1, omega3),
    )


@every_device
def test_gradgradcheck_of_wp_and_wp_prime(device):
    def f(z, omega1, omega3):
        return BACKEND.wp_and_prime(z, Lattice(omega1, omega3))

    assert torch.autograd.gradgradcheck(f, check_inputs(device))


# --- torch.func ----------------------------------------------------------------------------


def some_points(device: str) -> torch.Tensor:
    return torch.tensor([0.45 + 0.3j, -0.6 + 0.85j, 2.5 - 3.1j], dtype=torch.complex128).to(device)


def some_half_periods(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    names = ["rectangular", "unreduced", "thin", "rotated"]
    omega1, omega3 = (
        torch.tensor(omegas, dtype=torch.complex128, device=device)
        for omegas in zip(*(LATTICES[name] for name in names), strict=True)
    )
    return omega1, omega3


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal to the promise for derivatives, relative to the largest element of a row."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    largest = want.abs().amax(-1, keepdim=True).expand_as(want)
    for g, w, scale in zip(got.flatten(), want.flatten(), largest.flatten(), strict=True):
        assert_accurate(g, w.item(), scale.item(), (g, w))


@every_device
@every_function_of_points
def test_vmap_over_points_is_the_plain_call(function, device):
    z, lattice = some_points(device), Lattice(*LATTICES["oblique"])
    f = FUNCTIONS[function].of
    assert torch.equal(torch.func.vmap(lambda z: f(BACKEND, z, lattice))(z), f(BACKEND, z, lattice))


@every_device
@every_function_of_points
def test_vmap_over_lattices_is_a_loop_over_lattices(function, device):
    z, (omega1, omega3) = some_points(device), some_half_periods(device)

    def f(omega1, omega3):
        return FUNCTIONS[function].of(BACKEND, z, Lattice(omega1, omega3))

    want = [f(*pair) for pair in zip(omega1, omega3, strict=True)]
    assert_equal_values(torch.func.vmap(f)(omega1, omega3), torch.stack(want), function)


def assert_equal_values(got: Any, want: Any, function: str) -> None:
    """Bit for bit; the inverse takes hypot, which torch computes otherwise for single elements."""
    assert got.shape == want.shape
    allowed = 64 * torch.finfo(got.real.dtype).eps if function == "inverse_wp" else 0.0
    assert (abs(got - want) <= allowed * abs(want)).all()


@every_device
@pytest.mark.parametrize("function", FUNCTIONS)
def test_batched_lattices_broadcast_against_points(function, device):
    z, (omega1, omega3) = some_points(device), some_half_periods(device)
    f = FUNCTIONS[function].of
    got = f(BACKEND, z, Lattice(omega1[:, None], omega3[:, None]))
    want = [f(BACKEND, z, Lattice(*pair)) for pair in zip(omega1, omega3, strict=True)]
    stacked = torch.stack(want)
    assert_equal_values(got, stacked if function in OF_POINTS else stacked[:, None], function)


@forward_mode
@every_device
@some_lattices
@every_holomorphic
def test_jvp_pushes_a_direction_through_all_three_parameters(function, lattice, device):
    region = "generic"
    x = [points(lattice)[region], *map(complex, LATTICES[lattice])]
    tangents = [0.3 - 0.4j, 0.2 + 0.1j, -0.5j]
    primals, directions = (
        tuple(torch.tensor(v, dtype=torch.complex128, device=device) for v in values)
        for values in (x, tangents)
    )
    got = torch.func.jvp(
        lambda z, w1, w3: FUNCTIONS[function].of(BACKEND, z, Lattice(w1, w3)), primals, directions
    )[1]
    f, slopes = true_derivatives(function, lattice)[region]
    terms = [slope * tangent for slope, tangent in zip(slopes, tangents, strict=True)]
    scale = sum(abs(t) + abs(f * v / p) for t, v, p in zip(terms, tangents, x, strict=True))
    assert_accurate(got, sum(terms), scale, (lattice, function))


@forward_mode
@every_device
def test_jacrev_jacfwd_and_vmap_of_grad_agree_with_autograd(device):
    z = some_points(device)
    parameters = torch.tensor([1.1, 0.2, 1.4], dtype=torch.float64, device=device)

    def f(parameters, z):
        s, x, t = parameters
        return BACKEND.wp(z, Lattice(s, torch.complex(x, t))).real

    want = torch.autograd.functional.jacobian(lambda p: f(p, z), parameters)
    assert_same(torch.func.jacrev(lambda p: f(p, z))(parameters), want)
    assert_same(torch.func.jacfwd(lambda p: f(p, z))(parameters), want)
    per_point = torch.func.vmap(torch.func.grad(f), in_dims=(None, 0))
    assert_same(per_point(parameters, z), want)


@forward_mode
@every_device
def test_the_hessian_is_reverse_over_reverse(device):
    z = some_points(device)[0]
    parameters = torch.tensor([1.1, 0.2, 1.4], dtype=torch.float64, device=device)

    def f(parameters):
        s, x, t = parameters
        return BACKEND.wp_prime(z, Lattice(s, torch.complex(x, t))).imag

    want = torch.func.jacrev(torch.func.jacrev(f))(parameters)
    assert_same(torch.func.hessian(f)(parameters), want)  # which is forward over reverse


# --- One bad point among good ones ---------------------------------------------------------------

BAD_POINTS = {
    "NaN": complex("nan+nanj"),
    "half NaN": complex("nan+0.1j"),
    "infinite": complex("inf"),
    "too far away": 5.0 * 2.0**30 + 3j,
    "tiny": 1e-80,
    "tiny in single precision": 1e-11,
    "lattice point": 2.2 + 2.4j,
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # of torch.func
@pytest.mark.parametrize("bad", BAD_POINTS)
@pytest.mark.parametrize("function", ["wp_and_prime", "zeta", "sigma", "green", "inverse_wp"])
@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64])
def test_a_bad_point_leaves_the_gradient_of_the_lattice_alone(dtype, function, bad):
    """Differentiated once or twice, in reverse and in forward mode, the others count as before."""
    good = [0.3 + 0.2j, -0.4 + 0.7j]
    omega = torch.tensor([1.0, 0.1 + 1.2j], dtype=dtype)
    z = torch.tensor([*good, BAD_POINTS[bad]], dtype=dtype)

    def value(omega, z):
        found = getattr(BACKEND, function)(z, Lattice(omega[0], omega[1]))
        values = found if isinstance(found, tuple) else (found,)
        return sum((v[0] + v[1]).real for v in values)

    def all_derivatives(z):
        w, points = omega.clone().requires_grad_(), z.clone().requires_grad_()
        plain = torch.autograd.grad(value(w, points), (w, points))
        first = torch.autograd.grad(value(w, points), (w, points), create_graph=True)
        second = torch.autograd.grad(first[0].abs().sum() + first[1][:2].abs().sum(), (w, points))
        pulled = torch.func.grad(value, argnums=(0, 1))(omega, z)
        ones = (torch.ones_like(omega), torch.ones_like(z))
        pushed = torch.func.jvp(value, (omega, z), ones)[1]
        of_points = [g[:2] for g in (plain[1], first[1], second[1], pulled[1])]
        return [plain[0], first[0], second[0], pulled[0], pushed, *of_points]

    for got, want in zip(all_derivatives(z), all_derivatives(z[:2]), strict=True):
        assert torch.isfinite(want).all()
        assert (got - want).abs().max() <= 64 * torch.finfo(dtype).eps * want.abs().max()
