"""WEF-PE for training from scratch: features of wp and wp' at the patch centres."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encodings.elliptic_values import (
    BACKEND_MEANING,
    BackendName,
    Frame,
    Values,
    fixed_wp,
    learned_part,
    learned_wp,
)
from training.encodings.encoding import AbstractEncoding, EncodingSize, prefix_rows, scalar
from training.encodings.grid import Grid, checked_grid, patch_centres, refuse_poles
from training.encodings.lattice import TAU_MAX, TAU_MIN, HalfPeriods, LatticeParameter
from training.encodings.options import option
from training.encodings.paper_listing import (
    LISTINGS,
    RecipeName,
    clamped_lattice_sum,
    listing_half_period,
)
from training.encodings.projection import (
    MLP_DROPOUT,
    InitialBias,
    Projection,
    inverse_softplus,
    projection,
)
from training.errors import EncodingOptionError
from wefpe_core import Lattice

Fidelity = Literal["corrected", "paper", "authors"]

# How much of a period the grid covers. The paper calls the factors adjustable and names no value.
_ALPHA: dict[str, float] = {"corrected": 0.5, "paper": 1.0, "authors": 0.4}
_AUTHORS_ALPHA_LEARN = 0.12
_AUTHORS_STRETCHES = (0.02, 8.0)
_AUTHORS_SCALES = (0.002, 0.8)
_CLASS_STD = 0.015
# Far from poles wp and wp' are small: with this the features of the default grid reach 0.8.
_CENTRED_SCALE = 2.0


class Start(NamedTuple):
    """What the options left unset are."""

    g2: float
    g3: float
    scale: float
    projection: Projection
    dropout: float


_STARTS: dict[RecipeName, Start] = {
    "vit": Start(1.0, 0.0, 0.15, "linear", MLP_DROPOUT),
    "dhvt": Start(0.8, 0.2, 0.10, "mlp", 0.08),
}


@dataclass(frozen=True, kw_only=True)
class WeierstrassOptions:
    """Options of `weierstrass`."""

    fidelity: Fidelity = option(
        "corrected",
        "corrected: exact wp on the lattice that is learned; paper: the printed text (half-period "
        "2.622, 12x12 sum, clamps); authors: the published script (lattice fixed, exp, clamps)",
    )
    recipe: RecipeName | None = option(
        None, "the published script whose sum and constants authors takes; unset: vit"
    )
    function: Literal["wp", "powers"] = option(
        "wp", "wp and wp', or as a control w and w^2, w the place of the patch in a square"
    )
    features: Literal[4, 2] = option(4, "Re and Im of wp and wp', or of wp alone (ablation 1)")
    learnable: bool = option(True, "learn the lattice and the compression (ablation 2: false)")
    g2: float | None = option(
        None, "invariant of the lattice at the start (ablation 3); unset: 1 (dhvt 0.8)"
    )
    g3: float | None = option(
        None, "invariant of the lattice at the start (ablation 3); unset: 0 (dhvt 0.2)"
    )
    adaptive_strength: bool = option(True, "learn beta_pos (ablation 4: false, fixed at 1)")
    lattice: Literal["rectangular", "general"] = option(
        "rectangular",
        "what learnable learns: omega3 along its direction, or also the skew and omega1",
    )
    origin: Literal["pole", "half_period"] = option(
        "pole",
        "pole: the corner of the grid is a pole of wp, as in the paper; half_period: the middle of "
        "the grid is omega1 + omega3, where no pole is near and wp, wp' begin like w^2 and w",
    )
    start: Literal["invariants", "square"] = option(
        "invariants", "the lattice at the start: that of g2, g3, or the square with its omega1"
    )
    tau_min: float = option(TAU_MIN, "lower bound of Im tau when learned", above=0.0)
    tau_max: float = option(TAU_MAX, "upper bound of Im tau when learned", above=0.0)
    alpha_u: float | None = option(
        None,
        "periods covered by the width of the grid; unset: 0.5 (paper 1, authors 0.4)",
        above=0.0,
    )
    alpha_v: float | None = option(
        None, "periods covered by the height of the grid; unset: as alpha_u", above=0.0
    )
    scale: float | None = option(
        None, "factor inside tanh at the start; unset: 0.15 (dhvt 0.1, half_period 2)", above=0.0
    )
    strength: float | None = option(
        None, "beta_pos at the start; unset: 0.8, or 1 if it is not adaptive", above=0.0
    )
    projection: Projection | None = option(
        None, "from the features to dim, ending in LayerNorm; unset: linear (dhvt mlp)"
    )
    initial_bias: InitialBias = option(
        "uniform",
        "biases of the projection at the start: as torch makes them, which then are most of the "
        "table, or 0, so that most of it depends on the place",
    )
    class_token: bool = option(True, "a learned vector for the class token, scaled by beta_pos")
    backend: BackendName = option("torch", BACKEND_MEANING)


class WeierstrassEncoding(AbstractEncoding):
    r"""Weierstrass elliptic function positional encoding.

    The centre of a patch, :math:`u = (j+\frac12)/W`, :math:`v = (i+\frac12)/H`, becomes
    :math:`z = 2(\alpha_u u\,\omega_1 + \alpha_v v\,\omega_3)`; then

    .. math:: f = ({\rm Re}\wp, {\rm Im}\wp, {\rm Re}\wp', {\rm Im}\wp')(z), \qquad
              PE = \beta_{pos}\,{\rm LayerNorm}(W\tanh(s f) + b).

    Symmetries that follow: with alpha 1 a patch and the one opposite through the middle have equal
    wp and opposite wp', so two features do not tell them apart; on rectangles the mirror image in
    u has conjugate wp and minus the conjugate of wp'. With alpha up to 1/2 wp alone is injective.
    ``origin="half_period"`` has a point of symmetry in the middle of the grid, not a pole in its
    corner: z = omega1 + omega3 + 2 (alpha_u (u - 1/2) omega1 + alpha_v (v - 1/2) omega3).

    ``authors`` evaluates on a fixed square lattice: its ``alpha_learn`` stretches z only.
    """

    name = "weierstrass"
    kind = "additive"
    summary = "features of wp and wp' at the patch centres, on a learned lattice"
    formula = "x_i + beta LN(W tanh(s [Re wp, Im wp, Re wp', Im wp'](z_i)) + b)"
    options_class = WeierstrassOptions

    def __init__(self, size: EncodingSize, options: WeierstrassOptions) -> None:
        super().__init__(size)
        self.begins = begins = _begins(options)
        _check(options, begins)
        learned = learned_part(options.backend, options.learnable, options.lattice)
        if options.function == "powers":  # which know no lattice
            learned = "nothing"
        self.options = options
        self._listing = LISTINGS[options.recipe or "vit"]
        self._is_authors = options.fidelity == "authors"
        self.alpha_u = _ALPHA[options.fidelity] if options.alpha_u is None else options.alpha_u
        self.alpha_v = self.alpha_u if options.alpha_v is None else options.alpha_v
        refuse_poles(*self.frame(size.grid))
        self.lattice_parameter, self.alpha_learn = None, None
        if options.fidelity == "corrected":
            self.lattice_parameter = LatticeParameter(
                _start(options, begins), learned, options.tau_min, options.tau_max
            )
        else:
            self._omega1 = listing_half_period(begins.g2, begins.g3)
            square = inverse_softplus(self._omega1)
            self._alpha_start = _AUTHORS_ALPHA_LEARN if self._is_authors else square
            if options.learnable:
                self.alpha_learn = nn.Parameter(torch.tensor(self._alpha_start))
        self.alpha_raw = None
        if options.learnable:
            inverse = math.log if self._is_authors else inverse_softplus
            self.alpha_raw = nn.Parameter(torch.tensor(inverse(begins.scale)))
        strength = options.strength or (0.8 if options.adaptive_strength else 1.0)
        self._strength = strength
        self.beta_pos = None
        if options.adaptive_strength:
            self.beta_pos = nn.Parameter(torch.full((1,), strength))
        self.projection = projection(
            begins.projection, options.features, size.dim, begins.dropout, options.initial_bias
        )
        self.class_encoding = (
            nn.Parameter(_CLASS_STD * torch.randn(1, size.dim)) if options.class_token else None
        )

    def lattice(self) -> Lattice:
        """The lattice on which wp is evaluated at present, as numbers."""
        if self.lattice_parameter is not None:
            return self.lattice_parameter.lattice()
        if self._is_authors:
            return Lattice.rectangular(self._omega1, self._omega1)
        with torch.no_grad():
            return Lattice.rectangular(self._omega1, float(self._stretch()))

    def points(self, grid: Grid) -> Tensor:
        """Where the patches lie in the complex plane, (height*width,), with gradients."""
        frame = self.frame(checked_grid(grid))
        u, v = frame.centres(self.working_dtype, self.device)
        if self.lattice_parameter is not None:
            omegas = self.lattice_parameter.half_periods(self.device)
        else:
            omega1 = scalar(self._omega1, self.working_dtype, self.device)
            omegas = HalfPeriods(omega1, torch.zeros_like(omega1), self._stretch())
        return frame.on(omegas, u, v)

    def frame(self, grid: Grid) -> Frame:
        """How the grid lies on the lattice."""
        return Frame(grid, self.alpha_u, self.alpha_v, self.options.origin == "half_period")

    def _stretch(self) -> Tensor:
        """omega3/i of the paper; the authors' factor of the rows."""
        if self.alpha_learn is None:
            alpha = scalar(self._alpha_start, self.working_dtype, self.device)
        else:
            alpha = self.alpha_learn.to(self.working_dtype)
        height = F.softplus(alpha)
        return height.clamp(*_AUTHORS_STRETCHES) if self._is_authors else height

    def values(self, grid: Grid) -> Values:
        """Re and Im of wp and wp' at the patches, float64, with gradients."""
        grid = checked_grid(grid)
        if self.options.function == "powers":
            return self._powers(grid)
        refuse_poles(*self.frame(grid))
        parameter = self.lattice_parameter
        if parameter is None:
            z = self.points(grid)
            height = self._omega1 if self._is_authors else self._stretch()
            return clamped_lattice_sum(z.real, z.imag, self._omega1, height, self._listing)
        if parameter.learned == "nothing":
            return self.table(("values", grid), lambda: self._fixed_values(grid), depends_on=())
        return learned_wp(self.frame(grid), parameter.half_periods(self.device))

    def _powers(self, grid: Grid) -> Values:
        """w and w^2 with Re w and Im w from -1 to 1, so scaled that tanh begins with them."""
        u, v = patch_centres(grid, self.working_dtype, self.device)
        x, y = 2.0 * u - 1.0, 2.0 * v - 1.0
        powers = (x, y, x * x - y * y, 2.0 * x * y)
        return Values(*(power / self.begins.scale for power in powers))

    def _fixed_values(self, grid: Grid) -> Values:
        values = fixed_wp(self.options.backend, self.frame(grid), self.lattice())
        return Values(*(x.to(self.working_dtype).to(self.device) for x in values))

    def features(self, grid: Grid) -> Tensor:
        """The compressed features, (height*width, 4 or 2), cast once to the module's dtype."""
        values = self.values(grid)[: self.options.features]
        return torch.tanh(self.compression_scale() * torch.stack(values, dim=-1)).to(self.dtype)

    def compression_scale(self) -> Tensor | float:
        """The factor inside tanh at present."""
        if self.alpha_raw is None:
            return self.begins.scale
        raw = self.alpha_raw.to(self.working_dtype)
        return torch.exp(raw).clamp(*_AUTHORS_SCALES) if self._is_authors else F.softplus(raw)

    def strength(self) -> Tensor | float:
        """beta_pos at present."""
        return self._strength if self.beta_pos is None else self.beta_pos

    def additive(self, grid: Grid) -> Tensor:
        grid = checked_grid(grid)
        return self.table(
            ("patches", grid), lambda: self._weighted(self.projection(self.features(grid)))
        )

    def prefix(self, n: int) -> Tensor | None:
        rows = self.class_encoding
        return super().prefix(n) if rows is None else prefix_rows(self._weighted(rows), n)

    def _weighted(self, rows: Tensor) -> Tensor:
        return rows * self.strength()


def _begins(options: WeierstrassOptions) -> Start:
    """The options with a value, and those of the recipe."""
    if options.recipe is not None and options.fidelity != "authors":
        raise EncodingOptionError("recipe is for fidelity='authors'")
    given = {name: getattr(options, name) for name in ("g2", "g3", "scale", "projection")}
    start = _STARTS[options.recipe or "vit"]
    if options.origin == "half_period":
        start = start._replace(scale=_CENTRED_SCALE)
    return start._replace(**{name: value for name, value in given.items() if value is not None})


def _check(options: WeierstrassOptions, begins: Start) -> None:
    corrected = options.fidelity == "corrected"
    low, high = _AUTHORS_SCALES
    if options.fidelity == "authors" and not low <= begins.scale <= high:
        raise EncodingOptionError(
            f"the authors clamp scale to [{low:g}, {high:g}]: {begins.scale:g}"
        )
    for name, value, needed in (
        ("function", options.function, "wp"),
        ("lattice", options.lattice, "rectangular"),
        ("origin", options.origin, "pole"),
        ("start", options.start, "invariants"),
        ("backend", options.backend, "torch"),
        ("tau_min", options.tau_min, TAU_MIN),
        ("tau_max", options.tau_max, TAU_MAX),
    ):
        if not corrected and value != needed:
            raise EncodingOptionError(
                f"{name}={value!r} is for fidelity='corrected'; fidelity={options.fidelity!r} "
                f"has {needed!r} only"
            )


def _start(options: WeierstrassOptions, begins: Start) -> Lattice:
    lattice = Lattice.from_invariants(begins.g2, begins.g3)
    if options.start == "square":
        return Lattice.rectangular(lattice.omega1.real, lattice.omega1.real)
    return lattice
