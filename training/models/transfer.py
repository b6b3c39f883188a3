"""What becomes of the encoding of a finished run in a model that starts from its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from training.config import ConfigError, load_config
from training.config.encoding_rules import encoding_options, encoding_size
from training.config.schema import WEIGHTS
from training.encodings import AbstractEncoding
from training.encodings.grid import Grid
from training.encodings.learned_lattice import modules_with_lattice
from training.encodings.option_types import parse_options
from training.models.checkpoint_files import CheckpointError, CheckpointNotFoundError
from wefpe_core import InputError

_CONFIG = "config.toml"


class HeldEncoding(NamedTuple):
    """The encoding of a finished run, as its config names it."""

    name: str
    options: Any  # those of the encoding, checked
    grid: Grid


def weights_and_encoding(source: str | Path) -> tuple[str | Path, HeldEncoding | None]:
    """The file of weights of a source, and the encoding of the run that it belongs to, if any."""
    path = Path(source)
    if path.is_dir():
        if not (path / WEIGHTS).is_file():
            raise CheckpointNotFoundError(
                f"{path} is a directory, but no finished run: it has no {WEIGHTS}"
            )
        source = path = path / WEIGHTS
    config = path.parent / _CONFIG
    if path.name != WEIGHTS or not config.is_file():
        return source, None
    try:
        experiment = load_config(config)
    except ConfigError as error:
        raise CheckpointError(f"the config beside {path} cannot be read: {error}") from error
    return source, HeldEncoding(
        experiment.position_encoding.name,
        _parsed(experiment.position_encoding.name, encoding_options(experiment)),
        encoding_size(experiment).grid,
    )


def _parsed(name: str, given: Mapping[str, Any]) -> Any:
    from training.encodings.registry import options_class_of

    return parse_options(options_class_of(name), name, given)


def check_same(held: HeldEncoding, encoding: AbstractEncoding, path: Path) -> None:
    """Raise `InputError` unless a run has this very encoding, so that its parameters mean the same.

    Of a learned table the shapes say enough.
    """
    if held.name != encoding.name:
        raise InputError(
            f"{path} has the encoding {held.name}, and the model has {encoding.name}: name the "
            "same one, or say positions='replace'"
        )
    own = getattr(encoding, "options", None)
    if held.name == "learned" or own is None:
        return
    differing = [
        f"{key}={getattr(held.options, key)!r} instead of {getattr(own, key)!r}"
        for key in type(own).model_fields
        if getattr(held.options, key) != getattr(own, key)
    ]
    if differing:
        raise InputError(
            f"{path} has the encoding {held.name} with {', '.join(differing)}: its parameters "
            "would mean something else; give the same options, or say positions='replace'"
        )


def brought_over(
    encoding: AbstractEncoding, tensors: Mapping[str, Tensor], grid: Grid
) -> tuple[dict[str, Tensor], list[str]]:
    """The parameters for this encoding from those of the same one on `grid`, and what was done."""
    given = dict(tensors)
    brought = encoding.brought_here(given, grid)
    target = encoding.state_dict()
    here, there = ("x".join(map(str, each)) for each in (encoding.size.grid, grid))
    fates = []
    for name, tensor in brought.items():
        if name not in target:
            fates.append(f"{name}: left out, the encoding of the model has no such tensor")
        elif tensor is given[name] or torch.equal(tensor, given[name]):
            fates.append(f"{name}: kept")
        else:
            fates.append(f"{name}: brought from {there} to {here} patches")
    fates += [f"{name}: new, the checkpoint has none" for name in target if name not in brought]
    return brought, fates


def lattices_of(encoding: AbstractEncoding) -> dict[str, str]:
    """The lattice of each part that has one, as text, by " of PART" or "" for the whole."""
    texts = {}
    for name, owner in modules_with_lattice(encoding).items():
        lattice = owner.lattice()
        omega1, omega3 = complex(lattice.omega1), complex(lattice.omega3)
        texts[f" of {name}" if name else ""] = (
            f"omega1 {omega1:.5g}, omega3 {omega3:.5g}, tau {omega3 / omega1:.5g}"
        )
    return texts
