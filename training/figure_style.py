"""How figures look: colours that colour-blind readers can tell apart, sizes that suit print.

Figures are made without pyplot, whose settings and windows belong to the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wefpe_core.errors import import_optional

# The colours of Okabe and Ito, in the order in which curves take them.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
PURPLE, SKY, AMBER, BLACK = "#cc79a7", "#56b4e9", "#e69f00", "#000000"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, BLACK)
LINES = ("-", "--", ":", "-.")  # with seven colours, 28 curves that also differ in grey
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PLAIN_MAP = "cividis"
SIGNED_MAP = "PuOr_r"  # for signed values, with zero in the middle
CYCLIC_MAP = "twilight"  # for angles

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
    "svg.hashsalt": "wefpe",  # the same figure gives the same file
}


@contextmanager
def figure_settings() -> Iterator[None]:
    """A context in which figures are drawn in the style of this project."""
    with _matplotlib().rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches, with constrained layout."""
    _matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def curve_style(number: int) -> dict[str, str]:
    """The colour, line and marker of a curve by its number; the first 28 are all different."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number // len(COLOURS) % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def in_lines(label: str, longest: int) -> str:
    """A long label, broken into lines after spaces, commas, semicolons and plus signs."""
    lines = [""]
    for piece in re.split("(?<=[,;+ ])", label):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > longest:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _matplotlib() -> Any:
    return import_optional("matplotlib", purpose="drawing", extra="report")
