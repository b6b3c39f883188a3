"""Options of encodings without elliptic functions, and of several encodings at once.

Nothing here needs torch. The options of encodings with elliptic functions are in
`training.encodings.weierstrass_options`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from training.encodings.option_types import EncodingOptions, option
from training.encodings.size import EncodingSize
from training.errors import EncodingOptionError
from wefpe_core.errors import InputError

PairLayout = Literal["interleaved", "half"]
Resampling = Literal[
    "bicubic_antialias", "bicubic", "bilinear_antialias", "bilinear", "bilinear_corners"
]

Centres = Literal["ring", "zero"]
CENTRES_MEANING = (
    "where the heads look at the start: around, at a distance of one patch (ConViT), or at the "
    "patch itself"
)

RESAMPLING_MEANING = (
    "how the table is brought to another grid: bicubic_antialias (timm), bicubic (DeiT, "
    "Hugging Face), bilinear (the WEF-PE scripts), bilinear_corners (ViT, big_vision)"
)
_LAYOUT = "which channels form a pair: 2i and 2i+1, or i and i + head_dim/2"
_PERIODS = "ratio of the slowest to the fastest period"


class LearnedOptions(EncodingOptions):
    """Options of `learned`."""

    initial_std: float = option(
        0.02, "standard deviation at the start (normal, cut at -2 and 2)", above=0.0
    )
    layout: Literal["grid", "factorised"] = option(
        "grid", "one row per patch, or the sum of one per row and one per column of the grid"
    )
    prefix_tokens: int = option(
        1,
        "rows for class and register tokens; 0 leaves them without position (no_embed_class)",
        at_least=0,
    )
    resampling: Resampling = option("bicubic_antialias", RESAMPLING_MEANING)


class SinCosOptions(EncodingOptions):
    """Options of `sincos2d`."""

    convention: Literal["mae", "big_vision", "timm", "wef_authors", "periodic"] = option(
        "mae",
        "frequencies and order of channels: mae [sin x, cos x, sin y, cos y]; big_vision the same "
        "with exponents i/(m-1) (also MoCo v3, SimpleViT); timm [sin y, sin x, cos y, cos x]; "
        "wef_authors interleaved; periodic as mae with whole numbers of waves over the image",
    )
    temperature: float = option(10000.0, _PERIODS, above=0.0)
    scale: float = option(
        1.0, "factor of the table, for controls that are as strong as another encoding", above=0.0
    )
    class_token: Literal["zero", "learned"] | None = option(
        None, "position of the class token; unset: learned for wef_authors, zero otherwise"
    )

    def check(self, size: EncodingSize) -> None:
        if size.dim % 4:
            raise InputError(f"sincos2d needs dim divisible by 4, got {size.dim}")
        if self.convention == "big_vision" and size.dim < 8:
            raise InputError(f"sincos2d of big_vision needs dim of at least 8, got {size.dim}")


class Rope1dOptions(EncodingOptions):
    """Options of `rope1d`."""

    base: float = option(10000.0, _PERIODS, above=0.0)
    class_token: Literal["skip", "index_zero"] = option(
        "skip", "patches count from 0 (skip), or from 1 because the class token is number 0"
    )
    layout: PairLayout = option("interleaved", _LAYOUT)

    def check(self, size: EncodingSize) -> None:
        if size.head_dim % 2:
            raise InputError(f"rope1d needs an even head_dim, got {size.head_dim}")


class MovedPlaces(EncodingOptions):
    """Options of encodings whose places move at random in training, as DINOv3's do."""

    shift: float = option(
        0.0,
        "in training, all places are moved by up to this many halves of the image (DINOv3)",
        at_least=0.0,
    )
    jitter: float = option(
        1.0,
        "in training, each axis is stretched by a factor up to this or its inverse (DINOv3)",
        at_least=1.0,
    )
    rescale: float = option(
        1.0, "in training, both axes are stretched by one factor likewise (DINOv3: 2)", at_least=1.0
    )

    @property
    def moves_places(self) -> bool:
        return self.shift > 0.0 or self.jitter > 1.0 or self.rescale > 1.0


class RopeAxialOptions(MovedPlaces):
    """Options of `rope_axial`."""

    base: float = option(100.0, _PERIODS, above=0.0)
    coordinates: Literal["index", "reference", "centred", "periodic"] = option(
        "index",
        "what is multiplied by the frequencies: column and row (rope-vit); the same scaled to the "
        "grid of training (EVA); 2 pi times the patch centres in [-1, 1] (DINOv3); or periodic, "
        "which has whole numbers of waves over the image instead of them",
    )
    layout: PairLayout = option("interleaved", _LAYOUT)

    def check(self, size: EncodingSize) -> None:
        _check_quarters("rope_axial", size)
        if self.moves_places and self.coordinates != "centred":
            raise EncodingOptionError("shift, jitter and rescale are for coordinates='centred'")


class RopeMixedOptions(EncodingOptions):
    """Options of `rope_mixed`."""

    base: float = option(10.0, f"{_PERIODS} at the start", above=0.0)
    layout: PairLayout = option("interleaved", _LAYOUT)

    def check(self, size: EncodingSize) -> None:
        _check_quarters("rope_mixed", size)


class FopeOptions(EncodingOptions):
    """Options of `fope`."""

    pad: Literal["official", "identity"] = option(
        "official",
        "what pairs without a frequency get: cos = sin = 1 as in the published code (a turn by "
        "45 degrees and sqrt 2, the same everywhere), or cos = 1, sin = 0 (no change)",
    )
    gain: float = option(
        0.3, "gain of the random part of the coefficients (published: 0.3, 0.4, 0.6)", at_least=0.0
    )
    base: float = option(10000.0, _PERIODS, above=0.0)
    learnable: bool = option(False, "whether the coefficients are learned (published: no)")

    def check(self, size: EncodingSize) -> None:
        _check_quarters("fope", size)
        if not self.frequencies_kept(size):
            raise InputError(f"fope needs at least 7 patches, got the grid {size.grid}")

    def frequencies_kept(self, size: EncodingSize) -> int:
        """How many of base^(-2i/head_dim) are at least 2 pi over the number of patches."""
        slowest, half = 2.0 * math.pi / (size.grid[0] * size.grid[1]), size.head_dim // 2
        return sum(self.base ** (-2.0 * i / size.head_dim) >= slowest for i in range(half))


def _check_quarters(name: str, size: EncodingSize) -> None:
    if size.head_dim % 4:
        raise InputError(f"{name} needs head_dim divisible by 4, got {size.head_dim}")


class DisplacementOptions(EncodingOptions):
    """What the options of biases by displacement have in common."""

    coordinates: Literal["reference", "index"] = option(
        "reference",
        "what a displacement is counted in: patches of the grid it is made for, so that another "
        "grid sees the same function of the place; or of the grid it is called with",
    )
    per_layer: bool = option(True, "values for each layer, or one set for all")
    periodic: bool = option(
        False, "the image is a torus: of the displacements to all copies of a patch the shortest"
    )


class RelativeTableOptions(DisplacementOptions):
    """Options of `relative_table`."""

    initial_std: float = option(
        0.02, "standard deviation at the start (normal, cut at -2 and 2)", above=0.0
    )
    interpolation: Literal["bilinear", "bicubic"] = option(
        "bilinear", "how the table is read between its entries, which other grids ask for"
    )


class Alibi2dOptions(DisplacementOptions):
    """Options of `alibi2d`."""

    learnable: bool = option(False, "whether the slopes are learned (published: no)")


class GaussianOptions(DisplacementOptions):
    """Options of `gaussian`."""

    width: float = option(2.0, "sigma at the start, in patches", above=0.0)
    centres: Centres = option("ring", CENTRES_MEANING)


class LookHereOptions(DisplacementOptions):
    """Options of `lookhere`."""

    coordinates: Literal["reference", "index"] = option(
        "index", "what a distance is counted in: as in the others, or as published"
    )
    per_layer: Literal[True] = option(True, "the slopes fall from layer to layer")
    field_of_view: Literal[180, 90] = option(180, "degrees that a head with a direction sees")
    slope: float = option(1.0, "factor of all slopes", above=0.0)


class LieOptions(EncodingOptions):
    """Options of `liere`."""

    block: int = option(8, "channels that are turned together; head_dim: all of them", at_least=2)
    commuting: bool = option(
        False, "ComRoPE: half of the blocks turn with the column and half with the row"
    )
    initial: float = option(
        1.0, "size of the generators at the start: uniform from 0 to 2 pi times that", above=0.0
    )
    per_layer: bool = option(True, "generators for each layer, or one set for all")

    def check(self, size: EncodingSize) -> None:
        if size.head_dim % self.block:
            raise EncodingOptionError(
                f"block={self.block} does not divide head_dim={size.head_dim}"
            )
        if self.commuting and size.head_dim < 2 * self.block:
            raise EncodingOptionError(
                f"commuting needs two blocks or more, and block={self.block} leaves one of "
                f"head_dim={size.head_dim}"
            )


class CombinedOptions(MovedPlaces):
    """Options of `combined`."""

    parts: str = option(
        "weierstrass+weierstrass_green",
        "encodings joined by +, each with options as in weierstrass:alpha_u=0.25;g3=0.1",
    )
    prefix_tokens: int = option(
        1, "class and register tokens the parts learn rows for; 0 leaves them out", at_least=0
    )

    def encodings(self) -> list[tuple[str, dict[str, Any]]]:
        """Name and options of each part."""
        from training.encodings.registry import parse_encoding_label, token_options

        found = []
        for text in self.parts.split("+"):
            # A comma would end the option of `combined` itself.
            label = parse_encoding_label(text.replace(";", ","))
            if label.name == "combined":
                raise EncodingOptionError("a part of combined cannot be combined itself")
            rows = token_options(label.name, self.prefix_tokens)
            found.append((label.name, rows | label.options))
        if len(found) < 2 and not self.moves_places:
            raise EncodingOptionError(
                f"combined takes two or more parts joined by +, got {self.parts!r}; a single part "
                "only to move its places (shift, jitter, rescale)"
            )
        return found

    def check(self, size: EncodingSize) -> None:
        from training.encodings.registry import checked_options

        for name, given in self.encodings():
            checked_options(name, size, given)
