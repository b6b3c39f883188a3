"""wp and wp' over the plane, with poles and period cell."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from training.figure_style import BLACK, CYCLIC_MAP, ORANGE, figure_settings, new_figure
from training.study.analysis import Analysis, AnalysisCommand, Options, ReadBy
from training.study.encoding_choice import GRID, EncodingChoice
from wefpe_core import Lattice, get_backend
from wefpe_core.errors import InputError

Complex = npt.NDArray[np.complex128]

_DEFAULT = EncodingChoice("weierstrass")

SIDE = 360  # points along each axis
_MARGIN = 0.25  # of a period, shown around the cell
_PATCHES_SHOWN = 800
_MOST_CELLS = 4000
_THINNEST = 1e-3  # the smallest ratio of the two periods that is drawn
_TOO_THIN = "the lattice is too thin to be drawn: its cell would be a line"
_SIZES = (1e-50, 1e50)  # limits of the periods, beyond which wp' may overflow
_NAMES = ("℘", "℘′")


class Landscape(NamedTuple):
    """The two functions on a rectangle of the plane, and the points marked there."""

    lattice: Lattice
    z: Complex  # (SIDE, SIDE)
    values: tuple[Complex, Complex]
    poles: Complex
    zeros: tuple[Complex, Complex]
    patches: Complex  # empty if there is no encoding


def landscape(lattice: Lattice, patches: Complex | None = None, side: int = SIDE) -> Landscape:
    """Values of wp and wp' around the period cell that begins at 0."""
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
    backend = get_backend("numpy")
    values = backend.wp_and_prime(z, lattice)
    root = complex(backend.inverse_wp(0.0, lattice))
    halves = np.array([first / 2, second / 2, (first + second) / 2])
    inside = (x[0], x[-1], y[0], y[-1])
    return Landscape(
        lattice,
        z,
        values,
        poles=_translates(np.array([0j]), first, second, inside),
        zeros=(
            _translates(np.array([root, -root]), first, second, inside),
            _translates(halves, first, second, inside),
        ),
        patches=np.empty(0, complex) if patches is None else patches,
    )


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


def read_lattice(text: str) -> Lattice:
    """A lattice from its half-periods, as in ``1,0.3+0.9j``."""
    try:
        omega1, omega3 = (
            complex(part.replace(" ", "").replace("i", "j")) for part in text.split(",")
        )
    except ValueError:
        raise InputError(f"half-periods are two numbers, as in 1,0.3+0.9j, got {text!r}") from None
    return Lattice(omega1, omega3)


def surface_analysis(
    encoding: Annotated[
        EncodingChoice,
        ReadBy(EncodingChoice),
        typer.Option(
            "--encoding", "-e", help="Show its lattice and its patches. The default is weierstrass."
        ),
    ] = _DEFAULT,
    *,
    half_periods: Annotated[
        Lattice | None,
        ReadBy(read_lattice),
        typer.Option(help="Show this lattice instead, as in 1,0.3+0.9j (omega1, omega3)."),
    ] = None,
    grid: Options.GridShape = GRID,
    seed: Options.Seed = 0,
) -> Analysis:
    """wp and wp' over the plane, on a lattice or on that of an encoding with its patches."""
    lattice, patches, lattice_name = half_periods, None, "a lattice"
    if lattice is None:
        built: Any = encoding.build(grid, seed)
        if not callable(getattr(built, "lattice", None)):
            raise InputError(f"{encoding.label} has no lattice, so there is no surface to show")
        lattice, lattice_name = built.lattice(), f"the lattice of {encoding.label} at its start"
        if callable(getattr(built, "points", None)):
            patches = built.points(grid).detach().numpy()
    shown = landscape(lattice, patches)
    backend = get_backend("numpy")
    roots = [complex(e) for e in backend.roots(lattice)]
    invariants = [complex(g) for g in backend.invariants(lattice)]
    periods = f"half-periods {_text(complex(lattice.omega1))} and {_text(complex(lattice.omega3))}"
    dots = ""
    if patches is not None:
        dots = f" Dots: the centres of {grid[0]} x {grid[1]} patches."
        if len(patches) > _PATCHES_SHOWN:
            dots = f" Grey: where {grid[0]} x {grid[1]} patches lie."
    caption = (
        f"℘ and ℘′ on {lattice_name}: {periods}, g2 = {_text(invariants[0])}, "
        f"g3 = {_text_of_g3(*invariants)}. Left: log10 of the modulus as height, cut at both "
        "ends, the argument as colour. Right: "
        "argument as colour with lines of equal modulus (each a factor of 2), crosses at poles, "
        f"circles at zeros, the period cell outlined.{dots} Evaluated by the NumPy backend at "
        f"{SIDE} x {SIDE} points; nothing random."
    )
    numbers = {
        "omega1": _pair(complex(lattice.omega1)),
        "omega3": _pair(complex(lattice.omega3)),
        "tau": _pair(complex(lattice.tau)),
        "g2": _pair(invariants[0]),
        "g3": _pair(invariants[1]),
        "roots": [_pair(e) for e in roots],
        "zeros of wp": [_pair(z) for z in shown.zeros[0]],
        "grid": list(grid),
        "seed": seed,
    }
    return Analysis(
        "surface", "℘ and ℘′ over the plane", caption, {"surface": draw_landscape(shown)}, numbers
    )


def draw_landscape(shown: Landscape) -> Any:
    """A row for wp and one for wp': the surface on the left, the phase portrait on the right."""
    with figure_settings():
        figure = new_figure(7.2, 6.4)
        for row, name in enumerate(_NAMES):
            surface = figure.add_subplot(2, 2, 2 * row + 1, projection="3d")
            _draw_surface(surface, shown, shown.values[row], f"log10 |{name}|")
            portrait = figure.add_subplot(2, 2, 2 * row + 2)
            image = _draw_portrait(portrait, shown, row)
            bar = figure.colorbar(image, ax=portrait, shrink=0.8, label=f"arg {name}")
            bar.set_ticks([-np.pi, 0, np.pi], labels=["−π", "0", "π"])
    return figure


def _height(values: Complex) -> npt.NDArray[np.float64]:
    """log10 of the modulus, cut so that the middle 96 % of the points remain as they are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.log10(np.abs(values))
    height = np.where(np.isnan(height), np.inf, height)
    low, high = np.quantile(height, [0.02, 0.98])
    return np.clip(height, low, high)


def _draw_surface(axis: Any, shown: Landscape, values: Complex, title: str) -> None:
    from matplotlib import colormaps

    step = max(len(values) // 120, 1)  # more facets would be smaller than a dot in print
    z, values = shown.z[::step, ::step], values[::step, ::step]
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
    cell = _cell(shown.lattice)
    top = float(height.max())
    axis.plot(cell.real, cell.imag, top, color=BLACK, lw=1.0, zorder=10)
    axis.plot(
        shown.poles.real, shown.poles.imag, top, "x", color=BLACK, ms=5, mew=1.4, zorder=11, ls=""
    )
    axis.set(title=title, xlabel="Re z", ylabel="Im z")
    axis.tick_params(pad=-2)
    axis.locator_params(nbins=4)
    axis.view_init(elev=48, azim=-62)
    axis.set_box_aspect((np.ptp(z.real), np.ptp(z.imag), 0.45 * np.ptp(z.real)), zoom=0.92)


def _draw_portrait(axis: Any, shown: Landscape, row: int) -> Any:
    z, values = shown.z, shown.values[row]
    x, y = z.real, z.imag
    image = axis.pcolormesh(
        x, y, np.angle(values), cmap=CYCLIC_MAP, vmin=-np.pi, vmax=np.pi, rasterized=True
    )
    height = _height(values) / np.log10(2)
    levels = np.arange(np.ceil(height.min()), np.floor(height.max()) + 1)
    axis.contour(
        x, y, height, levels=levels, colors="white", linestyles="-", linewidths=0.35, alpha=0.7
    )
    cell = _cell(shown.lattice)
    axis.plot(cell.real, cell.imag, color="white", lw=2.2)
    axis.plot(cell.real, cell.imag, color=BLACK, lw=1.1)
    _mark(axis, shown.poles, "x", "pole")
    _mark(axis, shown.zeros[row], "o", "zero")
    if 0 < len(shown.patches) <= _PATCHES_SHOWN:
        axis.plot(
            shown.patches.real, shown.patches.imag, ".", color=ORANGE, ms=2.2, label="patch", ls=""
        )
    elif len(shown.patches):
        axis.plot(shown.patches.real, shown.patches.imag, ",", color="0.7", ls="")
    axis.set(title=f"phase of {_NAMES[row]}", xlabel="Re z", ylabel="Im z", aspect="equal")
    axis.set(xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    if row == 0:
        axis.legend(loc="lower right", frameon=True, framealpha=0.85, ncols=3, columnspacing=0.8)
    return image


def _mark(axis: Any, points: Complex, marker: str, label: str) -> None:
    """A mark that can be seen on dark and on light ground."""
    style: dict[str, Any] = {"marker": marker, "linestyle": "", "markerfacecolor": "none"}
    axis.plot(points.real, points.imag, color="white", ms=7, mew=2.6, **style)
    axis.plot(points.real, points.imag, color=BLACK, ms=7, mew=1.2, label=label, **style)


def _cell(lattice: Lattice) -> Complex:
    first, second = 2 * complex(lattice.omega1), 2 * complex(lattice.omega3)
    return np.array([0, first, first + second, second, 0])


def _text(value: complex) -> str:
    """A complex number to five digits, real ones without an imaginary part."""
    real, imag = f"{value.real:.5g}", f"{value.imag:+.5g}i"
    if abs(value.imag) <= 1e-12 * abs(value):
        return real
    return imag.lstrip("+") if abs(value.real) <= 1e-12 * abs(value) else real + imag


def _text_of_g3(g2: complex, g3: complex) -> str:
    """g3, or 0 where it is only the rounding of a lattice kept in single precision."""
    return "0" if abs(g3) < 1e-6 * abs(g2) ** 1.5 else _text(g3)


def _pair(value: complex) -> list[float]:
    return [float(value.real), float(value.imag)]


COMMAND = AnalysisCommand(surface_analysis, docs_files={"surface.png": "surface.png"})
