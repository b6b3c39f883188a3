"""The figure of `training.analyses.rollout`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from training.figure_style import PLAIN_MAP, new_figure

if TYPE_CHECKING:
    from torch import Tensor

    from training.analyses.rollout import Picture, RolloutMap

_SIDE = 1.75  # inches
_LINE = 28  # letters above a panel
_UNIT = (0.0, 1.0, 1.0, 0.0)  # images and maps fill the same square, whatever their grids


def draw_maps(
    pictures: Sequence[Picture], labels: Sequence[str], found: Sequence[RolloutMap]
) -> Any:
    """A row for each image: the image, then the map of each model, in colours of one scale.

    Maps stand beside the image, not over it: its light and dark would be taken for theirs.
    """
    maps = {(each.model, each.image): each for each in found}
    height, width = _finest(pictures[0]).shape[-2:]
    names = [_lines(label) for label in labels]
    side = _SIDE * min(max(height / width, 0.5), 2.0)
    tall = (side + 0.3) * len(pictures) + 0.13 * max(name.count("\n") + 1 for name in names)
    figure = new_figure(_SIDE * (len(labels) + 1) + 0.6, tall)
    grid = figure.subplots(len(pictures), len(labels) + 1, squeeze=False)
    for number, (row, picture) in enumerate(zip(grid, pictures, strict=True)):
        _draw_image(row[0], _finest(picture))
        row[0].set_title(_short(picture.name), fontsize=7)
        mine = [maps[label, picture.name] for label in labels]
        scaled = [each.weights * each.weights.size for each in mine]
        low, high = min(m.min() for m in scaled), max(m.max() for m in scaled)
        for panel, each, values, name in zip(row[1:], mine, scaled, names, strict=True):
            image = panel.imshow(
                values, cmap=PLAIN_MAP, vmin=low, vmax=high, extent=_UNIT, aspect="auto"
            )
            panel.set_box_aspect(height / width)
            answer = f"{_short(each.predicted)}, {each.probability:.0%}"
            panel.set_title(answer if number else f"{name}\n{answer}", fontsize=7)
        bar = figure.colorbar(image, ax=list(row), shrink=0.85, pad=0.015, aspect=14)
        bar.ax.tick_params(labelsize=6, length=2)
        for panel in row:
            panel.set_xticks([])
            panel.set_yticks([])
    return figure


def _finest(picture: Picture) -> Tensor:
    """The image as the model with the largest one sees it, in colour if one of those does."""
    return max(picture.seen, key=lambda seen: (seen.shape[-2] * seen.shape[-1], seen.shape[0]))


def _draw_image(panel: Any, pixels: Tensor) -> None:
    height, width = pixels.shape[-2:]
    image = pixels.permute(1, 2, 0).numpy() / 255.0
    if image.shape[-1] == 1:
        image = image.repeat(3, axis=-1)
    panel.imshow(image, extent=_UNIT, aspect="auto")
    panel.set_box_aspect(height / width)


def _short(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[: _LINE - 1]}…"


def _lines(text: str) -> str:
    return "\n".join(text[start : start + _LINE] for start in range(0, len(text), _LINE))
