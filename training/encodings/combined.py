"""Several encodings at once: tables added, rotations one after the other, biases added."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from training.encodings.encoding import AbstractEncoding, PassTables
from training.encodings.grid import Grid, checked_grid
from training.encodings.options import CombinedOptions
from training.encodings.registry import build_encoding
from training.encodings.size import EncodingSize


class CombinedEncoding(AbstractEncoding):
    """The sum of what its parts add, and their rotations one after the other.

    An additive encoding says where a patch is; a bias or a rotation says how far another one is.
    A model may want both. The same encoding may be there twice with other options, such as WEF-PE
    on two scales.

    In training the places of all parts can be moved together, at random and anew for every pass,
    for parts that know more than whole grids. A bias is then evaluated for every pair of patches,
    layer by layer, instead of once for every displacement of the grid.
    """

    name = "combined"
    kind = "combined"
    summary = "several encodings at once, such as an additive one and a bias"
    formula = "the sum of tables and biases, rotations in turn"
    options_class = CombinedOptions

    def __init__(self, size: EncodingSize, options: CombinedOptions) -> None:
        super().__init__(size)
        self.options = options
        self.parts = nn.ModuleList(
            build_encoding(name, **size._asdict(), **given) for name, given in options.encodings()
        )
        if options.moves_places:
            self._check_places()

    def _check_places(self) -> None:
        """Raise `InputError` if a part knows whole grids only."""
        place, token = (
            torch.full((1, 2), 0.4),
            torch.zeros(1, self.size.num_heads, 1, self.size.head_dim),
        )
        with torch.no_grad():
            self.additive_at(place)
            self.bias_at(place, 0)
            self.rotate_at(token, token, place, 0)

    def _each(self) -> list[AbstractEncoding]:
        return list(self.parts)  # type: ignore[arg-type]

    @property
    def is_moved(self) -> bool:
        return self.training and self.options.moves_places

    @property
    def draws_in_training(self) -> bool:
        return self.options.moves_places or any(part.draws_in_training for part in self._each())

    def draw_places(self, grid: Grid) -> None:
        if self.is_moved:
            self._places(grid)
        for part in self._each():
            part.draw_places(grid)

    def _places(self, grid: Grid) -> Tensor:
        """Where the patches of this pass are for all parts, (patches, 2)."""
        return torch.stack(self.moved_centres(checked_grid(grid), self.options), -1)

    def additive(self, grid: Grid) -> Tensor | None:
        if self.is_moved:
            return self.additive_at(self._places(grid))
        return _sum(super().additive(grid), *(part.additive(grid) for part in self._each()))

    def prefix(self, n: int) -> Tensor | None:
        return _sum(super().prefix(n), *(part.prefix(n) for part in self._each()))

    def bias(self, grid: Grid, layer: int) -> Tensor | None:
        if self.is_moved:
            return self.bias_at(self._places(grid), layer)
        biases = (part.bias(grid, layer) for part in self._each())
        return _sum(super().bias(grid, layer), *biases)

    def additive_at(self, points: Tensor) -> Tensor | None:
        return _sum(*(part.additive_at(points) for part in self._each()))

    def bias_at(self, points: Tensor, layer: int) -> Tensor | None:
        return _sum(*(part.bias_at(points, layer) for part in self._each()))

    def rotate_at(self, q: Tensor, k: Tensor, points: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        for part in self._each():
            q, k = part.rotate_at(q, k, points, layer)
        return q, k

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        q, k = super().rotate(q, k, grid, layer)
        if self.is_moved:
            return self.rotate_at(q, k, self._places(grid), layer)
        for part in self._each():
            q, k = part.rotate(q, k, grid, layer)
        return q, k

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for number, part in enumerate(self._each()):
            start = f"parts.{number}."
            own = {
                key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)
            }
            found |= {start + key: t for key, t in part.brought_here(own, grid).items()}
        return found

    def learned_numbers(self) -> dict[str, Tensor]:
        return {
            f"{name} (part {number})": value
            for number, part in enumerate(self._each(), start=1)
            for name, value in part.learned_numbers().items()
        }

    def check_ready(self) -> None:
        for part in self._each():
            part.check_ready()

    def fold(self, grid: Grid) -> None:
        for part in self._each():
            part.fold(grid)

    def no_weight_decay(self) -> set[str]:
        return {
            f"parts.{number}.{name}"
            for number, part in enumerate(self._each())
            for name in part.no_weight_decay()
        }

    @contextmanager
    def shared_pass(
        self, tables: PassTables | None = None, *, is_complete: bool = False
    ) -> Iterator[None]:
        """As in `AbstractEncoding`. Parts may use the same keys, so each has tables of its own."""
        kept: PassTables = [] if tables is None else tables
        if not kept:
            kept.extend((number, []) for number in range(1 + len(self.parts)))
        passes = (*(part.shared_pass for part in self._each()), super().shared_pass)
        with ExitStack() as stack:
            for shared_pass, (_, own) in zip(passes, kept, strict=True):
                stack.enter_context(shared_pass(own, is_complete=is_complete))
            yield


def _sum(*terms: Tensor | None) -> Tensor | None:
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total
