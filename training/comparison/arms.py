"""The arms of a comparison: one encoding with its options each, written as users type them.

``weierstrass:fidelity=authors,alpha_u=0.4`` is an encoding with two options. A few keys are of the
config rather than of the encoding: ``scale_match``, ``backend``, and ``positions``, what becomes
of the learned positions of pre-trained weights. Options the config has for the same encoding
stay; another encoding starts from its defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.configuration import Experiment, change_config
from training.configuration.encoding_rules import build_position_encoding
from training.encodings.written import read_encoding
from wefpe_core.errors import InputError

_SECTION = "position_encoding"
_OF_THE_CONFIG = {
    "scale_match": f"{_SECTION}.scale_match",
    "backend": f"{_SECTION}.backend",
    "positions": "model.positions",
}


@dataclass(frozen=True)
class Arm:
    """One encoding of a comparison."""

    label: str  # as typed
    overrides: tuple[str, ...]  # what it changes in the config

    @property
    def folder_name(self) -> str:
        kept = (c if c.isalnum() or c in "._-=" else "_" for c in self.label)
        return "".join(kept)


def parse_arm(text: str) -> Arm:
    """An arm from ``name`` or ``name:option=value,option=value``."""
    written = read_encoding(text)
    overrides = [f"{_SECTION}.name={written.name}"]
    for key, value in written.assignments.items():
        overrides.append(f"{_OF_THE_CONFIG.get(key, f'{_SECTION}.options.{key}')}={value}")
    return Arm(written.label, tuple(overrides))


def is_of_an_arm(key: str) -> bool:
    """Whether arms of a comparison may differ in this key of the config."""
    return key.startswith(f"{_SECTION}.") or key in _OF_THE_CONFIG.values()


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The arms in order; naming one twice is a mistake."""
    arms = [parse_arm(text) for text in texts]
    labels = [arm.label for arm in arms]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"the encoding {label!r} is named twice")
    return arms


def control_arms(base: Experiment) -> list[Arm]:
    """What WEF-PE has to beat, besides the others as they are.

    Its table starts at a scale many times that of a learned one, which alone may matter: learned
    and sincos2d at that scale. And it is a smooth function of the place with few parameters:
    the same layers on the coordinates z and z^2 in the place of wp' and wp.
    """
    reference = change_config(base, parse_arm("weierstrass").overrides)
    encoding = build_position_encoding(reference)
    table = encoding.additive(encoding.size.grid)
    assert table is not None
    scale = f"{float(table.detach().square().mean().sqrt()):.3g}"
    texts = [f"{name}:scale_match={scale}" for name in ("learned", "sincos2d")]
    return parse_arms([*texts, "weierstrass:function=powers"])
