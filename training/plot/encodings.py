"""What an encoding gives to the patches of an image, and the attention of a model, as maps."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from training.encodings.size import Grid
from training.figure_style import BLUE, ORANGE, PLAIN_MAP, SIGNED_MAP, new_figure
from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from training.encodings import AbstractEncoding

Map = npt.NDArray[np.float64]
Place = tuple[int, int]  # row and column of a patch

CHANNELS = (0, 8, 16, 24)  # from fast to slow
PAIRS = ((0, 0), (0, 4), (0, 8), (0, 16))  # heads and pairs of channels, from fast to slow
_LARGE, _SMALL = 8.5, 7.0  # points


@dataclass(frozen=True)
class Panel:
    """One map (height, width); in a signed one 0 has the middle colour."""

    title: str
    values: Map
    is_signed: bool = True
    limits: tuple[float, float] | None = None  # of the colours; None: those of the values


@dataclass(frozen=True)
class Picture:
    """Maps, and one that is also shown in section through the marked patch."""

    panels: Sequence[Panel]
    section: Panel
    marked: Place


# --- Figures ---------------------------------------------------------------------------------


def encoding_table(
    encoding: AbstractEncoding,
    *,
    grid: Grid | None = None,
    channels: Sequence[int] = CHANNELS,
    query: Place | None = None,
) -> Any:
    """Channels of the table that an encoding adds, and the similarity of its rows.

    Parameters
    ----------
    encoding
        As `build_encoding` makes it.
    grid
        (height, width) in patches; by default that of the encoding.
    channels
        Those that are shown.
    query
        Row and column of the patch that the others are compared with; by default the middle.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        The encoding adds no table, or there is no such channel or patch.

    Examples
    --------
    >>> encoding_table(encoding, channels=(0, 1)).savefig("table.png")  # doctest: +SKIP
    """
    grid, query = _places(encoding, grid, query)
    return draw_picture(table_picture(encoding, grid, query, channels))


def encoding_rotation(
    encoding: AbstractEncoding,
    *,
    grid: Grid | None = None,
    pairs: Sequence[tuple[int, int]] = PAIRS,
    query: Place | None = None,
) -> Any:
    """Cosines of the angles by which an encoding turns queries and keys, and their product.

    `pairs` are heads and pairs of channels; the others, and the result, are as in
    `encoding_table`.

    >>> encoding_rotation(encoding, grid=(14, 20)).savefig("rotation.png")  # doctest: +SKIP
    """
    grid, query = _places(encoding, grid, query)
    return draw_picture(rotation_picture(encoding, grid, query, pairs))


def encoding_bias(
    encoding: AbstractEncoding,
    *,
    grid: Grid | None = None,
    layer: int = 0,
    query: Place | None = None,
) -> Any:
    """The bias of each head on the attention of one patch, and the softmax of the first.

    The parameters are those of `encoding_table`, with `layer` counted from 0, and so is the
    result.

    >>> encoding_bias(encoding, query=(0, 0)).savefig("bias.png")  # doctest: +SKIP
    """
    grid, query = _places(encoding, grid, query)
    return draw_picture(bias_picture(encoding, grid, query, layer))


def attention(model: Any, image: Any, *, layer: int = -1, query: Place | None = None) -> Any:
    """The attention of each head in one layer of a model, from one patch to all.

    Parameters
    ----------
    model
        One of `training.models`, whose ``forward`` has `return_attention`.
    image
        A tensor (channels, height, width) or a batch, of which the first is taken, normalised as
        for the model.
    layer
        Counted from 0, or from the end if negative.
    query
        Row and column of the patch that attends; by default the middle.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> attention(model, image, layer=0, query=(3, 4)).savefig("attention.png")  # doctest: +SKIP
    """
    import torch

    if "return_attention" not in inspect.signature(model.forward).parameters:
        raise InputError(f"{type(model).__name__} has no option to return its attention")
    images = image[None] if image.ndim == 3 else image[:1]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            _, maps = model(images, return_attention=True)
    finally:
        model.train(was_training)
    if not -len(maps) <= layer < len(maps):
        raise InputError(f"there is no layer {layer}: the model has {len(maps)}")
    patch = model.patch_embed.patch_size
    grid = (images.shape[-2] // patch, images.shape[-1] // patch)
    place = _checked_place(grid, query)
    weights = maps[layer][0]  # (heads, tokens, tokens), prefix tokens first
    number = weights.shape[-1] - grid[0] * grid[1] + place[0] * grid[1] + place[1]
    rows = weights[:, number, -grid[0] * grid[1] :]
    panels = [
        Panel(f"head {head}", as_map(row, grid), is_signed=False) for head, row in enumerate(rows)
    ]
    mean = Panel("mean of the heads", as_map(rows.mean(0), grid), is_signed=False)
    return draw_picture(Picture(panels, mean, place))


# --- Maps --------------------------------------------------------------------------------------


def table_picture(
    encoding: AbstractEncoding, grid: Grid, marked: Place, channels: Sequence[int] = CHANNELS
) -> Picture:
    """Channels of the table from fast to slow, and the similarity of its rows."""
    table = encoding.additive(grid)
    if table is None:
        raise InputError(f"{encoding.name} adds no table to the tokens")
    missing = [i for i in channels if not 0 <= i < table.shape[1]]
    if missing:
        raise InputError(f"there is no channel {missing[0]}: the table has {table.shape[1]}")
    panels = [Panel(f"channel {i}", as_map(table[:, i], grid)) for i in channels]
    return Picture(panels, similarity(table, grid, marked), marked)


def rotation_picture(
    encoding: AbstractEncoding,
    grid: Grid,
    marked: Place,
    pairs: Sequence[tuple[int, int]] = PAIRS,
    head_shown: int | None = None,
) -> Picture:
    """The cosine of the angles of pairs, and q.k of equal contents at two places.

    With `head_shown` the heads differ: titles name them, and the product is that of this head.
    """
    import torch

    if encoding.kind != "rotary":
        raise InputError(f"{encoding.name} does not turn queries and keys")
    heads, head_dim, patches = encoding.size.num_heads, encoding.size.head_dim, grid[0] * grid[1]
    for head, pair in pairs:
        if not (0 <= head < heads and 0 <= pair < head_dim // 2):
            raise InputError(f"there is no pair {pair} of head {head}: there are {head_dim // 2}")
    is_interleaved = getattr(encoding, "layout", "half") == "interleaved"
    # Each content is a unit vector, turned by the angle of its pair.
    unit = torch.eye(head_dim)[:, None, None].expand(-1, heads, patches, -1)
    with torch.no_grad():
        turned = encoding.rotate(unit, unit, grid, 0)[0]
        # All channels are equal, so that only position changes the product.
        same = torch.full((1, heads, patches, head_dim), head_dim**-0.5)
        q, k = encoding.rotate(same, same, grid, 0)
    panels = []
    for head, pair in pairs:
        channel = 2 * pair if is_interleaved else pair
        values = as_map(turned[channel, head, :, channel], grid)
        where = f"pair {pair}" if head_shown is None else f"head {head}, pair {pair}"
        panels.append(Panel(f"cos, {where}", values, limits=(-1.0, 1.0)))
    head, number = head_shown or 0, _number(grid, marked)
    product = (k[0, head] @ q[0, head, number]) / q[0, head, number].square().sum()
    where = "" if head_shown is None else f", head {head}"
    section = Panel(f"q·k{where}", as_map(product, grid), is_signed=False)
    return Picture(panels, section, marked)


def bias_picture(encoding: AbstractEncoding, grid: Grid, marked: Place, layer: int = 0) -> Picture:
    """The biases of the heads of a layer."""
    bias = encoding.bias(grid, layer)
    if bias is None:
        raise InputError(f"{encoding.name} has no bias")
    rows = bias[:, _number(grid, marked)]
    panels = [Panel(f"bias, head {h}", as_map(row, grid)) for h, row in enumerate(rows)]
    softmax = as_map(rows[0].softmax(-1), grid)
    return Picture(panels, Panel("attention, head 0", softmax, is_signed=False), marked)


def similarity(
    table: Tensor | None, grid: Grid, marked: Place, title: str = "cosine similarity"
) -> Panel:
    """The cosine of every row of a table with that of the marked patch."""
    if table is None:
        return Panel(title, np.ones(grid), is_signed=False)
    rows = table.detach().double()
    rows = rows / rows.norm(dim=-1, keepdim=True)
    return Panel(title, as_map(rows @ rows[_number(grid, marked)], grid), is_signed=False)


def as_map(values: Tensor, grid: Grid) -> Map:
    """A number for each patch as a map."""
    return values.detach().double().reshape(grid).cpu().numpy()


def _number(grid: Grid, place: Place) -> int:
    return place[0] * grid[1] + place[1]


def _places(
    encoding: AbstractEncoding, grid: Grid | None, query: Place | None
) -> tuple[Grid, Place]:
    chosen = encoding.size.grid if grid is None else grid
    return chosen, _checked_place(chosen, query)


def _checked_place(grid: Grid, query: Place | None) -> Place:
    if query is None:
        return grid[0] // 2, grid[1] // 2
    row, column = query
    if not (0 <= row < grid[0] and 0 <= column < grid[1]):
        raise InputError(f"there is no patch {row}x{column} in a grid of {grid[0]} x {grid[1]}")
    return row, column


# --- Drawing -----------------------------------------------------------------------------------


def draw_picture(picture: Picture) -> Any:
    """The matplotlib figure of a picture: its maps in a row, and the section."""
    maps = [*picture.panels, picture.section]
    figure = new_figure(2.0 * len(maps) + 2.4, 2.15)
    axes = figure.subplots(1, len(maps) + 1, width_ratios=[1.0] * len(maps) + [1.25])
    grid = picture.section.values.shape
    for axis, panel in zip(axes, maps, strict=False):
        _draw_map(figure, axis, panel, picture.marked if panel.values.shape == grid else None)
    axes[0].set_ylabel("row", fontsize=_SMALL)
    _draw_section(axes[-1], picture.section, picture.marked)
    return figure


def _draw_map(figure: Any, axis: Any, panel: Panel, marked: Place | None) -> None:
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
    if marked is not None:
        row, column = marked
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


def _draw_section(axis: Any, panel: Panel, marked: Place) -> None:
    row, column = marked
    curves = [
        (panel.values[row], column, BLUE, "o-", "its row"),
        (panel.values[:, column], row, ORANGE, "s--", "its column"),
    ]
    # One curve stands for both where one would hide the other.
    if row == column and curves_agree(panel.values[row], panel.values[:, column]):
        curves = [(*curves[0][:-1], "its row and its column")]
    for values, here, colour, style, name in curves:
        axis.plot(
            np.arange(len(values)) - here, values, style, color=colour, ms=2.5, lw=1, label=name
        )
    low, high = axis.get_ylim() if np.ptp(panel.values) else (0.0, 1.3 * float(panel.values.max()))
    axis.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
    axis.set_title(f"{panel.title},\nsection", fontsize=_LARGE)
    axis.set_xlabel("patches from the marked one", fontsize=_SMALL)
    axis.set_xticks([-column, 0, panel.values.shape[1] - 1 - column])
    axis.yaxis.set_major_locator(_few_ticks(5))
    axis.tick_params(labelsize=_SMALL, length=2)
    axis.grid(lw=0.3)
    axis.legend(fontsize=_SMALL, frameon=False, loc="upper center", ncols=2, columnspacing=1.0)


def curves_agree(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether no eye tells two curves of a panel apart."""
    if one.shape != other.shape:
        return False
    return float(np.abs(one - other).max()) <= 1e-3 * float(np.ptp(np.concatenate([one, other])))


def _few_ticks(count: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count)
