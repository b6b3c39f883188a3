r"""A lattice that is learned and cannot collapse.

omega1 is positive and :math:`\omega_3 = \omega_1(x + iy)`. The paper's
:math:`\omega_3 = i\,{\rm softplus}(\alpha)` gets a floor and a ceiling, in units of omega1:

.. math:: y = y_0 + {\rm softplus}(\alpha) - {\rm softplus}(\alpha - (y_1 - y_0)) \in (y_0, y_1),

which is smooth and increasing, and is the paper's for y0 = 0 and infinite y1. Below an aspect of
about 0.1 every feature is saturated and no gradient comes back; above 10 features no longer depend
on the row. A general lattice also learns its skew, :math:`x = x_0 + \tanh(s)`, and its size,
:math:`\omega_1 = \omega_1^0\, 4^{\tanh(t)}`. So the half-periods stay within fixed bounds and
their cell never becomes flat, whatever the parameters are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.encoding import scalar, working_dtype
from training.encodings.weierstrass_options import LearnedPart, check_aspect
from wefpe_core import Lattice

_LARGEST_SCALE = 4.0  # of omega1, up and down


class HalfPeriods(NamedTuple):
    """omega1 > 0 and omega3 as four real numbers in one tensor, with gradients."""

    parts: Tensor  # Re omega1, Im omega1 = 0, Re omega3, Im omega3

    @classmethod
    def of(cls, omega1: Tensor, omega3_re: Tensor, omega3_im: Tensor) -> HalfPeriods:
        return cls(torch.stack((omega1, torch.zeros_like(omega1), omega3_re, omega3_im)))

    @property
    def omega1(self) -> Tensor:
        return self.parts[0]

    @property
    def omega3_re(self) -> Tensor:
        return self.parts[2]

    @property
    def omega3_im(self) -> Tensor:
        return self.parts[3]


class LatticeParameter(nn.Module):
    """Half-periods that start at a given lattice and follow learned parameters.

    Parameters
    ----------
    start
        The lattice at the beginning, with omega1 real and positive. If nothing is learned, it
        stays.
    learned
        ``"omega3"``: the aspect Im tau, as in the paper. ``"general"``: also Re tau and omega1.
    tau_min, tau_max
        The bounds of Im tau.
    """

    def __init__(
        self, start: Lattice, learned: LearnedPart, tau_min: float, tau_max: float
    ) -> None:
        super().__init__()
        self.start = start
        self.learned = learned
        self.bounds = (tau_min, tau_max)
        self.alpha_learn = self.skew = self.log_scale = None
        if learned == "nothing":
            return
        check_aspect(start, tau_min, tau_max)
        above, width = start.tau.imag - tau_min, tau_max - tau_min
        # The inverse of the formula in the docstring of this module.
        alpha = math.log(math.expm1(above)) - math.log(-math.expm1(above - width))
        self.alpha_learn = nn.Parameter(torch.tensor(alpha))
        if learned == "general":
            self.skew = nn.Parameter(torch.tensor(0.0))
            self.log_scale = nn.Parameter(torch.tensor(0.0))

    def half_periods(self, device: torch.device) -> HalfPeriods:
        """The present half-periods in the working dtype of the device."""
        dtype = working_dtype(device)
        omega1, tau = self.start.omega1.real, self.start.tau
        if self.alpha_learn is None:
            numbers = (omega1, 0.0, omega1 * tau.real, omega1 * tau.imag)
            return HalfPeriods(torch.stack([scalar(x, dtype, device) for x in numbers]))
        y = self.aspect(device)
        if self.skew is None or self.log_scale is None:
            fixed, skew = (scalar(x, dtype, device) for x in (omega1, omega1 * tau.real))
            return HalfPeriods.of(fixed, skew, omega1 * y)
        skew, scale = torch.tanh(torch.stack((self.skew, self.log_scale)).to(dtype)).unbind()
        learned = omega1 * torch.exp(math.log(_LARGEST_SCALE) * scale)
        one, x = torch.ones_like(y), tau.real + skew
        return HalfPeriods(learned * HalfPeriods.of(one, x, y).parts)

    def aspect(self, device: torch.device) -> Tensor:
        """The present Im tau in the working dtype of the device."""
        dtype = working_dtype(device)
        if self.alpha_learn is None:
            return scalar(self.start.tau.imag, dtype, device)
        low, high = self.bounds
        alpha = self.alpha_learn.to(dtype)
        return low + (F.softplus(alpha) - F.softplus(alpha - (high - low)))

    def learned_numbers(self) -> dict[str, Tensor]:
        """omega3 over i, and of a general lattice also what else moves; nothing if it is fixed."""
        if self.learned == "nothing":
            return {}
        omegas = self.half_periods(torch.device("cpu"))
        found = {"ω3/i": omegas.omega3_im}
        if self.learned == "general":
            found |= {"ω1": omegas.omega1, "Re ω3": omegas.omega3_re}
        return found

    def lattice(self) -> Lattice:
        """The present lattice, as numbers."""
        if self.alpha_learn is None:
            return self.start
        with torch.no_grad():
            omega1, _, re, im = self.half_periods(self.alpha_learn.device).parts.tolist()
        return Lattice(omega1, complex(re, im))

    def extra_repr(self) -> str:
        return f"start={self.start!r}, learned={self.learned!r}, bounds={self.bounds}"


def inverse_softplus(y: float) -> float:
    """The x with log(1 + e^x) = y > 0."""
    return y + math.log(-math.expm1(-y))


# --- The lattices of any encoding: one, several if it is combined, or none ---------------------


def modules_with_lattice(encoding: nn.Module) -> dict[str, Any]:
    """The outermost modules with a method ``lattice``, by their names within the encoding.

    A module inside one of them may have the method too; its lattice is the same.
    """
    found: dict[str, Any] = {}
    for name, module in encoding.named_modules():
        is_inside = any(not outer or name.startswith(f"{outer}.") for outer in found)
        if callable(getattr(module, "lattice", None)) and not is_inside:
            found[name] = module
    return found


def learns_lattice(module: Any) -> bool:
    """Whether the lattice of a module changes in training."""
    parameters = [m for m in module.modules() if isinstance(m, LatticeParameter)]
    if parameters:
        return any(parameter.learned != "nothing" for parameter in parameters)
    # The printed text learns omega3 itself. In the scripts the parameter of that name stretches
    # z and leaves the lattice alone.
    is_learnable = getattr(module, "alpha_learn", None) is not None
    return is_learnable and module.options.fidelity == "paper"


def key_prefixes(modules: dict[str, Any]) -> dict[str, str]:
    """What stands before the keys of each lattice in logs: nothing for the first."""
    return {name: f"{name}." if number else "" for number, name in enumerate(modules)}
