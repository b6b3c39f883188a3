"""How figures look: colours every kind of eye tells apart, sizes that survive print.

Figures are made without pyplot, whose settings and windows belong to the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wefpe_core.errors import import_optional

# Okabe and Ito's colours, in the order curves take them.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
PURPLE, SKY, AMBER, BLACK = "#cc79a7", "#56b4e9", "#e69f00", "#000000"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, BLACK)
LINES = ("-", "--", ":", "-.")  # with the colours 28 curves, also told apart in grey
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PLAIN_MAP = "cividis"
SIGNED_MAP = "PuOr_r"  # zero in the middle
CYCLIC_MAP = "twilight"  # angles

_SETTINGS: dict[str, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "axes.grid": False,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "image.cmap": PLAIN_MAP,
    "image.interpolation": "nearest",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "wefpe",  # the same picture is the same file
}


@contextmanager
def figure_settings() -> Iterator[None]:
    """Within it, artists that are made follow the style of this project."""
    with _matplotlib().rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float) -> Any:
    """An empty figure of that size in inches, laid out by matplotlib."""
    _matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def curve_style(number: int) -> dict[str, str]:
    """Colour, line and marker of the curve of that number: no two of the first 28 are alike."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number // len(COLOURS) % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def in_lines(label: str, longest: int) -> str:
    """A long label broken at spaces and behind what separates the options of an encoding."""
    lines = [""]
    for piece in re.split("(?<=[,;+ ])", label):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > longest:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _matplotlib() -> Any:
    return import_optional("matplotlib", purpose="drawing", extra="report")
