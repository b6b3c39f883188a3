"""Published weights: loading them into a model, with or without their position table.

A model is changed only after all tensors have been checked; an error leaves it as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from training.config.schema import Positions
from training.encodings import AbstractEncoding
from training.encodings.grid import Grid
from training.models.checkpoint_files import CheckpointError, read_weights
from training.models.dhvt import HybridVisionTransformer
from training.models.transfer import brought_over, check_same, lattices_of, weights_and_encoding
from training.models.vit import VisionTransformer
from wefpe_core import InputError

Head = Literal["keep", "new"]
Model = VisionTransformer | HybridVisionTransformer

POSITIONS = "pos_embed"  # the learned table in timm's models
_ENCODING = "encoding."
_PATCHES, _TOKENS = "positions.patches", "positions.tokens"  # of the learned encoding
_HEADS = ("head.", "head_dist.")
# A difference here is another architecture: a token more or less changes what all others become,
# and a model trained with a pooling of its own (SigLIP) has no class token to look at.
_BODY = ("blocks.", "patch_embed.", "cls_token", "dist_token", "norm_pre.", "attn_pool.")


class LearnedPositions(NamedTuple):
    """The learned table of a checkpoint, split into patches and prefix tokens."""

    patches: Tensor  # (H*W, dim)
    grid: Grid
    prefix: Tensor  # (n, dim), n = 0 where prefix tokens have no position


def split_positions(
    weights: Mapping[str, Tensor], where: object, grid: Grid | None = None
) -> LearnedPositions:
    """Split ``pos_embed`` (1, prefix + H*W, dim) of a checkpoint.

    The prefix tokens in the checkpoint tell how many rows belong to them; without `grid` the
    other rows must form a square. `where` is what error messages call the checkpoint.
    """
    table = weights[POSITIONS]
    if table.ndim == 3 and table.shape[0] == 1:
        table = table[0]
    if table.ndim != 2:
        raise CheckpointError(
            f"{where}: {POSITIONS} must be (1, tokens, dim), got {tuple(table.shape)}"
        )
    tokens = ("cls_token", "dist_token", "reg_token")  # in timm's order
    n_tokens = sum(weights[name].shape[1] for name in tokens if name in weights)
    found = []
    for n_prefix in {n_tokens, 0}:  # 0: positions for the patches alone (DeiT-III, big_vision)
        n_patches = len(table) - n_prefix
        side = math.isqrt(max(n_patches, 0))
        candidate = (side, side) if grid is None else grid
        if candidate[0] * candidate[1] == n_patches > 0:
            found.append(LearnedPositions(table[n_prefix:], candidate, table[:n_prefix]))
    if len(found) == 1:
        return found[0]
    wanted = "a square grid" if grid is None else f"the grid {grid}"
    what = "may be" if found else "are not"
    raise CheckpointError(
        f"{where}: the {len(table)} rows of {POSITIONS} {what} {wanted}, with or without rows for "
        f"{n_tokens} prefix tokens; pass the grid of the checkpoint as checkpoint_grid=(H, W)"
    )


def timm_state_dict(model: VisionTransformer, grid: Grid) -> dict[str, Tensor]:
    """State dict for timm's `VisionTransformer`, with the table of the encoding as ``pos_embed``.

    Any additive encoding can be exported this way, for one grid, as it is in eval mode. A rotary
    or bias encoding raises `InputError`, because timm's model has no place for it.
    """
    encoding = model.encoding
    if encoding.kind not in ("none", "additive"):
        raise InputError(f"{encoding.name} is no table of positions: timm has no place for it")
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("encoding.")}
    n_prefix = sum(state[name].shape[1] for name in ("cls_token", "reg_token") if name in state)
    was_training = encoding.training
    encoding.eval()  # without the dropout of a projection
    try:
        with torch.no_grad():
            patches = encoding.additive(grid)
            prefix = encoding.prefix(n_prefix) if n_prefix else None
            if patches is not None:
                if prefix is None:
                    prefix = patches.new_zeros(n_prefix, patches.shape[1])
                state[POSITIONS] = torch.cat([prefix, patches])[None]
    finally:
        encoding.train(was_training)
    return state


@dataclass(frozen=True)
class LoadReport:
    """What became of the tensors of a file.

    `missing` are tensors of the model that the file lacks; they keep their values. `unexpected`
    are tensors of the file that the model has no place for. `positions` and `head` say what was
    done with the position table and the head. The parameters of an encoding count as missing only
    if the file has some of them. `encoding` says of each of these what was done with it, and what
    the lattice was before and is now.
    """

    source: Path
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    positions: str
    head: str
    encoding: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {len(self.loaded)} tensors loaded",
            f"positions: {self.positions}",
            *(f"  {line}" for line in self.encoding),
            f"head: {self.head}",
        ]
        for name in ("missing", "unexpected"):
            keys = getattr(self, name)
            lines += [f"{name}: {', '.join(keys)}"] if keys else []
        return "\n".join(lines)


def load_checkpoint(
    model: Model,
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
    model : VisionTransformer or HybridVisionTransformer
        Changed in place.
    source : str or Path
        A .safetensors, .pth or .npz file, ``hf-hub:owner/name`` to download, or the folder of a
        finished run.
    positions : {"resample", "keep", "replace", "hybrid"}
        What becomes of the learned table in the file. "resample": it goes into the `learned`
        encoding of the model, resampled to its grid. "hybrid": it goes into the learned part of a
        hybrid encoding. "replace": it is left out, and the encoding of the model is the only one;
        if that has no row for the class token, the row in the file is added to the token itself.
        The encoding of a run of this package is kept, brought to the grid of the model by its own
        rule, unless it is replaced; it must be the very encoding of the model, with its options.
        "keep": the same, and weights without that encoding are refused.
    head : {"keep", "new"}
        "new" leaves the head of the model as it is, for another set of classes.
    checkpoint_grid : (int, int), optional
        Grid of the table in the file, if it is not square.
    partial : bool
        Accept a file with other names in the blocks or the patch projection, or with tokens or a
        pooling that the model does not have, or without those it has. Shapes must always fit.

    Returns
    -------
    LoadReport
        Every tensor loaded, missing or unexpected, by name.

    Raises
    ------
    CheckpointError
        The file is absent, damaged, of another architecture, or a shape does not fit.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.torch import save_file
    >>> from training.models import build_vit
    >>> model = build_vit("micro", encoding="weierstrass")
    >>> with TemporaryDirectory() as folder:
    ...     file = f"{folder}/model.safetensors"
    ...     save_file(build_vit("micro", encoding="sincos2d").state_dict(), file)
    ...     report = load_checkpoint(model, file, positions="replace")
    >>> report.missing, report.unexpected
    ((), ())
    """
    if positions not in get_args(Positions):
        raise InputError(f"positions must be keep, resample, replace or hybrid, got {positions!r}")
    if head not in get_args(Head):
        raise InputError(f"head must be 'keep' or 'new', got {head!r}")
    source, held = weights_and_encoding(source)
    weights, path = read_weights(source)
    encoding = model.encoding
    own = {
        k.removeprefix(_ENCODING): weights.pop(k) for k in list(weights) if k.startswith(_ENCODING)
    }
    grid = encoding.size.grid if held is None else held.grid
    lattices, fates = lattices_of(encoding), [f"{name}: left out" for name in own]
    is_kept = positions != "replace" and (held is not None or bool(own))
    if is_kept and positions == "hybrid" and _PATCHES in own:  # of a run with a learned table
        is_kept, checkpoint_grid = False, checkpoint_grid or grid
        weights |= _table_under_timms_name(own)
        fates = [f"{name}: into the learned part" for name in own]
    if is_kept:
        if held is not None:
            check_same(held, encoding, path)
        elif encoding.name == "learned" and _has_another_grid(own, encoding):
            weights |= _table_under_timms_name(own)  # to be resampled, once its grid is known
            own = {}
        if own:
            own, fates = brought_over(encoding, own, grid)
        weights |= {_ENCODING + name: tensor for name, tensor in own.items()}
    elif positions == "keep":
        raise CheckpointError(f"{path} holds no encoding of this package: there is none to keep")
    else:
        _check_encoding(encoding, positions)
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
    if is_kept and table is None and not own:
        sentence = f"{encoding.name}, of which nothing is learned, as in the run"
    elif own and positions == "replace" and table is None:
        sentence = f"those of the encoding in the file are left out; {encoding.name} stands"
    else:
        sentence = _load_positions(encoding, table, positions, loaded, path)
    model.load_state_dict(loaded, strict=False)
    if is_kept:
        now = lattices_of(encoding)
        fates += [f"lattice{where}: {before} -> {now[where]}" for where, before in lattices.items()]
    kept = "from the file" if "head.weight" in loaded else "as in the model"
    return LoadReport(path, tuple(loaded), missing, unexpected, sentence, kept, tuple(fates))


def _has_another_grid(own: Mapping[str, Tensor], encoding: AbstractEncoding) -> bool:
    mine = encoding.state_dict().get(_PATCHES)
    return _PATCHES in own and mine is not None and own[_PATCHES].shape != mine.shape


def _table_under_timms_name(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The table and the prefix rows of a learned encoding, as timm's models hold them."""
    rows = [own[name] for name in (_TOKENS, _PATCHES) if name in own]
    return {POSITIONS: torch.cat(rows)[None]}


def _targets(model: Model, head: Head, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the model that a file should fill."""
    with_encoding = any(name.startswith(_ENCODING) for name in weights)
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if (with_encoding or not name.startswith(_ENCODING))
        and not (head == "new" and name.startswith(_HEADS))
    }


def _check_encoding(encoding: AbstractEncoding, positions: Positions) -> None:
    takes_table = callable(getattr(encoding, "load_table", None))
    is_hybrid = takes_table and encoding.name != "learned"
    if positions == "hybrid" and not is_hybrid:
        raise InputError(
            "positions='hybrid' needs an encoding with a learned part (weierstrass_hybrid), "
            f"not {encoding.name}"
        )
    if positions == "resample" and (not takes_table or is_hybrid):
        other = "hybrid" if is_hybrid else "replace"
        raise InputError(
            "positions='resample' needs the learned encoding; "
            f"for {encoding.name} say positions={other!r}"
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
    if any(name.endswith(".gamma") for name in strange):
        reasons.append("model.layer_scale above 0 gives it those factors")
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


def _load_positions(
    encoding: AbstractEncoding,
    table: LearnedPositions | None,
    positions: Positions,
    loaded: dict[str, Tensor],
    path: Path,
) -> str:
    """Give the learned table to the encoding or leave it out; returns a sentence for the report.

    If the encoding has no row for the class token, the row of the table is added to the token in
    `loaded`: it says nothing about position, and the weights were trained with it.
    """
    if table is None:
        if any(name.startswith(_ENCODING) for name in loaded):
            return "those of the encoding, from the file"
        if positions != "replace":
            raise CheckpointError(f"{path} has no {POSITIONS}: there is nothing to {positions}")
        return f"none in the file; {encoding.name} stands"
    if positions == "replace":
        sentence = f"replaced by {encoding.name}"
        is_row_free = encoding.prefix(1) is None
    else:
        n_rows = int(getattr(getattr(encoding, "options", None), "prefix_tokens", 1))
        is_row_free = n_rows == 0
        _load_table(encoding, table, n_rows, path)
        height, width = table.grid
        sentence = f"the learned table of {height} x {width} patches, {positions}"
    if is_row_free and len(table.prefix) and "cls_token" in loaded:
        loaded["cls_token"] = loaded["cls_token"] + table.prefix[:1]
        sentence += "; the row of the class token is added to that token"
    return sentence


def _load_table(
    encoding: AbstractEncoding, table: LearnedPositions, n_rows: int, path: Path
) -> None:
    """Load the table into the encoding, which resamples it to its grid.

    Prefix tokens without a row in the file get zeros.
    """
    dim = table.patches.shape[1]
    if dim != encoding.size.dim:
        raise CheckpointError(
            f"{path}: {POSITIONS} has {dim} channels, the model {encoding.size.dim}"
        )
    rows = table.patches.new_zeros(n_rows, dim)
    rows[: len(table.prefix)] = table.prefix[:n_rows]
    take: Callable[..., None] = getattr(encoding, "load_table")  # noqa: B009 - not of all encodings
    take(table.patches, table.grid, rows if n_rows else None)
