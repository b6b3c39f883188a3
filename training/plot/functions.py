"""A function on the plane around a period cell: as colours, as a surface, and by its marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from training.figure_style import (
    BLACK,
    BLUE,
    CYCLIC_MAP,
    GREEN,
    ORANGE,
    figure_settings,
    new_figure,
)
from wefpe_core import Lattice, get_backend
from wefpe_core.errors import InputError, InputTypeError

Complex = npt.NDArray[np.complex128]
Function = Callable[[Complex], Any]

SIDE = 360  # points along each axis
# The functions of a backend that are known by name, and how they are written.
NAMES = {"wp": "℘", "wp_prime": "℘′", "zeta": "ζ", "sigma": "σ", "green": "G"}
_WITH_POLES = ("wp", "wp_prime", "zeta", "green")  # at the lattice points
_MARGIN = 0.25  # of a period, shown around the cell
_PATCHES_SHOWN = 800
_MOST_CELLS = 4000
_THINNEST = 1e-3  # the smallest ratio of the two periods that is drawn
_TOO_THIN = "the lattice is too thin to be drawn: its cell would be a line"
_SIZES = (1e-50, 1e50)  # limits of the periods, beyond which wp' may overflow


class Portrait(NamedTuple):
    """A function on a rectangle of the plane, and the points marked there."""

    lattice: Lattice
    name: str  # as it is written in titles
    z: Complex  # (side, side)
    values: Complex
    poles: Complex
    zeros: Complex
    patches: Complex  # empty if there is no encoding


# --- Figures ---------------------------------------------------------------------------------


def domain_colouring(
    function: str | Function, lattice: Lattice, *, side: int = SIDE, title: str = ""
) -> Any:
    """A function on the plane: its argument as colour, lines of equal modulus a factor of 2 apart.

    Parameters
    ----------
    function
        ``"wp"``, ``"wp_prime"``, ``"zeta"``, ``"sigma"`` or ``"green"``, whose poles and zeros are
        marked; or any function of an array of complex numbers.
    lattice
        Its period cell is outlined and decides which part of the plane is shown.
    side
        Points along each axis.
    title
        Written above; the name of the function if nothing is given.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        The function is unknown or gives values of another shape, or the lattice is too thin.

    Examples
    --------
    >>> domain_colouring("wp", Lattice(1.0, 0.3 + 0.9j)).savefig("wp.png")  # doctest: +SKIP
    >>> domain_colouring(lambda z: z**3 - 1, Lattice(1, 1j)).savefig("cube.png")  # doctest: +SKIP
    """
    shown = portrait(function, lattice, side=side)
    with figure_settings():
        figure = new_figure(4.4, 3.6)
        axis = figure.add_subplot()
        draw_portrait(figure, axis, shown, has_legend=bool(shown.poles.size or shown.zeros.size))
        if title:
            axis.set_title(title)
    return figure


def surface(
    function: str | Function, lattice: Lattice, *, side: int = SIDE, title: str = ""
) -> Any:
    """A function as a surface: log10 of its modulus as height, cut at both ends.

    The colour is the argument. The parameters are those of `domain_colouring`, and so is the
    result.

    >>> surface("wp_prime", Lattice(1.0, 0.3 + 0.9j)).savefig("surface.png")  # doctest: +SKIP
    """
    shown = portrait(function, lattice, side=side)
    with figure_settings():
        figure = new_figure(4.4, 3.8)
        axis = figure.add_subplot(projection="3d")
        draw_surface(axis, shown)
        if title:
            axis.set_title(title)
    return figure


def period_cell(lattice: Lattice) -> Any:
    """The period cell with the lattice points, the half-periods and the zeros of wp and wp'.

    The cell of the reduced basis is dashed. The result is a matplotlib figure.

    >>> period_cell(Lattice(1.0, 2.3 + 0.9j)).savefig("cell.png")  # doctest: +SKIP
    """
    shown = {name: portrait(name, lattice, side=2) for name in ("wp", "wp_prime")}
    reduced, _ = lattice.reduced()
    with figure_settings():
        figure = new_figure(4.2, 3.6)
        axis = figure.add_subplot()
        cell = cell_of(reduced)
        axis.plot(cell.real, cell.imag, "--", color="0.6", lw=1.0, label="reduced cell")
        cell = cell_of(lattice)
        axis.fill(cell.real, cell.imag, color=BLUE, alpha=0.08, lw=0)
        axis.plot(cell.real, cell.imag, color=BLACK, lw=1.2, label="period cell")
        for points, style, label in (
            (shown["wp"].poles, {"marker": "x", "color": BLACK}, "pole"),
            (shown["wp"].zeros, {"marker": "o", "color": ORANGE}, "zero of ℘"),
            (shown["wp_prime"].zeros, {"marker": "s", "color": GREEN}, "zero of ℘′"),
        ):
            axis.plot(points.real, points.imag, ls="", ms=6, mfc="none", label=label, **style)
        omega1, omega3 = complex(lattice.omega1), complex(lattice.omega3)
        for omega, label in ((omega1, "ω₁"), (omega3, "ω₃"), (omega1 + omega3, "ω₁+ω₃")):
            where = {"xytext": (6, -11), "textcoords": "offset points"}
            axis.annotate(label, (omega.real, omega.imag), **where)
        z = shown["wp"].z
        axis.set(xlabel="Re z", ylabel="Im z", aspect="equal")
        axis.set(xlim=(z.real.min(), z.real.max()), ylim=(z.imag.min(), z.imag.max()))
        figure.legend(loc="outside right upper")
    return figure


# --- Values and marks --------------------------------------------------------------------------


def portrait(
    function: str | Function, lattice: Lattice, patches: Complex | None = None, side: int = SIDE
) -> Portrait:
    """Values of a function around the period cell that begins at 0, and its poles and zeros."""
    if not isinstance(lattice, Lattice):
        raise InputTypeError(f"expected a Lattice, got {lattice!r}")
    first, second = 2 * complex(lattice.omega1), 2 * complex(lattice.omega3)
    if not all(_SIZES[0] < abs(period) < _SIZES[1] for period in (first, second)):
        raise InputError(f"periods of {abs(first):.3g} and {abs(second):.3g} cannot be drawn")
    if min(abs(first), abs(second)) < _THINNEST * max(abs(first), abs(second)):
        raise InputError(_TOO_THIN)
    corners = np.array([0, first, second, first + second])
    wide, high = _MARGIN * np.ptp(corners.real), _MARGIN * np.ptp(corners.imag)
    x = np.linspace(corners.real.min() - wide, corners.real.max() + wide, side)
    y = np.linspace(corners.imag.min() - high, corners.imag.max() + high, side)
    z = x[None, :] + 1j * y[:, None]

    def in_view(points: Complex) -> Complex:
        return _translates(points, first, second, (x[0], x[-1], y[0], y[-1]))

    lattice_points, nowhere = in_view(np.array([0j])), np.empty(0, complex)
    poles, zeros, name = nowhere, nowhere, getattr(function, "__name__", "f")
    if isinstance(function, str):
        if function not in NAMES:
            raise InputError(f"there is no function {function!r}; there are {', '.join(NAMES)}")
        name = NAMES[function]
        poles = lattice_points if function in _WITH_POLES else nowhere
        zeros = lattice_points if function == "sigma" else in_view(_zeros(function, lattice))
    return Portrait(
        lattice,
        name,
        z,
        _values(function, z, lattice),
        poles,
        zeros,
        patches=nowhere if patches is None else patches,
    )


def _values(function: str | Function, z: Complex, lattice: Lattice) -> Complex:
    if isinstance(function, str):
        values = getattr(get_backend("numpy"), function)(z, lattice)
    else:
        values = function(z)
    array = np.asarray(values)
    if array.shape != z.shape or array.dtype.kind not in "fciu":
        raise InputError(
            f"the function must give a number for each of {z.shape} points, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array.astype(complex)


def _zeros(function: str, lattice: Lattice) -> Complex:
    """The zeros of wp or wp' in one cell; none for functions whose zeros are not marked."""
    if function == "wp":
        root = complex(get_backend("numpy").inverse_wp(0.0, lattice))
        return np.array([root, -root])
    if function == "wp_prime":
        omega1, omega3 = complex(lattice.omega1), complex(lattice.omega3)
        return np.array([omega1, omega3, omega1 + omega3])
    return np.empty(0, complex)


def _translates(
    points: Complex, first: complex, second: complex, inside: tuple[float, float, float, float]
) -> Complex:
    """All points equal to these modulo the lattice within a rectangle."""
    left, right, low, high = inside
    corners = np.array([left + 1j * low, right + 1j * low, left + 1j * high, right + 1j * high])
    # The corners in the basis of the two periods say how many of each period are needed.
    basis = np.array([[first.real, second.real], [first.imag, second.imag]])
    reach = np.linalg.solve(basis, np.array([corners.real, corners.imag]))
    m, n = (np.arange(np.floor(each.min()) - 1, np.ceil(each.max()) + 2) for each in reach)
    if m.size * n.size > _MOST_CELLS:
        raise InputError(_TOO_THIN)
    shifts = (m[:, None] * first + n[None, :] * second).ravel()
    copies = (points[:, None] + shifts[None, :]).ravel()
    is_inside = (left <= copies.real) & (copies.real <= right)
    is_inside &= (low <= copies.imag) & (copies.imag <= high)
    # A double zero is found twice, and two zeros that are very close share one mark.
    shown: list[complex] = []
    for point in copies[is_inside]:
        if all(abs(point - other) > 1e-3 * abs(first) for other in shown):
            shown.append(complex(point))
    return np.array(shown, complex)


def cell_of(lattice: Lattice) -> Complex:
    """The corners of the period cell that begins at 0, the first of them again at the end."""
    first, second = 2 * complex(lattice.omega1), 2 * complex(lattice.omega3)
    return np.array([0, first, first + second, second, 0])


# --- Parts of figures --------------------------------------------------------------------------


def draw_portrait(figure: Any, axis: Any, shown: Portrait, *, has_legend: bool) -> None:
    """The argument as colour, with lines of equal modulus, marks and the cell; and its bar."""
    x, y = shown.z.real, shown.z.imag
    image = axis.pcolormesh(
        x, y, np.angle(shown.values), cmap=CYCLIC_MAP, vmin=-np.pi, vmax=np.pi, rasterized=True
    )
    height = _height(shown.values) / np.log10(2)
    levels = np.arange(np.ceil(height.min()), np.floor(height.max()) + 1)
    if levels.size:
        axis.contour(
            x, y, height, levels=levels, colors="white", linestyles="-", linewidths=0.35, alpha=0.7
        )
    cell = cell_of(shown.lattice)
    axis.plot(cell.real, cell.imag, color="white", lw=2.2)
    axis.plot(cell.real, cell.imag, color=BLACK, lw=1.1)
    _mark(axis, shown.poles, "x", "pole")
    _mark(axis, shown.zeros, "o", "zero")
    if 0 < len(shown.patches) <= _PATCHES_SHOWN:
        axis.plot(
            shown.patches.real, shown.patches.imag, ".", color=ORANGE, ms=2.2, label="patch", ls=""
        )
    elif len(shown.patches):
        axis.plot(shown.patches.real, shown.patches.imag, ",", color="0.7", ls="")
    axis.set(title=f"phase of {shown.name}", xlabel="Re z", ylabel="Im z", aspect="equal")
    axis.set(xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    if has_legend:
        axis.legend(loc="lower right", frameon=True, framealpha=0.85, ncols=3, columnspacing=0.8)
    bar = figure.colorbar(image, ax=axis, shrink=0.8, label=f"arg {shown.name}")
    bar.set_ticks([-np.pi, 0, np.pi], labels=["−π", "0", "π"])


def dots_are_shown(patches: Complex) -> bool:
    """Whether so many patches are drawn as dots, and not as a grey ground."""
    return len(patches) <= _PATCHES_SHOWN


def draw_surface(axis: Any, shown: Portrait) -> None:
    """log10 of the modulus as height and the argument as colour, on an axis of three dimensions."""
    from matplotlib import colormaps

    step = max(len(shown.values) // 120, 1)  # more facets would be smaller than a dot in print
    z, values = shown.z[::step, ::step], shown.values[::step, ::step]
    angle = (np.nan_to_num(np.angle(values)) + np.pi) / (2 * np.pi)
    height = _height(values)
    axis.plot_surface(
        z.real,
        z.imag,
        height,
        facecolors=colormaps[CYCLIC_MAP](angle),
        rstride=1,
        cstride=1,
        linewidth=0,
        antialiased=False,
        shade=False,
        rasterized=True,
    )
    cell = cell_of(shown.lattice)
    top = float(height.max())
    axis.plot(cell.real, cell.imag, top, color=BLACK, lw=1.0, zorder=10)
    axis.plot(
        shown.poles.real, shown.poles.imag, top, "x", color=BLACK, ms=5, mew=1.4, zorder=11, ls=""
    )
    axis.set(title=f"log10 |{shown.name}|", xlabel="Re z", ylabel="Im z")
    axis.tick_params(pad=-2)
    axis.locator_params(nbins=4)
    axis.view_init(elev=48, azim=-62)
    axis.set_box_aspect((np.ptp(z.real), np.ptp(z.imag), 0.45 * np.ptp(z.real)), zoom=0.92)


def _height(values: Complex) -> npt.NDArray[np.float64]:
    """log10 of the modulus, cut so that the middle 96 % of the points remain as they are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.log10(np.abs(values))
        height = np.where(np.isnan(height), np.inf, height)
        low, high = np.quantile(height, [0.02, 0.98])
    if not np.isfinite([low, high]).all():
        raise InputError("the function has too few finite values, or too many zeros, to be drawn")
    return np.clip(height, low, high)


def _mark(axis: Any, points: Complex, marker: str, label: str) -> None:
    """A mark that can be seen on dark and on light ground."""
    if not points.size:
        return
    style: dict[str, Any] = {"marker": marker, "linestyle": "", "markerfacecolor": "none"}
    axis.plot(points.real, points.imag, color="white", ms=7, mew=2.6, **style)
    axis.plot(points.real, points.imag, color=BLACK, ms=7, mew=1.2, label=label, **style)
