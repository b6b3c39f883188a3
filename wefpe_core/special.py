"""The functions as functions: numbers or arrays in, half-periods as arguments, no objects.

Each is the method of `AbstractBackend` with the same name, which says what is returned at poles,
which branch is taken and how accurate it is. In the place of a lattice it takes the HALF-periods
omega1 and omega3. The backend is the one of the library that the arguments come from
(`wefpe_core.dispatch`). Names and arguments are those of SciPy and mpmath where they have the
function; elliptic integrals and Jacobi's functions take the parameter m = k^2, not the modulus k.

>>> from wefpe_core import special
>>> p, dp = special.wp_and_prime(0.3 + 0.2j, 1.0, 1.2j)
>>> sn, cn, dn, am = special.ellipj(0.7, 0.5)
>>> bool(abs(sn**2 + cn**2 - 1) < 1e-15)
True
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from wefpe_core.backend import AbstractBackend
from wefpe_core.dispatch import backend_for
from wefpe_core.lattice import Lattice


def _function(name: str) -> Callable[..., Any]:
    """The method `name` of a backend as a function, with half-periods instead of a lattice."""
    method = getattr(AbstractBackend, name)
    _, *parameters = inspect.signature(method).parameters.values()  # without self
    names = [parameter.name for parameter in parameters]
    place = names.index("lattice") if "lattice" in names else None
    if place is not None:
        halves = [parameters[place].replace(name=half) for half in ("omega1", "omega3")]
        parameters[place : place + 1] = [half.replace(annotation=Any) for half in halves]
    signature = inspect.Signature(parameters)

    def function(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options)
        values = list(given.args)
        backend = backend_for(*values, *given.kwargs.values())
        if place is not None:
            values[place : place + 2] = [Lattice(*values[place : place + 2])]
        return getattr(backend, name)(*values, **given.kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


# Weierstrass functions of a lattice
wp = _function("wp")
wp_prime = _function("wp_prime")
wp_and_prime = _function("wp_and_prime")
wp_derivative = _function("wp_derivative")
zeta = _function("zeta")
sigma = _function("sigma")
log_sigma = _function("log_sigma")
sigma_k = _function("sigma_k")
modified_zeta = _function("modified_zeta")
modified_sigma = _function("modified_sigma")
green = _function("green")
heat = _function("heat")
log_heat = _function("log_heat")
inverse_wp = _function("inverse_wp")
inverse_wp_real = _function("inverse_wp_real")
abel_jacobi = _function("abel_jacobi")
lattice_sum = _function("lattice_sum")
add = _function("add")
# What the lattice alone determines
invariants = _function("invariants")
roots = _function("roots")
quasi_periods = _function("quasi_periods")
laurent_coefficients = _function("laurent_coefficients")
eisenstein_series = _function("eisenstein_series")
# Theta functions and Jacobi's functions
jtheta = _function("jtheta")
log_jtheta = _function("log_jtheta")
ellipj = _function("ellipj")
jacobi = _function("jacobi")
jacobi_am = _function("jacobi_am")
# Modular functions
klein_j = _function("klein_j")
inverse_klein_j = _function("inverse_klein_j")
dedekind_eta = _function("dedekind_eta")
modular_lambda = _function("modular_lambda")
eisenstein = _function("eisenstein")
# Elliptic integrals
ellipk = _function("ellipk")
ellipe = _function("ellipe")
ellipkinc = _function("ellipkinc")
ellipeinc = _function("ellipeinc")
ellippi = _function("ellippi")
ellippiinc = _function("ellippiinc")
elliprf = _function("elliprf")
elliprd = _function("elliprd")
elliprj = _function("elliprj")
elliprc = _function("elliprc")
