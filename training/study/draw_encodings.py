"""What ``wefpe encodings`` shows besides its list: small pictures, and the effect of another grid.

A picture (``--draw FOLDER``) is a row of maps over the patches of one image and, at its end, a
section through the marked patch along its row and its column. The encoding is that of ViT-Ti/16 at
224 (width 192, 3 heads, 14 x 14 patches) as it starts from seed 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from rich import box
from rich.table import Table

from training.encodings import AbstractEncoding, available_encodings, build_encoding
from training.encodings.grid import Grid
from training.encodings.learned import Resampling, resample_table
from training.plot.encodings import (
    PAIRS,
    Map,
    Panel,
    Picture,
    as_map,
    bias_picture,
    draw_picture,
    rotation_picture,
    similarity,
    table_picture,
)
from training.study.encoding_choice import DEPTH, DIM, GRID, HEADS

MARKED = (7, 7)  # row and column of the patch the others are compared with
SEED = 0
_CAPTION = "as it starts in a ViT-Ti/16 at 224: 14 × 14 patches; the square is the marked patch"
_MODEL: dict[str, Any] = {"dim": DIM, "depth": DEPTH, "num_heads": HEADS, "grid": GRID}


def picture_of(name: str) -> Picture:
    """The picture of an encoding: its own, or that of its kind."""
    draw = _BY_NAME.get(name)
    if draw is not None:
        return draw()
    encoding = _built(name)
    return _BY_KIND[encoding.kind](encoding)


def _built(name: str, **options: Any) -> Any:
    torch.manual_seed(SEED)
    return build_encoding(name, **_MODEL, **options).eval()


def _map(values: torch.Tensor, grid: Grid = GRID) -> Map:
    return as_map(values, grid)


def _similarity(table: torch.Tensor | None, title: str = "cosine similarity") -> Panel:
    return similarity(table, GRID, MARKED, title)


def _picture(panels: Sequence[Panel], section: Panel) -> Picture:
    return Picture(panels, section, MARKED)


def _number() -> int:
    return MARKED[0] * GRID[1] + MARKED[1]


# --- By kind -------------------------------------------------------------------------------


def _additive(encoding: AbstractEncoding) -> Picture:
    return table_picture(encoding, GRID, MARKED)


def _rotary(encoding: AbstractEncoding) -> Picture:
    pairs = _SHOWN.get(encoding.name, PAIRS)
    return rotation_picture(encoding, GRID, MARKED, pairs, _BY_HEAD.get(encoding.name))


# Heads and pairs (of 32) that are shown. With axes, two turn with the column, two with the row.
_SHOWN = {
    "rope_axial": ((0, 0), (0, 4), (0, 16), (0, 20)),
    "rope_mixed": ((0, 0), (1, 0), (2, 0), (2, 4)),
    "fope": ((0, 0), (0, 4), (1, 4), (0, 12)),
}
_BY_HEAD = {"rope_mixed": 2, "fope": 1}  # encodings whose heads differ, and the head of q·k


def _nothing(encoding: AbstractEncoding) -> Picture:
    return _picture([], _similarity(encoding.additive(GRID)))


def _bias(encoding: AbstractEncoding) -> Picture:
    return bias_picture(encoding, GRID, MARKED)


_BY_KIND: dict[str, Callable[[AbstractEncoding], Picture]] = {
    "none": _nothing,
    "additive": _additive,
    "rotary": _rotary,
    "bias": _bias,
}


# --- By name -------------------------------------------------------------------------------


def _learned() -> Picture:
    """One channel on the grid of training, on a larger one and back: the loss is the noise."""
    table = _built("learned").additive(GRID).detach()
    channel, larger = table[:, :1], (24, 24)
    there = resample_table(channel, GRID, larger, "bicubic_antialias")
    back = resample_table(there, larger, GRID, "bicubic_antialias")
    lost = float((back - channel).norm() / channel.norm())
    limit = float(channel.abs().max())
    panels = [
        Panel(title, values, limits=(-limit, limit))
        for title, values in (
            ("channel 0", _map(channel)),
            ("resampled to 24 × 24", _map(there, larger)),
            ("and back", _map(back)),
            (f"lost: {100 * lost:.0f} %", _map(back - channel)),
        )
    ]
    return _picture(panels, _similarity(table))


def _sincos() -> Picture:
    table = _built("sincos2d").additive(GRID)
    quarter = _MODEL["dim"] // 4
    shown = {"sin x": 0, "cos x, slower": quarter + 12, "sin y": 2 * quarter, "cos y, slower": 156}
    panels = [Panel(title, _map(table[:, i])) for title, i in shown.items()]
    return _picture(panels, _similarity(table))


def _features(name: str, titles: Mapping[int, str]) -> Callable[[], Picture]:
    def draw() -> Picture:
        encoding = _built(name)
        features = encoding.features(GRID)
        panels = [Panel(title, _map(features[:, i])) for i, title in titles.items()]
        return _picture(panels, _similarity(encoding.additive(GRID)))

    return draw


def _hybrid() -> Picture:
    """The similarity as the gate opens; sincos2d stands for a pretrained table."""
    encoding = _built("weierstrass_hybrid", wef="weierstrass")
    encoding.load_table(_built("sincos2d").additive(GRID), GRID, torch.zeros(1, _MODEL["dim"]))
    panels, start = [], round(float(encoding.gate().detach()), 2)
    for share, note in ((0.0, " (table)"), (0.25, ""), (0.85, ""), (1.0, " (WEF)"), (start, "")):
        with torch.no_grad():
            encoding.lambda_raw.copy_(torch.logit(torch.tensor(share), eps=1e-6))
            drawn = _similarity(encoding.additive(GRID), f"cosine, λ = {share:g}{note}")
        panels.append(replace(drawn, limits=(0.4, 1.0)))
    return _picture(panels[:-1], replace(panels[-1], title=f"cosine, λ = {start:g} (start)"))


def _relative() -> Picture:
    """The features of the displacement from the marked patch, and the bias of one head."""
    encoding = _built("weierstrass_relative")
    row = encoding.offsets(GRID).pairs[_number()]
    features = encoding.features(GRID)[row]
    features[_number()] = 0.0  # infinite there; the encoding has a rule for the diagonal
    panels = [
        Panel(f"tanh(s {part})", _map(features[:, i]), limits=(-1.0, 1.0))
        for i, part in enumerate(_PARTS)
    ]
    return _picture(panels, Panel("bias, head 0", _map(encoding.bias(GRID, 0)[0, _number()])))


def _green() -> Picture:
    """The attention from the bias alone for strengths that a head may learn, and the bias."""
    encoding = _built("weierstrass_green")
    bias = encoding.bias(GRID, 0)[0, _number()]
    strengths = (0.25, 0.5, 1.0, 2.0)
    panels = [
        Panel(f"softmax, s = {s:g}", _map((s * bias).softmax(-1)), is_signed=False)
        for s in strengths
    ]
    return _picture(panels, Panel("bias, s = 1", _map(bias), is_signed=False))


def _combined() -> Picture:
    """The table and the bias of the two parts that it has by default."""
    encoding = _built("combined")
    bias = encoding.bias(GRID, 0)[0, _number()]
    panels = [
        _similarity(encoding.additive(GRID), "cosine of what is added"),
        Panel("bias, head 0", _map(bias), is_signed=False),
    ]
    return _picture(panels, Panel("softmax of the bias", _map(bias.softmax(-1)), is_signed=False))


_PARTS = ("Re ℘", "Im ℘", "Re ℘′", "Im ℘′")
_BY_NAME: dict[str, Callable[[], Picture]] = {
    "learned": _learned,
    "sincos2d": _sincos,
    "weierstrass": _features(
        "weierstrass", {i: f"tanh(s {part})" for i, part in enumerate(_PARTS)}
    ),
    "weierstrass_fourier": _features(  # number 1 is always 0
        "weierstrass_fourier", {0: "tanh(σμ S)", 2: "tanh(σμ S_x)", 3: "tanh(−σμ S_y)"}
    ),
    "weierstrass_hybrid": _hybrid,
    "weierstrass_relative": _relative,
    "weierstrass_green": _green,
    "combined": _combined,
}


# --- Drawing -------------------------------------------------------------------------------


def draw_encodings(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Write a PNG for each encoding, by default for all; it returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names or available_encodings():
        path = folder / f"{name}.png"
        figure = draw_picture(picture_of(name))
        caption = _CAPTION.replace(": ", ":\n") if figure.get_figwidth() < 6.0 else _CAPTION
        figure.suptitle(f"{name} {caption}", x=0.005, ha="left", fontsize="medium")
        # Without matplotlib's version in the file, a picture changes only with its encoding.
        figure.savefig(path, dpi=90, metadata={"Software": None})
        paths.append(path)
    return paths


# --- Tables of positions on another grid: ``wefpe encodings --resolution`` ---------------------
#
# A function of the place in the image is evaluated on the new grid, and has the same values at the
# same places. A learned table has to be resampled, which loses a part of it.

LARGER: Grid = (24, 24)
_FUNCTIONS = ("weierstrass", "weierstrass_fourier")
_ALPHA = 0.5


class TableChange(NamedTuple):
    """The norm of the change of a table over the norm of the table."""

    name: str
    by: str
    change: float


def measured_changes(seed: int = 0) -> list[TableChange]:
    """The changes of functions in float64, and of a random table by each method of resampling."""
    height, width = GRID
    changes = []
    for name in _FUNCTIONS:
        tables = []
        # The grids of 14 and 24 patches share no centre, unless the larger covers 24/14 as much.
        for grid, alpha in ((GRID, _ALPHA), (LARGER, _ALPHA * LARGER[0] / height)):
            torch.manual_seed(seed)
            encoding = build_encoding(name, **_MODEL | {"grid": grid}, alpha_u=alpha).double()
            with torch.no_grad():
                table = encoding.eval().additive(grid)
            assert table is not None
            tables.append(table.reshape(*grid, -1)[:height, :width])
        changes.append(TableChange(name, "evaluated at 24 x 24", relative_change(*tables)))
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(height * width, DIM, generator=generator, dtype=torch.float64)
    for method in get_args(Resampling):
        there = resample_table(table, GRID, LARGER, method)
        back = resample_table(there, LARGER, GRID, method)
        changes.append(TableChange("learned", f"{method} and back", relative_change(table, back)))
    return changes


def relative_change(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((after - before).norm() / before.norm())


def resolution_table() -> Table:
    """`measured_changes` as a table for the terminal."""
    title = "From 14 x 14 to 24 x 24 patches: relative change of what stands at the same places"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("encoding")
    table.add_column("by")
    table.add_column("change", justify="right")
    for name, by, change in measured_changes():
        table.add_row(name, by, f"{change:.1e}" if change < 1e-3 else f"{100 * change:.1f} %")
    return table
