"""Models whose positions are tables of numbers, for one size of image.

A runtime without our operators, such as one for ONNX, cannot evaluate elliptic functions. At a
given size it need not: what an encoding adds does not depend on the image.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.encodings.grid import Grid, checked_grid
from training.parsing import ImageSize, grid_of_size
from wefpe_core.errors import InputError

Model = TypeVar("Model", bound=nn.Module)


def fold_positions(model: Model, image_size: ImageSize) -> Model:
    """A copy of a model, in evaluation mode, that has its positions for one size as tables.

    Parameters
    ----------
    model : VisionTransformer or HybridVisionTransformer
    image_size : int or (int, int)
        The side of a square, or (height, width), in pixels.

    Returns
    -------
    nn.Module
        It refuses images of another size. Tokens are turned as before, by
        angles computed anew or, with `liere`, by a table of matrices.
    """
    source: Any = model
    if not isinstance(getattr(model, "encoding", None), AbstractEncoding):
        raise InputError(f"{type(model).__name__} has no position encoding to fold")
    patch = source.patch_embed.patch_size
    grid = grid_of_size(image_size, patch)
    folded: Any = deepcopy(model).eval()
    folded.encoding = FoldedEncoding(folded.encoding, grid)
    result: Model = folded
    return result


class FoldedEncoding(AbstractEncoding):
    """Another encoding at one grid: its tables as they are now, as buffers."""

    patches: Tensor | None

    name = "folded"
    kind = "combined"
    summary = "the tables of another encoding at one grid"
    formula = "those of the other"

    def __init__(self, encoding: AbstractEncoding, grid: Grid) -> None:
        super().__init__(encoding.size)
        encoding.check_ready()
        self.grid = checked_grid(grid)
        self.folded = encoding
        encoding.fold(self.grid)
        with torch.no_grad(), encoding.shared_pass():
            self._keep("patches", encoding.additive(self.grid))
            for layer in range(self.size.depth):
                self._keep(f"bias{layer}", encoding.bias(self.grid, layer))

    def _keep(self, name: str, table: Tensor | None) -> None:
        kept = None if table is None else table.detach().clone()
        self.register_buffer(name, kept, persistent=False)

    def _checked(self, grid: Grid) -> None:
        if tuple(checked_grid(grid)) != self.grid:
            raise InputError(
                f"positions were folded for {self.grid[0]} x {self.grid[1]} patches, got "
                f"{grid[0]} x {grid[1]}"
            )

    def additive(self, grid: Grid) -> Tensor | None:
        self._checked(grid)
        return self.patches

    def bias(self, grid: Grid, layer: int) -> Tensor | None:
        self._checked(grid)
        self.check_layer(layer)
        table: Tensor | None = getattr(self, f"bias{layer}")
        return table

    def prefix(self, n: int) -> Tensor | None:
        return self.folded.prefix(n)

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        self._checked(grid)
        return self.folded.rotate(q, k, grid, layer)
