"""Options of the encodings with elliptic functions, and what follows from several of them.

Nothing here needs torch, so that a config is judged without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from training.encodings.option_types import EncodingOptions, option, parse_options
from training.encodings.options import CENTRES_MEANING, RESAMPLING_MEANING, Centres, Resampling
from training.encodings.size import EncodingSize, refuse_poles
from training.errors import EncodingOptionError
from wefpe_core import Lattice, WefpeError, get_backend
from wefpe_core.errors import LatticeError

Compression = Literal["tanh", "softsign"]
Fidelity = Literal["corrected", "paper", "authors"]
FourierRecipe = Literal["cifar100", "svhn", "resisc45", "dmlab"]
InitialBias = Literal["uniform", "zero"]
LearnedPart = Literal["nothing", "omega3", "general"]
ListingRecipe = Literal["vit", "dhvt"]
Projection = Literal["linear", "mlp"]

# The bounds of Im tau, unless others are given; tau -> -1/tau exchanges them.
TAU_MIN, TAU_MAX = 0.3, 1.0 / 0.3
# The half-period the paper prints for g2 = 1, g3 = 0: Gamma(1/4)^2/(2 sqrt(2 pi)), where
# Gamma(1/4)^2/(4 sqrt(pi)) is right. For any other g3 it has a placeholder.
LISTING_HALF_PERIOD = 2.62205755429212
PLACEHOLDER_HALF_PERIOD = 1.0
LISTING_EPSILON = 1e-8
MLP_DROPOUT = 0.05  # of the published script for ViT
BETA_FLOOR = 0.01  # of the corrected surrogate: 1/beta is the largest feature
AUTHORS_SCALES = (0.002, 0.8)  # the published script clamps scale to these
# How much of a period the grid covers. The paper calls the factors adjustable and names no value.
_ALPHAS: dict[Fidelity, float] = {"corrected": 0.5, "paper": 1.0, "authors": 0.4}
# Far from poles wp and wp' are small: with this the features of the default grid reach 0.8.
_CENTRED_SCALE = 2.0

_ALPHA_V = "periods covered by the height of the grid; unset: as alpha_u"
_BACKEND = (
    "the backend that evaluates the elliptic functions; one that torch cannot differentiate in the "
    "lattice, such as numpy, mpmath or jax, needs learnable=false"
)
_G2_G3 = "invariant of the lattice at the start"
_TAU_MIN = "lower bound of Im tau when the lattice is learned"
_TAU_MAX = "upper bound of Im tau when the lattice is learned"


def check_backend(name: str, learnable: bool) -> None:
    """Raise EncodingOptionError unless the backend is here and can do what an encoding needs."""
    if name == "torch":  # it can do everything, and is not imported for that
        return
    try:
        can = get_backend(name).capabilities
    except WefpeError as error:
        raise EncodingOptionError(f"backend={name!r}: {error}") from error
    if learnable and not (can.differentiable_in_lattice and can.gradients_by == "torch"):
        if can.differentiable_in_lattice:
            lack = f"its gradients are those of {can.gradients_by}, and torch trains the model"
        else:
            lack = "it is not differentiable in the lattice"
        raise EncodingOptionError(
            f"backend={name!r} cannot learn the lattice: {lack}; set learnable=false or "
            "backend='torch'"
        )
    if "complex128" not in can.dtypes:
        has = ", ".join(can.dtypes)
        hint = "; set the environment variable JAX_ENABLE_X64=1" if name == "jax" else ""
        raise EncodingOptionError(
            f"backend={name!r} lacks complex128, which tables are computed in (it has {has}){hint}"
        )


def learned_part(options: WeierstrassOptions | LatticeBiasOptions) -> LearnedPart:
    """What of the lattice is learned; EncodingOptionError if the options contradict each other."""
    check_backend(options.backend, options.learnable)
    if not options.learnable and options.lattice == "general":
        raise EncodingOptionError("lattice='general' says what is learned, but learnable is false")
    if not options.learnable:
        return "nothing"
    return "general" if options.lattice == "general" else "omega3"


def check_aspect(start: Lattice, tau_min: float, tau_max: float) -> None:
    """Raise LatticeError unless a lattice that is to be learned starts between its bounds."""
    aspect = start.tau.imag
    if not tau_min < aspect < tau_max:
        raise LatticeError(
            f"Im tau = {aspect:g} at the start is not between tau_min={tau_min:g} and "
            f"tau_max={tau_max:g}"
        )


def listing_half_period(g2: float, g3: float) -> float:
    """omega1 (and omega3/i) of the paper's listing, which looks at g3 only."""
    if not abs(g2**3 - 27.0 * g3**2) > LISTING_EPSILON:
        raise EncodingOptionError(
            f"the listing refuses g2={g2:g}, g3={g3:g}: its discriminant is within "
            f"{LISTING_EPSILON:g} of 0"
        )
    return LISTING_HALF_PERIOD if abs(g3) < LISTING_EPSILON else PLACEHOLDER_HALF_PERIOD


class StartingValues(NamedTuple):
    """The values of options of `weierstrass` that depend on others where they are unset."""

    g2: float
    g3: float
    scale: float
    projection: Projection
    dropout: float


_STARTING_VALUES: dict[ListingRecipe, StartingValues] = {
    "vit": StartingValues(1.0, 0.0, 0.15, "linear", MLP_DROPOUT),
    "dhvt": StartingValues(0.8, 0.2, 0.10, "mlp", 0.08),
}


class WeierstrassOptions(EncodingOptions):
    """Options of `weierstrass`."""

    fidelity: Fidelity = option(
        "corrected",
        "corrected: exact wp on the lattice that is learned; paper: the printed text (half-period "
        "2.622, 12x12 sum, clamps); authors: the published script (lattice fixed, exp, clamps)",
    )
    recipe: ListingRecipe | None = option(
        None, "the published script whose sum and constants authors takes; unset: vit"
    )
    function: Literal["wp", "powers"] = option(
        "wp", "wp and wp', or as a control w and w^2, where w is the place of the patch in a square"
    )
    features: Literal[4, 2] = option(4, "Re and Im of wp and wp', or of wp alone (ablation 1)")
    learnable: bool = option(True, "learn the lattice and the compression (ablation 2: false)")
    g2: float | None = option(None, f"{_G2_G3} (ablation 3); unset: 1 (dhvt 0.8)")
    g3: float | None = option(None, f"{_G2_G3} (ablation 3); unset: 0 (dhvt 0.2)")
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
    tau_min: float = option(TAU_MIN, _TAU_MIN, above=0.0)
    tau_max: float = option(TAU_MAX, _TAU_MAX, above=0.0)
    alpha_u: float | None = option(
        None,
        "periods covered by the width of the grid; unset: 0.5 (paper 1, authors 0.4)",
        above=0.0,
    )
    alpha_v: float | None = option(None, _ALPHA_V, above=0.0)
    learn_alpha: bool = option(
        False, "learn alpha_u and alpha_v, between alpha_min and alpha_max (the adaptive scale)"
    )
    alpha_min: float = option(0.1, "lower bound of alpha_u and alpha_v if learned", above=0.0)
    alpha_max: float = option(1.0, "upper bound, at most 1: then no patch meets a pole", above=0.0)
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
        "biases of the projection at the start: as torch makes them, and then they are most of the "
        "table; or 0, and then most of the table depends on the place",
    )
    class_token: bool = option(True, "a learned vector for the class token, scaled by beta_pos")
    backend: str = option("torch", _BACKEND)

    def alphas(self) -> tuple[float, float]:
        """alpha_u and alpha_v, with the values of those left unset."""
        alpha_u = _ALPHAS[self.fidelity] if self.alpha_u is None else self.alpha_u
        return alpha_u, alpha_u if self.alpha_v is None else self.alpha_v

    def starting_values(self) -> StartingValues:
        """Values at the start: those given, and the others as the recipe and the origin say."""
        values = _STARTING_VALUES[self.recipe or "vit"]
        if self.origin == "half_period":
            values = values._replace(scale=_CENTRED_SCALE)
        given = {name: getattr(self, name) for name in ("g2", "g3", "scale", "projection")}
        return values._replace(**{key: value for key, value in given.items() if value is not None})

    def starting_lattice(self) -> Lattice:
        """The lattice of ``fidelity="corrected"`` at the start."""
        values = self.starting_values()
        lattice = Lattice.from_invariants(values.g2, values.g3)
        if self.start == "square":
            return Lattice.rectangular(lattice.omega1.real, lattice.omega1.real)
        return lattice

    def learned_part(self) -> LearnedPart:
        """What of the lattice is learned: nothing by powers, which know no lattice."""
        part = learned_part(self)
        return "nothing" if self.function == "powers" else part

    def check(self, size: EncodingSize) -> None:
        if self.recipe is not None and self.fidelity != "authors":
            raise EncodingOptionError("recipe is for fidelity='authors'")
        values, (low, high) = self.starting_values(), AUTHORS_SCALES
        if self.fidelity == "authors" and not low <= values.scale <= high:
            raise EncodingOptionError(
                f"the authors clamp scale to [{low:g}, {high:g}]: {values.scale:g}"
            )
        if self.fidelity != "corrected":
            self._check_published()
        learned = self.learned_part()
        if self.learn_alpha:
            self._check_learned_alphas()
        refuse_poles(size.grid, *self.alphas(), self.origin == "half_period")
        if self.fidelity != "corrected":
            listing_half_period(values.g2, values.g3)
            return
        start = self.starting_lattice()
        if learned != "nothing":
            check_aspect(start, self.tau_min, self.tau_max)

    def _check_learned_alphas(self) -> None:
        if not self.learnable or self.function == "powers":
            raise EncodingOptionError("learn_alpha needs learnable=true and function='wp'")
        if not all(self.alpha_min < alpha < self.alpha_max <= 1.0 for alpha in self.alphas()):
            alphas = " and ".join(f"{alpha:g}" for alpha in self.alphas())
            raise EncodingOptionError(
                f"alpha_u and alpha_v, {alphas} at the start, must be between alpha_min="
                f"{self.alpha_min:g} and alpha_max={self.alpha_max:g}, which is at most 1"
            )

    def _check_published(self) -> None:
        """The printed text and the scripts know neither of these options."""
        names = ("function", "lattice", "origin", "start", "backend", "tau_min", "tau_max")
        for name in (*names, "learn_alpha"):
            value, needed = getattr(self, name), type(self).model_fields[name].default
            if value != needed:
                raise EncodingOptionError(
                    f"{name}={value!r} is for fidelity='corrected'; fidelity={self.fidelity!r} "
                    f"has {needed!r} only"
                )


class WeierstrassFourierOptions(EncodingOptions):
    """Options of `weierstrass_fourier`."""

    fidelity: Fidelity = option(
        "corrected",
        "corrected and paper: the printed series with its Wirtinger derivative, on the half-period "
        "of g2 = 1 with a bounded omega3, or on 2.622 with softplus; authors: a published script",
    )
    recipe: FourierRecipe | None = option(
        None, "the published script whose constants authors takes; unset: cifar100"
    )
    terms: int | None = option(
        None, "K, the number of terms; unset: 3 (authors: as published)", at_least=1
    )
    alpha_u: float | None = option(
        None, "periods covered by the width of the grid; unset: 0.5", above=0.0
    )
    alpha_v: float | None = option(None, _ALPHA_V, above=0.0)
    beta: float | None = option(None, "beta at the start; unset: 0.75", above=BETA_FLOOR)
    gamma: float | None = option(None, "gamma at the start; unset: 0.9", above=0.0)
    scale: float | None = option(
        None, "sigma, the factor inside tanh, at the start; unset: 0.05 (authors: as published)"
    )
    learnable: bool = option(True, "learn omega3, beta, gamma, sigma and the modulation mu")
    tau_min: float = option(TAU_MIN, _TAU_MIN, above=0.0)
    tau_max: float = option(TAU_MAX, _TAU_MAX, above=0.0)
    projection: Literal["deep", "linear", "mlp"] = option(
        "deep", "from the features to dim: three layers as in the scripts, or as in weierstrass"
    )
    class_token: bool = option(True, "a learned vector for the class token")

    def alphas(self) -> tuple[float, float]:
        """alpha_u and alpha_v, with the values of those left unset."""
        alpha_u = 0.5 if self.alpha_u is None else self.alpha_u
        return alpha_u, alpha_u if self.alpha_v is None else self.alpha_v

    def check(self, size: EncodingSize) -> None:
        if self.fidelity == "corrected":
            if self.learnable:
                check_aspect(Lattice.lemniscatic(), self.tau_min, self.tau_max)
        elif (self.tau_min, self.tau_max) != (TAU_MIN, TAU_MAX):
            raise EncodingOptionError("tau_min and tau_max are for fidelity='corrected'")
        if self.fidelity != "authors":
            if self.recipe is not None:
                raise EncodingOptionError("recipe is for fidelity='authors'")
            return
        for name in ("terms", "alpha_u", "alpha_v", "beta", "gamma"):
            if getattr(self, name) is not None:
                raise EncodingOptionError(f"{name} comes from the recipe with fidelity='authors'")


class HybridOptions(EncodingOptions):
    """Options of `weierstrass_hybrid`."""

    wef: Literal["weierstrass_fourier", "weierstrass"] = option(
        "weierstrass_fourier", "the encoding that is mixed with the learned table"
    )
    wef_options: Mapping[str, Any] | None = option(None, "its options")
    fidelity: Fidelity = option(
        "corrected",
        "handed on to the encoding; authors also adds the learned table twice, as the scripts do: "
        "lambda WEF + (2 - lambda) E",
    )
    lambda_raw: float = option(0.5, "the gate at the start is sigmoid(lambda_raw)")
    table: Literal["pretrained", "fresh"] = option(
        "pretrained", "pretrained: refuse to work until a table is loaded; fresh: start at random"
    )
    prefix_tokens: int = option(
        1, "rows of the learned table for class and register tokens, kept as they are", at_least=0
    )
    resampling: Resampling = option("bicubic_antialias", RESAMPLING_MEANING)

    def mixed_options(self) -> WeierstrassOptions | WeierstrassFourierOptions:
        """The options of the encoding that is mixed with the table."""
        given = dict(self.wef_options or {})
        for name, reason in (
            ("class_token", "the class token keeps its learned row"),
            ("fidelity", "it is an option of the hybrid"),
        ):
            if name in given:
                raise EncodingOptionError(f"wef_options cannot hold {name!r}: {reason}")
        given |= {"class_token": False, "fidelity": self.fidelity}
        kind = WeierstrassOptions if self.wef == "weierstrass" else WeierstrassFourierOptions
        options: WeierstrassOptions | WeierstrassFourierOptions = parse_options(
            kind, self.wef, given
        )
        return options

    def check(self, size: EncodingSize) -> None:
        self.mixed_options().check(size)


class LatticeBiasOptions(EncodingOptions):
    """What the options of attention biases on a lattice have in common."""

    learnable: bool
    lattice: Literal["rectangular", "general"]
    g2: float = option(1.0, _G2_G3)
    g3: float = option(0.0, _G2_G3)
    tau_min: float = option(TAU_MIN, _TAU_MIN, above=0.0)
    tau_max: float = option(TAU_MAX, _TAU_MAX, above=0.0)
    alpha_u: float = option(0.5, "periods covered by the width of the grid", above=0.0)
    alpha_v: float | None = option(None, _ALPHA_V, above=0.0)
    backend: str = option("torch", _BACKEND)

    def alphas(self) -> tuple[float, float]:
        """alpha_u and alpha_v, with the value of the latter if it is unset."""
        return self.alpha_u, self.alpha_u if self.alpha_v is None else self.alpha_v

    def starting_lattice(self) -> Lattice:
        return Lattice.from_invariants(self.g2, self.g3)

    def check(self, size: EncodingSize) -> None:
        learned, start = learned_part(self), self.starting_lattice()
        if learned != "nothing":
            check_aspect(start, self.tau_min, self.tau_max)


class RelativeOptions(LatticeBiasOptions):
    """Options of `weierstrass_relative`."""

    features: Literal[4, 2] = option(4, "Re and Im of wp and wp', or of wp alone (then symmetric)")
    learnable: bool = option(True, "learn the lattice and the compression")
    lattice: Literal["rectangular", "general"] = option(
        "rectangular", "what learnable learns: omega3, or also the skew and omega1"
    )
    compression: Compression = option(
        "tanh", "what bounds the features: tanh(s f), or softsign s f/(1 + |s f|)"
    )
    scale: float = option(0.15, "factor inside the compression at the start", above=0.0)
    diagonal: Literal["learned", "zero"] = option(
        "learned", "bias of a patch on itself, where wp is infinite: one number per head, or 0"
    )
    per_layer: bool = option(True, "weights for each layer, or one set for all")
    initial_std: float = option(0.02, "standard deviation of the weights at the start", above=0.0)

    def check(self, size: EncodingSize) -> None:
        super().check(size)
        refuse_poles(size.grid, *self.alphas())


class GreenOptions(LatticeBiasOptions):
    """Options of `weierstrass_green`."""

    learnable: bool = option(True, "learn the lattice (the strengths are always learned)")
    lattice: Literal["rectangular", "general"] = option(
        "rectangular",
        "what learnable learns: omega3, or also the skew and omega1 (then the decay is no theorem)",
    )
    alpha_u: float = option(
        0.5, "periods covered by the width of the grid; the decay holds up to 1/2", above=0.0
    )
    strength: float = option(1.0, "factor of every head at the start", above=0.0)
    diagonal: Literal["disk_mean", "nearest"] = option(
        "disk_mean",
        "bias of a patch on itself, where G is infinite: the mean of G over a disk of one patch's "
        "area, or the largest value at another patch",
    )
    form: Literal["linear", "log"] = option(
        "linear",
        "the bias is s G, or s log(1 + G - min G): with s = 1 the attention itself is then G, but "
        "for a constant, as long as queries and keys are silent",
    )
    per_layer: bool = option(True, "strengths for each layer, or one set for all")


class HeatOptions(LatticeBiasOptions):
    """Options of `weierstrass_heat`."""

    learnable: bool = option(
        True, "learn the lattice (widths, centres and strengths are always learned)"
    )
    lattice: Literal["rectangular", "general"] = option(
        "rectangular",
        "what learnable learns: omega3, or also the skew and omega1 (then the decay is no theorem)",
    )
    alpha_u: float = option(
        0.5, "periods covered by the width of the grid; the decay holds up to 1/2", above=0.0
    )
    width: float = option(
        2.0, "square root of t at the start, in columns of the grid it is made for", above=0.0
    )
    strength: float = option(1.0, "factor of every head at the start", above=0.0)
    centres: Centres = option("ring", CENTRES_MEANING)
    per_layer: bool = option(True, "widths, centres and strengths for each layer, or one set")
    backend: Literal["torch"] = option(
        "torch", "who evaluates: widths have gradients in torch only"
    )
