"""What ``wefpe encodings`` shows besides its list: small pictures, and the effect of another grid.

A picture (``--draw FOLDER``) is a row of maps over the patches of one image and, at its end, a
section through the marked patch along its row and its column. The encoding is that of ViT-Ti/16 at
224 (width 192, 3 heads, 14 x 14 patches) as it starts from seed 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from rich import box
from rich.table import Table

from training.encodings import AbstractEncoding, available_encodings, build_encoding
from training.encodings.grid import Grid
from training.encodings.learned import Resampling, resample_table
from training.figure_style import BLUE, ORANGE, PLAIN_MAP, SIGNED_MAP, new_figure
from training.study.encoding_choice import DEPTH, DIM, GRID, HEADS

MARKED = (7, 7)  # row and column of the patch the others are compared with
SEED = 0
_MODEL: dict[str, Any] = {"dim": DIM, "depth": DEPTH, "num_heads": HEADS, "grid": GRID}
_LARGE, _SMALL = 8.5, 7.0  # points

Map = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """One map (height, width); in a signed one 0 has the middle colour."""

    title: str
    values: Map
    is_signed: bool = True
    limits: tuple[float, float] | None = None  # of the colours; None: those of the values


@dataclass(frozen=True)
class Picture:
    """Maps, and one that is also shown in section."""

    panels: Sequence[Panel]
    section: Panel


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
    return values.detach().double().reshape(grid).numpy()


def _similarity(table: torch.Tensor | None, title: str = "cosine similarity") -> Panel:
    """The cosine of every row of a table with that of the marked patch."""
    if table is None:
        return Panel(title, np.ones(GRID), is_signed=False)
    rows = table.detach().double()
    rows = rows / rows.norm(dim=-1, keepdim=True)
    return Panel(title, _map(rows @ rows[_number()]), is_signed=False)


def _number() -> int:
    return MARKED[0] * GRID[1] + MARKED[1]


# --- By kind -------------------------------------------------------------------------------


def _additive(encoding: AbstractEncoding) -> Picture:
    """Channels of the table from fast to slow, and the similarity of its rows."""
    table = encoding.additive(GRID)
    assert table is not None
    channels = [Panel(f"channel {i}", _map(table[:, i])) for i in (0, 8, 16, 24)]
    return Picture(channels, _similarity(table))


def _rotary(encoding: AbstractEncoding) -> Picture:
    """The cosine of the angles of pairs, and q.k of equal contents at two places."""
    heads, head_dim, patches = encoding.size.num_heads, encoding.size.head_dim, GRID[0] * GRID[1]
    is_interleaved = getattr(encoding, "layout", "half") == "interleaved"
    # Each content is a unit vector, turned by the angle of its pair.
    unit = torch.eye(head_dim)[:, None, None].expand(-1, heads, patches, -1)
    with torch.no_grad():
        turned = encoding.rotate(unit, unit, GRID, 0)[0]
        # All channels are equal, so that only position changes the product.
        same = torch.full((1, heads, patches, head_dim), head_dim**-0.5)
        q, k = encoding.rotate(same, same, GRID, 0)
    panels = []
    for head, pair in _SHOWN.get(encoding.name, _FAST_AND_SLOW):
        channel = 2 * pair if is_interleaved else pair
        values = _map(turned[channel, head, :, channel])
        where = f"pair {pair}" if encoding.name not in _BY_HEAD else f"head {head}, pair {pair}"
        panels.append(Panel(f"cos, {where}", values, limits=(-1.0, 1.0)))
    head = _BY_HEAD.get(encoding.name, 0)
    product = (k[0, head] @ q[0, head, _number()]) / q[0, head, _number()].square().sum()
    where = f", head {head}" if encoding.name in _BY_HEAD else ""
    return Picture(panels, Panel(f"q·k{where}", _map(product), is_signed=False))


# Heads and pairs (of 32) that are shown. With axes, two turn with the column, two with the row.
_FAST_AND_SLOW = ((0, 0), (0, 4), (0, 8), (0, 16))
_SHOWN = {
    "rope_axial": ((0, 0), (0, 4), (0, 16), (0, 20)),
    "rope_mixed": ((0, 0), (1, 0), (2, 0), (2, 4)),
    "fope": ((0, 0), (0, 4), (1, 4), (0, 12)),
}
_BY_HEAD = {"rope_mixed": 2, "fope": 1}  # encodings whose heads differ, and the head of q·k


def _nothing(encoding: AbstractEncoding) -> Picture:
    return Picture([], _similarity(encoding.additive(GRID)))


def _bias(encoding: AbstractEncoding) -> Picture:
    """The biases of the heads of the first layer."""
    bias = encoding.bias(GRID, 0)
    assert bias is not None
    rows = bias[:, _number()]
    panels = [Panel(f"bias, head {h}", _map(row)) for h, row in enumerate(rows)]
    return Picture(panels, Panel("attention, head 0", _map(rows[0].softmax(-1)), is_signed=False))


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
    return Picture(panels, _similarity(table))


def _sincos() -> Picture:
    table = _built("sincos2d").additive(GRID)
    quarter = _MODEL["dim"] // 4
    shown = {"sin x": 0, "cos x, slower": quarter + 12, "sin y": 2 * quarter, "cos y, slower": 156}
    panels = [Panel(title, _map(table[:, i])) for title, i in shown.items()]
    return Picture(panels, _similarity(table))


def _features(name: str, titles: Mapping[int, str]) -> Callable[[], Picture]:
    def draw() -> Picture:
        encoding = _built(name)
        features = encoding.features(GRID)
        panels = [Panel(title, _map(features[:, i])) for i, title in titles.items()]
        return Picture(panels, _similarity(encoding.additive(GRID)))

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
    return Picture(panels[:-1], replace(panels[-1], title=f"cosine, λ = {start:g} (start)"))


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
    return Picture(panels, Panel("bias, head 0", _map(encoding.bias(GRID, 0)[0, _number()])))


def _green() -> Picture:
    """The attention from the bias alone for strengths that a head may learn, and the bias."""
    encoding = _built("weierstrass_green")
    bias = encoding.bias(GRID, 0)[0, _number()]
    strengths = (0.25, 0.5, 1.0, 2.0)
    panels = [
        Panel(f"softmax, s = {s:g}", _map((s * bias).softmax(-1)), is_signed=False)
        for s in strengths
    ]
    return Picture(panels, Panel("bias, s = 1", _map(bias), is_signed=False))


def _combined() -> Picture:
    """The table and the bias of the two parts that it has by default."""
    encoding = _built("combined")
    bias = encoding.bias(GRID, 0)[0, _number()]
    panels = [
        _similarity(encoding.additive(GRID), "cosine of what is added"),
        Panel("bias, head 0", _map(bias), is_signed=False),
    ]
    return Picture(panels, Panel("softmax of the bias", _map(bias.softmax(-1)), is_signed=False))


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


def figure_of(picture: Picture) -> Any:
    """The matplotlib figure of a picture."""
    maps = [*picture.panels, picture.section]
    figure = new_figure(2.0 * len(maps) + 2.4, 2.15)
    axes = figure.subplots(1, len(maps) + 1, width_ratios=[1.0] * len(maps) + [1.25])
    for axis, panel in zip(axes, maps, strict=False):
        _draw_map(figure, axis, panel)
    axes[0].set_ylabel("row", fontsize=_SMALL)
    _draw_section(axes[-1], picture.section)
    return figure


def _draw_map(figure: Any, axis: Any, panel: Panel) -> None:
    height, width = panel.values.shape
    low, high = _limits(panel)
    colours = SIGNED_MAP if panel.is_signed else PLAIN_MAP
    image = axis.imshow(panel.values, interpolation="nearest", cmap=colours, vmin=low, vmax=high)
    bar = figure.colorbar(image, ax=axis, shrink=0.8, pad=0.03)
    bar.ax.tick_params(labelsize=_SMALL, length=2)
    bar.outline.set_linewidth(0.4)
    bar.locator = _few_ticks(4)
    bar.update_ticks()
    axis.set_title(panel.title, fontsize=_LARGE)
    axis.set_xlabel("column", fontsize=_SMALL)
    axis.set_xticks([0, width // 2, width - 1])
    axis.set_yticks([0, height // 2, height - 1])
    axis.tick_params(labelsize=_SMALL, length=2)
    if (height, width) == GRID:
        row, column = MARKED
        x = column + np.array([-0.5, -0.5, 0.5, 0.5, -0.5])
        y = row + np.array([-0.5, 0.5, 0.5, -0.5, -0.5])
        axis.plot(x, y, color="white", lw=1.8)
        axis.plot(x, y, color="black", lw=0.8)


def _limits(panel: Panel) -> tuple[float, float]:
    low, high = float(panel.values.min()), float(panel.values.max())
    if panel.limits is not None:
        return panel.limits
    if panel.is_signed:
        largest = max(-low, high) or 1.0
        return -largest, largest
    return (low if low < high else 0.0), high


def _draw_section(axis: Any, panel: Panel) -> None:
    row, column = MARKED
    for values, here, colour, style, name in (
        (panel.values[row], column, BLUE, "o-", "its row"),
        (panel.values[:, column], row, ORANGE, "s--", "its column"),
    ):
        axis.plot(
            np.arange(len(values)) - here, values, style, color=colour, ms=2.5, lw=1, label=name
        )
    low, high = axis.get_ylim() if np.ptp(panel.values) else (0.0, float(panel.values.max()))
    axis.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
    axis.set_title(panel.title, fontsize=_LARGE)
    axis.set_xlabel("patches from the marked one", fontsize=_SMALL)
    axis.set_xticks([-column, 0, GRID[1] - 1 - column])
    axis.yaxis.set_major_locator(_few_ticks(5))
    axis.tick_params(labelsize=_SMALL, length=2)
    axis.grid(lw=0.3)
    axis.legend(fontsize=_SMALL, frameon=False, loc="upper center", ncols=2, columnspacing=1.0)


def _few_ticks(count: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count)


def draw_encodings(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Write a PNG for each encoding, by default for all; it returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names or available_encodings():
        path = folder / f"{name}.png"
        # Without matplotlib's version in the file, a picture changes only with its encoding.
        figure_of(picture_of(name)).savefig(path, dpi=90, metadata={"Software": None})
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
