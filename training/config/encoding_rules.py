"""The position encoding of a config: its options put together and judged, without torch."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from training.config.errors import Problem
from training.config.model_sizes import image_size, model_shape
from training.config.schema import HUB_PREFIX, WEIGHTS, Experiment
from training.encodings.option_types import validate_options
from training.encodings.registry import (
    available_encodings,
    checked_options,
    nearest_encoding,
    options_class_of,
    token_options,
)
from training.encodings.size import EncodingSize
from training.errors import EncodingOptionError
from wefpe_core import WefpeError
from wefpe_core.registry import backend_descriptions, known_backends

_SECTION = "position_encoding"
_NAME, _OPTIONS = f"{_SECTION}.name", f"{_SECTION}.options"
HYBRID = "weierstrass_hybrid"
# Encodings with one strength to set, and the option that sets it.
STRENGTHS = {"learned": "initial_std", "sincos2d": "scale", "weierstrass": "strength"}
# The side of the grid in patches where only the data know the size of the images.
_ASSUMED_GRID = 8


def encoding_size(config: Experiment) -> EncodingSize:
    """The size the encoding of a config is built for."""
    shape = model_shape(config)
    pixels = image_size(config)
    side = _ASSUMED_GRID if pixels is None else pixels // shape.patch_size
    return EncodingSize.checked(shape.dim, shape.depth, shape.num_heads, (side, side))


def encoding_options(config: Experiment) -> dict[str, Any]:
    """Options of the encoding, with the backend, and rows for the prefix tokens there are."""
    place, model = config.position_encoding, config.model
    rows = token_options(place.name, int(model.class_token) + model.register_tokens)
    options = rows | dict(place.options)
    if place.backend == "torch":  # the default of every encoding
        return options
    if place.name == HYBRID:
        inner = options.get("wef_options", {})
        options["wef_options"] = {**inner, "backend": place.backend}
    else:
        options["backend"] = place.backend
    return options


def table_problems(config: Experiment) -> list[Problem]:
    """What is wrong with the table of the encoding by itself, whatever the model is."""
    place = config.position_encoding
    problems = []
    if place.backend not in {row.name for row in backend_descriptions()}:
        message = f"there is no such backend; {known_backends(place.backend)}"
        problems.append(Problem(f"{_SECTION}.backend", message, place.backend))
    known = available_encodings()
    if place.name not in known:
        message = f"there is no such encoding; there are {', '.join(known)}"
        return [Problem(_NAME, message + nearest_encoding(place.name), place.name), *problems]
    if "backend" in place.options:
        message = f"say {_SECTION}.backend"
        problems.append(Problem(f"{_OPTIONS}.backend", message, place.options["backend"]))
    return problems + _single_options(config)


def encoding_problems(config: Experiment) -> list[Problem]:
    """What does not go together with the encoding, whose table is right by itself."""
    problems = _positions(config) + _scale(config)
    complaint = _complaint(config)
    if complaint is None:
        return problems
    return problems + (_backend(config, complaint) or [encoding_problem(config, complaint)])


def encoding_problem(config: Experiment, complaint: WefpeError) -> Problem:
    """A complaint about the encoding, by the key it is about."""
    place = config.position_encoding
    if isinstance(complaint, EncodingOptionError):
        return Problem(_OPTIONS, str(complaint), place.options)
    return Problem(_NAME, str(complaint), place.name)


def _complaint(config: Experiment) -> WefpeError | None:
    """What the encoding says against its options and the size of the model."""
    try:
        size = encoding_size(config)
        checked_options(config.position_encoding.name, size, encoding_options(config))
    except WefpeError as error:
        return error
    return None


def _backend(config: Experiment, complaint: WefpeError) -> list[Problem]:
    """The complaint is about the backend, if there is none with torch."""
    place = config.position_encoding
    with_torch = config.model_copy(update={_SECTION: place.model_copy(update={"backend": "torch"})})
    if place.backend == "torch" or _complaint(with_torch) is not None:
        return []
    message = str(complaint)
    if "no option 'backend'" in message:
        message = f"{place.name} evaluates no elliptic function by a backend"
        if place.name == HYBRID:
            message += f" unless {_OPTIONS}.wef is 'weierstrass'"
        if place.name == "combined":
            message = (
                "each part of combined names its own backend, as in "
                f"'weierstrass:learnable=false;backend={place.backend}'"
            )
    return [Problem(f"{_SECTION}.backend", message, place.backend)]


def _single_options(config: Experiment) -> list[Problem]:
    """Every option that is unknown, of a wrong type or out of range."""
    place = config.position_encoding
    options = {name: value for name, value in place.options.items() if name != "backend"}
    _, found = validate_options(options_class_of(place.name), options)
    problems = []
    for name, value, message, is_unknown in found:
        if is_unknown:
            message = f"{place.name} has no such option; {message}"
        key = f"{_OPTIONS}.{name}" if name else _OPTIONS
        problems.append(Problem(key, message, value if name else place.options))
    return problems


def _positions(config: Experiment) -> list[Problem]:
    """The learned table of pre-trained weights must be used in a way that suits the encoding."""
    model, name = config.model, config.position_encoding.name
    if not model.checkpoint:
        if name == HYBRID and config.position_encoding.options.get("table") != "fresh":
            message = (
                "it mixes with a pre-trained table: give model.checkpoint, or say "
                f"{_OPTIONS}.table = 'fresh'"
            )
            return [Problem(_NAME, message, name)]
        return []
    fitting = {"learned": ("resample", "replace"), HYBRID: ("hybrid",)}.get(name, ("replace",))
    if model.positions in fitting or model.positions == "keep":
        return []
    if model.positions == "resample" and may_be_run(model.checkpoint):
        return []  # whether it has this very encoding is seen when it is opened
    message = (
        f"with the encoding {name} the learned table of model.checkpoint can be used by "
        f"{' or '.join(map(repr, fitting))} only"
    )
    return [Problem("model.positions", message, model.positions)]


def may_be_run(checkpoint: str) -> bool:
    """Whether a checkpoint may be a finished run, to judge by its name alone."""
    if checkpoint.startswith(HUB_PREFIX):
        return False
    is_file = checkpoint.endswith((".safetensors", ".npz", ".pth", ".pt", ".bin", ".tar", ".ckpt"))
    return not is_file or PurePath(checkpoint).name == WEIGHTS


def _scale(config: Experiment) -> list[Problem]:
    place = config.position_encoding
    if place.scale_match is None:
        return []
    key, option = f"{_SECTION}.scale_match", STRENGTHS.get(place.name)
    if option is None:
        having = ", ".join(STRENGTHS)
        message = f"{place.name} has no one strength to set; {having} have"
        return [Problem(key, message, place.scale_match)]
    if option in place.options:
        message = f"{_OPTIONS}.{option} sets the strength already; leave one of them out"
        return [Problem(key, message, place.scale_match)]
    return []
