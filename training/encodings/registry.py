"""Encodings by name: built with checked sizes and options, described, open to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from training.encodings.combined import CombinedEncoding
from training.encodings.encoding import AbstractEncoding, EncodingSize, Kind
from training.encodings.fope import FopeEncoding
from training.encodings.grid import Grid
from training.encodings.learned import LearnedEncoding
from training.encodings.none import NoEncoding
from training.encodings.options import OptionDescription, describe_options, parse_options
from training.encodings.rotary import Rope1dEncoding, RopeAxialEncoding, RopeMixedEncoding
from training.encodings.sincos import SinCosEncoding
from training.encodings.weierstrass import WeierstrassEncoding
from training.encodings.weierstrass_fourier import WeierstrassFourierEncoding
from training.encodings.weierstrass_green import GreenEncoding
from training.encodings.weierstrass_hybrid import HybridEncoding
from training.encodings.weierstrass_relative import RelativeEncoding
from training.errors import UnknownEncodingError
from training.parsing import toml_value
from wefpe_core.errors import InputError, did_you_mean

_BUILTIN: tuple[type[AbstractEncoding], ...] = (
    NoEncoding,
    LearnedEncoding,
    SinCosEncoding,
    Rope1dEncoding,
    RopeAxialEncoding,
    RopeMixedEncoding,
    FopeEncoding,
    WeierstrassEncoding,
    WeierstrassFourierEncoding,
    HybridEncoding,
    RelativeEncoding,
    GreenEncoding,
    CombinedEncoding,
)
_ENCODINGS: dict[str, type[AbstractEncoding]] = {each.name: each for each in _BUILTIN}

AnyEncoding = TypeVar("AnyEncoding", bound=type[AbstractEncoding])


def available_encodings() -> tuple[str, ...]:
    """Names `build_encoding` knows, the built-in ones first."""
    return tuple(_ENCODINGS)


def register_encoding(encoding: AnyEncoding) -> AnyEncoding:
    """Add a subclass of `AbstractEncoding` under its own ``name``; usable as a decorator.

    It is called with ``(size, options)``, where options is an instance of its ``options_class``.

    Raises
    ------
    InputError
        It is no such class, lacks a class attribute, or the name is taken.
    """
    if not (isinstance(encoding, type) and issubclass(encoding, AbstractEncoding)):
        raise InputError(f"not a subclass of AbstractEncoding: {encoding!r}")
    for attribute in ("name", "kind", "summary", "formula"):
        if not isinstance(getattr(encoding, attribute, None), str):
            raise InputError(f"{encoding.__name__} has no class attribute {attribute!r}")
    known = _ENCODINGS.get(encoding.name)
    if known is not None and known is not encoding:
        raise InputError(f"the name {encoding.name!r} is taken by {known.__name__}")
    _ENCODINGS[encoding.name] = encoding
    return encoding


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
    """
    encoding = _find(name)
    size = EncodingSize.checked(dim, depth, num_heads, grid)
    parsed = parse_options(encoding.options_class, name, options)
    made: AbstractEncoding = encoding(size, parsed)  # type: ignore[call-arg]
    return made


def token_options(name: str, n_prefix: int) -> dict[str, Any]:
    """The options by which an encoding learns rows for so many prefix tokens and no others.

    A parameter nobody uses would stop distributed training.
    """
    hints = get_type_hints(_find(name).options_class)
    if "prefix_tokens" in hints:
        return {"prefix_tokens": n_prefix}
    if hints.get("class_token") is bool:
        return {"class_token": n_prefix > 0}
    if n_prefix == 0 and "zero" in _choices(hints.get("class_token")):
        return {"class_token": "zero"}
    return {}


def _choices(hint: Any) -> list[Any]:
    """What a literal type, alone or in a union, allows."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [choice for part in get_args(hint) for choice in _choices(part)]


def _find(name: str) -> type[AbstractEncoding]:
    if name not in _ENCODINGS:
        raise UnknownEncodingError(
            f"unknown encoding {name!r}; available: {', '.join(available_encodings())}"
            + did_you_mean(str(name), available_encodings())
        )
    return _ENCODINGS[name]


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
        total = 0
        for _, shape in self.parameters:
            count = 1
            for length in shape:
                count *= length
            total += count
        return total


def describe_encoding(
    name: str,
    *,
    dim: int = 192,
    depth: int = 12,
    num_heads: int = 3,
    grid: Grid = (14, 14),
    **options: Any,
) -> EncodingDescription:
    """Name, kind, formula, options and learned parameters, by default for ViT-Ti/16 at 224."""
    made = build_encoding(name, dim=dim, depth=depth, num_heads=num_heads, grid=grid, **options)
    encoding = type(made)
    return EncodingDescription(
        name=name,
        kind=encoding.kind,
        summary=encoding.summary,
        formula=encoding.formula,
        options=describe_options(encoding.options_class),
        parameters=tuple(
            (key, tuple(parameter.shape))
            for key, parameter in made.named_parameters()
            if parameter.requires_grad
        ),
    )


# Encodings as users type them: ``weierstrass:fidelity=authors,alpha_u=0.4``.


@dataclass(frozen=True)
class WrittenEncoding:
    """An encoding by name with options, not built yet."""

    label: str  # as typed
    name: str
    assignments: Mapping[str, str]  # option -> value as typed

    @property
    def options(self) -> dict[str, Any]:
        return {key: toml_value(value) for key, value in self.assignments.items()}


def read_encoding(text: str) -> WrittenEncoding:
    """An encoding from ``name`` or ``name:option=value,option=value``.

    Only the name is checked here: which options there are, the encoding itself says.
    """
    label = text.strip()
    name, _, rest = label.partition(":")
    known = available_encodings()
    if name not in known:
        end = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise InputError(
            f"unknown encoding {name!r}{'' if name == label else f' in {label!r}'}{end}"
        )
    assignments = {}
    for assignment in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not (key and equals and value):
            raise InputError(f"{assignment!r} in {label!r} is not of the form option=value")
        assignments[key] = value
    return WrittenEncoding(label, name, assignments)
