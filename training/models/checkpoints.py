"""Published weights into a model: what fits is loaded, what does not is said.

A model is changed only after everything has been checked; an error leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from training.models.checkpoint_files import CheckpointError, read_weights
from training.models.position_hooks import Grid, as_encoding
from training.models.position_tables import POSITIONS, LearnedPositions, split_positions
from wefpe_core import InputError

Positions = Literal["resample", "replace", "hybrid"]
Head = Literal["keep", "new"]

_ENCODING = "encoding."
_HEADS = ("head.", "head_dist.")
_BODY = ("blocks.", "patch_embed.")  # a difference here is another architecture
_HYBRIDS = ("weierstrass_hybrid",)


@dataclass(frozen=True)
class LoadReport:
    """What became of the tensors of a file.

    `missing` are tensors of the model the file lacks, which keep their values; `unexpected` are
    tensors of the file the model has no place for; `positions` and `head` say what was decided
    about those. The parameters of an encoding count as missing only if the file has some.
    """

    source: Path
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    positions: str
    head: str

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {len(self.loaded)} tensors loaded",
            f"positions: {self.positions}",
            f"head: {self.head}",
        ]
        for name in ("missing", "unexpected"):
            keys = getattr(self, name)
            lines += [f"{name}: {', '.join(keys)}"] if keys else []
        return "\n".join(lines)


def load_checkpoint(
    model: nn.Module,
    source: str | Path,
    *,
    positions: Positions = "resample",
    head: Head = "keep",
    checkpoint_grid: Grid | None = None,
    partial: bool = False,
) -> LoadReport:
    """Load timm, DeiT, AugReg or Google weights, or those of this package, into a model.

    Parameters
    ----------
    model : torch.nn.Module
        A model of this package.
    source : str or Path
        A .safetensors, .pth or .npz file, or ``hf-hub:owner/name`` to download.
    positions : {"resample", "replace", "hybrid"}
        What becomes of the learned table in the file. "resample": it goes into the `learned`
        encoding of the model, resampled to that grid. "hybrid": into the learned part of a hybrid
        encoding. "replace": it is left out and the encoding of the model stands alone; the row of
        a class token the encoding says nothing about is added to that token.
    head : {"keep", "new"}
        "new" leaves the head of the model as it is, for another set of classes.
    checkpoint_grid : (int, int), optional
        Grid of the table in the file, if it is not square.
    partial : bool
        Accept a file whose blocks or patch projection differ in names; shapes must fit always.

    Returns
    -------
    LoadReport
        Every tensor loaded, missing or unexpected, by name.

    Raises
    ------
    CheckpointError
        The file is absent, damaged, of another architecture, or a shape does not fit.
    """
    if positions not in ("resample", "replace", "hybrid"):
        raise InputError(f"positions must be resample, replace or hybrid, got {positions!r}")
    if head not in ("keep", "new"):
        raise InputError(f"head must be 'keep' or 'new', got {head!r}")
    encoding = model.get_submodule("encoding")
    _check_encoding(encoding, positions)
    weights, path = read_weights(source)
    table = None
    if POSITIONS in weights:
        table = split_positions(weights, path, checkpoint_grid)
        del weights[POSITIONS]
    if head == "new":
        weights = {k: v for k, v in weights.items() if not k.startswith(_HEADS)}

    targets = _targets(model, head, weights)
    missing = tuple(name for name in targets if name not in weights)
    unexpected = tuple(name for name in weights if name not in targets)
    if not partial:
        _check_architecture(missing, unexpected, targets, weights, path)
    loaded = {name: weights[name] for name in targets if name in weights}
    _check_shapes(loaded, targets, path)
    place, sentence = _placement(model, encoding, table, positions, weights, path)
    with torch.no_grad():
        for name, tensor in loaded.items():
            targets[name].copy_(tensor)
        place()
    kept = "from the file" if "head.weight" in loaded else "as in the model"
    return LoadReport(path, tuple(loaded), missing, unexpected, sentence, kept)


def _targets(model: nn.Module, head: Head, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the model a file is to fill."""
    with_encoding = any(name.startswith(_ENCODING) for name in weights)
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if (with_encoding or not name.startswith(_ENCODING))
        and not (head == "new" and name.startswith(_HEADS))
    }


def _check_encoding(encoding: nn.Module, positions: Positions) -> None:
    name = getattr(encoding, "name", type(encoding).__name__)
    has_table = callable(getattr(encoding, "load_table", None))
    is_hybrid = has_table and name in _HYBRIDS
    if positions == "hybrid" and not is_hybrid:
        raise InputError(
            f"positions='hybrid' needs a hybrid encoding ({', '.join(_HYBRIDS)}), not {name}"
        )
    if positions == "resample" and (not has_table or is_hybrid):
        other = "hybrid" if is_hybrid else "replace"
        raise InputError(
            f"positions='resample' needs the learned encoding; for {name} say positions={other!r}"
        )


def _check_architecture(
    missing: tuple[str, ...],
    unexpected: tuple[str, ...],
    targets: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    path: Path,
) -> None:
    lacking = [name for name in missing if name.startswith(_BODY)]
    strange = [name for name in unexpected if name.startswith(_BODY)]
    if not lacking and not strange:
        return
    depths = (_depth(weights), _depth(targets))
    reasons = (
        [f"it has {depths[0]} blocks, the model {depths[1]}"] if depths[0] != depths[1] else []
    )
    reasons += [f"it lacks {_some(lacking)}"] if lacking else []
    reasons += [f"the model has no {_some(strange)}"] if strange else []
    raise CheckpointError(f"{path} is of another architecture: {'; '.join(reasons)}")


def _depth(names: Mapping[str, Tensor]) -> int:
    return len({name.split(".")[1] for name in names if name.startswith("blocks.")})


def _some(names: list[str], limit: int = 4) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _check_shapes(weights: Mapping[str, Tensor], targets: Mapping[str, Tensor], path: Path) -> None:
    wrong = [name for name in weights if weights[name].shape != targets[name].shape]
    if not wrong:
        return
    each = [
        f"{name} is {tuple(weights[name].shape)} in the file, "
        f"{tuple(targets[name].shape)} in the model"
        for name in wrong
    ]
    hint = "; head='new' keeps the head of the model" if wrong[0].startswith(_HEADS) else ""
    raise CheckpointError(f"{path}: {_some(each)}{hint}")


def _placement(
    model: nn.Module,
    encoding: nn.Module,
    table: LearnedPositions | None,
    positions: Positions,
    weights: Mapping[str, Tensor],
    path: Path,
) -> tuple[Callable[[], None], str]:
    """What to do with the learned table once all is checked, and a sentence about it."""

    def nothing() -> None:
        pass

    if table is None:
        if any(name.startswith(_ENCODING) for name in weights):
            return nothing, "those of the encoding, from the file"
        if positions != "replace":
            raise CheckpointError(f"{path} has no {POSITIONS}: there is nothing to {positions}")
        return nothing, "none in the file; those of the encoding stand"
    height, width = table.grid
    if positions == "replace":
        return _replacement(model, encoding, table)
    dim = getattr(model, "dim", table.patches.shape[1])
    if table.patches.shape[1] != dim:
        raise CheckpointError(
            f"{path}: {POSITIONS} has {table.patches.shape[1]} channels, the model {dim}"
        )
    n_rows = _prefix_rows_held(encoding)
    rows = table.patches.new_zeros(n_rows, dim)
    rows[: len(table.prefix)] = table.prefix[:n_rows]

    def place() -> None:
        encoding.load_table(table.patches, table.grid, rows if n_rows else None)  # type: ignore[operator]

    return place, f"the learned table of {height} x {width} patches, for the encoding ({positions})"


def _prefix_rows_held(encoding: nn.Module) -> int:
    """How many rows for prefix tokens the table of an encoding has."""
    options = getattr(encoding, "options", None)
    return int(getattr(options, "prefix_tokens", 1))


def _replacement(
    model: nn.Module, encoding: nn.Module, table: LearnedPositions
) -> tuple[Callable[[], None], str]:
    """Leave the learned table out; where only the class token would miss its row, add that."""
    name = getattr(encoding, "name", type(encoding).__name__)
    sentence = f"replaced by {name}"
    class_token = getattr(model, "cls_token", None)
    if class_token is None or not len(table.prefix) or as_encoding(encoding).prefix(1) is not None:
        return lambda: None, sentence

    def place() -> None:
        class_token.add_(table.prefix[:1].to(class_token))

    return place, f"{sentence}; the row of the class token is added to that token"
