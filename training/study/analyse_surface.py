"""wp and wp' over the plane, with poles and period cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from training.figure_style import figure_settings, new_figure
from training.plot.functions import (
    SIDE,
    Portrait,
    dots_are_shown,
    draw_portrait,
    draw_surface,
    portrait,
)
from training.study.analysis import Analysis, AnalysisCommand, Options, ReadBy
from training.study.encoding_choice import GRID, EncodingChoice
from wefpe_core import Lattice, get_backend
from wefpe_core.errors import InputError

_DEFAULT = EncodingChoice("weierstrass")


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
            "--encoding",
            "-e",
            metavar="NAME[:OPTIONS]",
            help="Show its lattice and its patches. The default is weierstrass.",
        ),
    ] = _DEFAULT,
    *,
    half_periods: Annotated[
        Lattice | None,
        ReadBy(read_lattice),
        typer.Option(metavar="OMEGA1,OMEGA3", help="Show this lattice instead, as in 1,0.3+0.9j."),
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
    shown = [portrait(function, lattice, patches) for function in ("wp", "wp_prime")]
    backend = get_backend("numpy")
    roots = [complex(e) for e in backend.roots(lattice)]
    invariants = [complex(g) for g in backend.invariants(lattice)]
    periods = f"half-periods {_text(complex(lattice.omega1))} and {_text(complex(lattice.omega3))}"
    dots = ""
    if patches is not None:
        dots = f" Dots: the centres of {grid[0]} x {grid[1]} patches."
        if not dots_are_shown(patches):
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
        "zeros of wp": [_pair(z) for z in shown[0].zeros],
        "grid": list(grid),
        "seed": seed,
    }
    return Analysis(
        "surface", "℘ and ℘′ over the plane", caption, {"surface": draw_landscape(shown)}, numbers
    )


def draw_landscape(shown: Sequence[Portrait]) -> Any:
    """A row for each function: the surface on the left, the phase portrait on the right."""
    with figure_settings():
        figure = new_figure(7.2, 6.4)
        for row, each in enumerate(shown):
            draw_surface(figure.add_subplot(2, 2, 2 * row + 1, projection="3d"), each)
            axis = figure.add_subplot(2, 2, 2 * row + 2)
            draw_portrait(figure, axis, each, has_legend=row == 0)
    return figure


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
