"""What attention biases that are functions of the displacement on a lattice have in common."""

from __future__ import annotations

from typing import Any

from training.encodings.elliptic_values import Frame, learned_part
from training.encodings.encoding import AbstractEncoding, EncodingSize
from training.encodings.grid import Grid, Offsets, grid_offsets
from training.encodings.lattice import LatticeParameter
from wefpe_core import Lattice


class LatticeBias(AbstractEncoding):
    """A lattice that may be learned, and a grid laid on it.

    `options` has the options of the lattice (learnable, lattice, g2, g3, tau_min, tau_max,
    backend) and of the grid (alpha_u, alpha_v).
    """

    kind = "bias"

    def __init__(self, size: EncodingSize, options: Any) -> None:
        super().__init__(size)
        learned = learned_part(options.backend, options.learnable, options.lattice)
        self.options = options
        self.alpha_u = options.alpha_u
        self.alpha_v = options.alpha_u if options.alpha_v is None else options.alpha_v
        self.lattice_parameter = LatticeParameter(
            Lattice.from_invariants(options.g2, options.g3),
            learned,
            options.tau_min,
            options.tau_max,
        )

    def lattice(self) -> Lattice:
        """The present lattice, as numbers."""
        return self.lattice_parameter.lattice()

    def offsets(self, grid: Grid) -> Offsets:
        """The displacements of a grid; an index table, the same for ever."""
        return self.table(("offsets", grid), lambda: grid_offsets(grid, self.device), depends_on=())

    def frame(self, grid: Grid) -> Frame:
        """How the grid lies on the lattice."""
        return Frame(grid, self.alpha_u, self.alpha_v)
