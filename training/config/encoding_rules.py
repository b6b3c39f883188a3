"""The position encoding of a config: its options put together, tried, and its complaints by key."""

from __future__ import annotations

from typing import Any

import torch

from training.config.errors import Problem
from training.config.schema import Experiment
from training.config.shapes import image_size, model_shape
from training.encodings import (
    AbstractEncoding,
    EncodingOptionError,
    available_encodings,
    build_encoding,
)
from training.encodings.options import describe_options, parse_options
from training.models.vit import encoding_by_name
from wefpe_core import WefpeError
from wefpe_core.errors import did_you_mean

_SECTION = "position_encoding"
HYBRID = "weierstrass_hybrid"
# Encodings with one strength to set, and the option that is it.
STRENGTHS = {"learned": "initial_std", "sincos2d": "scale", "weierstrass": "strength"}
# For rules that need a grid where only the data know the size of the images.
_SOME_GRID = 8


def encoding_options(config: Experiment) -> dict[str, Any]:
    """Options of the encoding, with the backend where it belongs."""
    place = config.position_encoding
    options = dict(place.options)
    if place.backend == "torch":  # the default of every encoding
        return options
    if place.name == HYBRID:
        inner = options.get("wef_options", {})
        options["wef_options"] = {**inner, "backend": place.backend}
    else:
        options["backend"] = place.backend
    return options


def build_position_encoding(config: Experiment) -> AbstractEncoding:
    """The encoding of a config for its model and image size, in the strength it asks for.

    With ``scale_match`` the root mean square of the additive table, over the patches and channels
    of the grid of training, starts at that number: it is what an entry adds beside tokens of
    deviation 1.
    """
    place, options = config.position_encoding, encoding_options(config)
    if place.scale_match is None:
        return _build(config, options)
    # A learned table is scaled as it is, with its rows for prefix tokens: the distribution it is
    # drawn from is cut at 2 whatever its deviation, so another deviation is another table.
    is_learned = place.name == "learned"
    name = STRENGTHS[place.name]
    random_state = torch.get_rng_state()
    unit = _build(config, options if is_learned else {**options, name: 1.0})
    with torch.no_grad():
        table = unit.additive(unit.size.grid)
        assert table is not None
        if table.is_meta:  # a model without numbers has no deviation
            return unit
        factor = place.scale_match / float(table.double().square().mean().sqrt())
    if is_learned:
        with torch.no_grad():
            for parameter in unit.parameters():
                parameter.mul_(factor)
        return unit
    torch.set_rng_state(random_state)
    return _build(config, {**options, name: factor})


def _build(config: Experiment, options: dict[str, Any]) -> AbstractEncoding:
    model, shape = config.model, model_shape(config)
    return encoding_by_name(
        config.position_encoding.name,
        **shape._asdict(),
        image_size=image_size(config) or _SOME_GRID * shape.patch_size,
        n_prefix=int(model.class_token) + model.register_tokens,
        options=options,
    )


def encoding_problems(config: Experiment) -> list[Problem]:
    """What the encoding says about its options, and what its place in the config adds."""
    place = config.position_encoding
    if place.name not in available_encodings():
        known = available_encodings()
        return [
            Problem(
                f"{_SECTION}.name",
                f"there is no such encoding; there are {', '.join(known)}"
                + did_you_mean(place.name, known),
                place.name,
            )
        ]
    if "backend" in place.options:
        return [
            Problem(
                f"{_SECTION}.options.backend",
                f"say {_SECTION}.backend",
                place.options["backend"],
            )
        ]
    problems = _positions(config) + _scale(config)
    complaint = _tried(config)
    if complaint is None:
        return problems
    found = _backend(config) or _options_one_by_one(config)
    if not found:
        key = (
            f"{_SECTION}.options"
            if isinstance(complaint, EncodingOptionError)
            else (f"{_SECTION}.name")
        )
        value: Any = place.options if key.endswith("options") else place.name
        found = [Problem(key, str(complaint), value)]
    return problems + found


def _tried(config: Experiment) -> WefpeError | None:
    """Why the encoding cannot be built, if so; leaves the random numbers of torch alone."""
    try:
        with torch.random.fork_rng(devices=[]):
            _build(config, encoding_options(config))
    except WefpeError as error:
        return error
    return None


def _with_backend(config: Experiment, backend: str) -> Experiment:
    place = config.position_encoding.model_copy(update={"backend": backend})
    return config.model_copy(update={"position_encoding": place})


def _backend(config: Experiment) -> list[Problem]:
    """The complaint is the backend's, if there is none with torch."""
    place = config.position_encoding
    if place.backend == "torch" or _tried(_with_backend(config, "torch")) is not None:
        return []
    complaint = str(_tried(config))
    if "no option 'backend'" in complaint:
        complaint = f"{place.name} evaluates no elliptic function by a backend"
        if place.name == HYBRID:
            complaint += " unless position_encoding.options.wef is 'weierstrass'"
    return [Problem(f"{_SECTION}.backend", complaint, place.backend)]


def _options_one_by_one(config: Experiment) -> list[Problem]:
    """Every option that is unknown, of a wrong type or out of range."""
    place = config.position_encoding
    with torch.random.fork_rng(devices=[]):
        some = build_encoding(place.name, dim=64, depth=1, num_heads=1, grid=(8, 8))
    known = [option.name for option in describe_options(some.options_class)]
    problems = []
    for name, value in place.options.items():
        key = f"{_SECTION}.options.{name}"
        if name not in known:
            takes = ", ".join(known) or "none"
            message = f"{place.name} has no such option; its options: {takes}"
            problems.append(Problem(key, message + did_you_mean(name, known, count=2), value))
            continue
        try:
            parse_options(some.options_class, place.name, {name: value})
        except EncodingOptionError as error:
            problems.append(Problem(key, str(error), value))
    return problems


def _positions(config: Experiment) -> list[Problem]:
    """What becomes of the learned table of pre-trained weights must suit the encoding."""
    model, name = config.model, config.position_encoding.name
    if not model.checkpoint:
        if name == HYBRID and config.position_encoding.options.get("table") != "fresh":
            return [
                Problem(
                    f"{_SECTION}.name",
                    "it mixes with a pre-trained table: give model.checkpoint, or say "
                    f"{_SECTION}.options.table = 'fresh'",
                    name,
                )
            ]
        return []
    fitting = {"learned": ("resample", "replace"), HYBRID: ("hybrid",)}.get(name, ("replace",))
    if model.positions in fitting:
        return []
    return [
        Problem(
            "model.positions",
            f"with the encoding {name} the learned table of model.checkpoint can be used by "
            f"{' or '.join(map(repr, fitting))} only",
            model.positions,
        )
    ]


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
        message = f"{_SECTION}.options.{option} sets the strength already; leave one of them out"
        return [Problem(key, message, place.scale_match)]
    return []
