"""Encodings by name: found without torch, built with checked sizes and options, open to others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from training.encodings import options, weierstrass_options
from training.encodings.option_types import (
    EncodingOptions,
    NoOptions,
    OptionDescription,
    choices_of,
    describe_options,
    parse_options,
)
from training.encodings.size import EncodingSize, Grid
from training.errors import UnknownEncodingError
from training.parsing import toml_value
from wefpe_core.errors import InputError, did_you_mean, import_optional

if TYPE_CHECKING:
    from training.encodings.encoding import AbstractEncoding, Kind

AnyEncoding = TypeVar("AnyEncoding", bound="type[AbstractEncoding]")


class EncodingEntry(NamedTuple):
    """An encoding that can be built: its options, and its class or where to import it from."""

    options_class: type[EncodingOptions]
    encoding: str | type[AbstractEncoding]  # "module:Class" until torch is needed


_ENCODINGS: dict[str, EncodingEntry] = {
    "none": EncodingEntry(NoOptions, "encoding:NoEncoding"),
    "learned": EncodingEntry(options.LearnedOptions, "learned:LearnedEncoding"),
    "sincos2d": EncodingEntry(options.SinCosOptions, "sincos:SinCosEncoding"),
    "rope1d": EncodingEntry(options.Rope1dOptions, "rotary:Rope1dEncoding"),
    "rope_axial": EncodingEntry(options.RopeAxialOptions, "rotary:RopeAxialEncoding"),
    "rope_mixed": EncodingEntry(options.RopeMixedOptions, "rotary:RopeMixedEncoding"),
    "fope": EncodingEntry(options.FopeOptions, "fope:FopeEncoding"),
    "liere": EncodingEntry(options.LieOptions, "lie:LieEncoding"),
    "relative_table": EncodingEntry(
        options.RelativeTableOptions, "displacements:RelativeTableEncoding"
    ),
    "alibi2d": EncodingEntry(options.Alibi2dOptions, "displacements:Alibi2dEncoding"),
    "gaussian": EncodingEntry(options.GaussianOptions, "displacements:GaussianEncoding"),
    "lookhere": EncodingEntry(options.LookHereOptions, "displacements:LookHereEncoding"),
    "weierstrass": EncodingEntry(
        weierstrass_options.WeierstrassOptions, "weierstrass:WeierstrassEncoding"
    ),
    "weierstrass_fourier": EncodingEntry(
        weierstrass_options.WeierstrassFourierOptions,
        "weierstrass_fourier:WeierstrassFourierEncoding",
    ),
    "weierstrass_hybrid": EncodingEntry(
        weierstrass_options.HybridOptions, "weierstrass_hybrid:HybridEncoding"
    ),
    "weierstrass_relative": EncodingEntry(
        weierstrass_options.RelativeOptions, "weierstrass_bias:RelativeEncoding"
    ),
    "weierstrass_green": EncodingEntry(
        weierstrass_options.GreenOptions, "weierstrass_bias:GreenEncoding"
    ),
    "weierstrass_heat": EncodingEntry(
        weierstrass_options.HeatOptions, "weierstrass_heat:HeatEncoding"
    ),
    "combined": EncodingEntry(options.CombinedOptions, "combined:CombinedEncoding"),
}


def available_encodings() -> tuple[str, ...]:
    """Names `build_encoding` knows, the built-in ones first.

    >>> available_encodings()[:3]
    ('none', 'learned', 'sincos2d')
    """
    return tuple(_ENCODINGS)


def register_encoding(encoding: AnyEncoding) -> AnyEncoding:
    """Add a subclass of `AbstractEncoding` under its own ``name``; usable as a decorator.

    The class has the attributes ``name``, ``kind``, ``summary`` and ``formula``, and
    ``options_class`` if it takes options. It is called with ``(size, options)``: an
    `EncodingSize`, and an instance of its options class that was checked.

    The options class derives from `EncodingOptions`. Each option is a field with a type, made by
    `option`, which holds its default, its meaning and its range; a method ``check(size)`` refuses
    options that contradict each other. All of this is checked before the class is called.

    Raises
    ------
    InputError
        It is no such class, lacks a class attribute, or the name is taken.

    Examples
    --------
    >>> from training.encodings.encoding import AbstractEncoding
    >>> class Columns(AbstractEncoding):
    ...     name, kind = "columns", "additive"
    ...     summary, formula = "the number of the column", "x_i + column"
    ...     def __init__(self, size, options):
    ...         super().__init__(size)
    ...     def additive(self, grid):
    ...         columns = self._like.new_ones(grid).cumsum(1)
    ...         return columns.reshape(-1, 1).expand(-1, self.size.dim)
    >>> build_encoding(register_encoding(Columns).name, dim=6, depth=1, num_heads=1, grid=(2, 3))
    ... # doctest: +SKIP
    """
    from training.encodings.encoding import AbstractEncoding

    if not (isinstance(encoding, type) and issubclass(encoding, AbstractEncoding)):
        raise InputError(f"not a subclass of AbstractEncoding: {encoding!r}")
    for attribute in ("name", "kind", "summary", "formula"):
        if not isinstance(getattr(encoding, attribute, None), str):
            raise InputError(f"{encoding.__name__} has no class attribute {attribute!r}")
    if encoding.name in _ENCODINGS:
        known = encoding_class(encoding.name)
        if known is not encoding:
            raise InputError(f"the name {encoding.name!r} is taken by {known.__name__}")
    if not issubclass(encoding.options_class, EncodingOptions):
        raise InputError(
            f"{encoding.options_class.__name__} does not derive from EncodingOptions; declare it "
            "as class Options(EncodingOptions), with a field made by option(...) for each option"
        )
    _ENCODINGS[encoding.name] = EncodingEntry(encoding.options_class, encoding)
    return encoding


def options_class_of(name: str) -> type[EncodingOptions]:
    """The options class of an encoding; needs no torch."""
    return _entry(name).options_class


def encoding_class(name: str) -> type[AbstractEncoding]:
    """The class of an encoding; its module is imported, and torch with it."""
    encoding = _entry(name).encoding
    if not isinstance(encoding, str):
        return encoding
    import_optional("torch", purpose=f"the encoding {name!r}", extra="encodings")
    module, _, attribute = encoding.partition(":")
    found: type[AbstractEncoding] = getattr(
        import_module(f"training.encodings.{module}"), attribute
    )
    return found


# What the paper calls its encoding, without hyphens, underscores and capitals.
_NAMES_IN_THE_PAPER = ("wef", "wefpe", "weierstrassellipticfunction")


def nearest_encoding(name: str) -> str:
    """The end of a message about an encoding that does not exist: which one may be meant."""
    if name.lower().replace("-", "").replace("_", "").replace(" ", "") in _NAMES_IN_THE_PAPER:
        return "; did you mean weierstrass?"
    name, _, options = name.partition(":")
    if options and name in available_encodings():
        return f"; options are not a part of the name {name}: give them by keyword or key"
    return did_you_mean(name, available_encodings())


def _entry(name: str) -> EncodingEntry:
    if name not in _ENCODINGS:
        raise UnknownEncodingError(
            f"unknown encoding {name!r}; available: {', '.join(available_encodings())}"
            + nearest_encoding(str(name))
        )
    return _ENCODINGS[name]


def checked_options(name: str, size: EncodingSize, given: Mapping[str, Any]) -> Any:
    """The options of an encoding from what a user gave, if they suit the size; needs no torch."""
    parsed = parse_options(options_class_of(name), name, given)
    parsed.check(size)
    return parsed


def build_encoding(
    name: str, *, dim: int, depth: int, num_heads: int, grid: Grid, **options: Any
) -> AbstractEncoding:
    """The encoding called `name` for a model of this size.

    Parameters
    ----------
    name
        One of `available_encodings`.
    dim, depth, num_heads
        Width, number of blocks and of attention heads of the model.
    grid
        (height, width) in patches of the training images; calls may use any other.
    options
        Those of the encoding; see `describe_encoding`.

    Raises
    ------
    UnknownEncodingError
        No encoding has that name; the message lists those that exist.
    EncodingOptionError
        An option is unknown, of a wrong type, out of range, or does not go with another.
    InputError
        A size is not a positive integer, or not divisible as the encoding needs; or a patch would
        lie on a pole.

    Examples
    --------
    >>> encoding = build_encoding("weierstrass", dim=192, depth=12, num_heads=3, grid=(14, 14))
    >>> encoding.additive((16, 9)).shape  # any grid
    torch.Size([144, 192])
    """
    encoding = encoding_class(name)
    size = EncodingSize.checked(dim, depth, num_heads, grid)
    made: AbstractEncoding = encoding(size, checked_options(name, size, options))  # type: ignore[call-arg]
    return made


def token_options(name: str, n_prefix: int) -> dict[str, Any]:
    """The options by which an encoding learns rows for so many prefix tokens and no others.

    A parameter nobody uses would stop distributed training.
    """
    fields = options_class_of(name).model_fields
    if "prefix_tokens" in fields:
        return {"prefix_tokens": n_prefix}
    if "class_token" not in fields:
        return {}
    hint = fields["class_token"].annotation
    if hint is bool:
        return {"class_token": n_prefix > 0}
    if n_prefix == 0 and "zero" in choices_of(hint):
        return {"class_token": "zero"}
    return {}


@dataclass(frozen=True)
class EncodingDescription:
    """What ``wefpe encodings`` and the documentation show of an encoding."""

    name: str
    kind: Kind
    summary: str
    formula: str
    options: tuple[OptionDescription, ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]  # learned, with their shapes

    @property
    def parameter_count(self) -> int:
        return sum(math.prod(shape) for _, shape in self.parameters)


def describe_encoding(
    name: str,
    *,
    dim: int = 192,
    depth: int = 12,
    num_heads: int = 3,
    grid: Grid = (14, 14),
    **options: Any,
) -> EncodingDescription:
    """Name, kind, formula, options and learned parameters, by default for ViT-Ti/16 at 224.

    The parameters are those of `build_encoding`, and so are the errors.

    Examples
    --------
    >>> description = describe_encoding("learned")
    >>> description.formula, description.parameter_count
    ('x_i + E_i', 37824)
    """
    made = build_encoding(name, dim=dim, depth=depth, num_heads=num_heads, grid=grid, **options)
    encoding = type(made)
    return EncodingDescription(
        name=name,
        kind=encoding.kind,
        summary=encoding.summary,
        formula=encoding.formula,
        options=describe_options(options_class_of(name)),
        parameters=tuple(
            (key, tuple(parameter.shape))
            for key, parameter in made.named_parameters()
            if parameter.requires_grad
        ),
    )


@dataclass(frozen=True)
class EncodingLabel:
    """An encoding as users type it, ``weierstrass:fidelity=authors,alpha_u=0.4``; not built yet."""

    text: str
    name: str
    assignments: Mapping[str, str]  # option -> value as typed

    @property
    def options(self) -> dict[str, Any]:
        return {key: toml_value(value) for key, value in self.assignments.items()}


def parse_encoding_label(text: str) -> EncodingLabel:
    """An encoding from ``name`` or ``name:option=value,option=value``.

    Only the name is checked here: which options there are, the encoding itself says.
    """
    label = text.strip()
    name, _, rest = label.partition(":")
    known = available_encodings()
    if name not in known:
        end = nearest_encoding(name) or f"; there are {', '.join(known)}"
        raise InputError(
            f"unknown encoding {name!r}{'' if name == label else f' in {label!r}'}{end}"
        )
    assignments = {}
    for assignment in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not (key and equals and value):
            raise InputError(f"{assignment!r} in {label!r} is not of the form option=value")
        assignments[key] = value
    return EncodingLabel(label, name, assignments)
