"""Position tables of checkpoints: taking them apart, and putting one together for timm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from training.encodings.grid import Grid
from training.models.checkpoint_files import CheckpointError
from training.models.vit import VisionTransformer
from wefpe_core import InputError

POSITIONS = "pos_embed"


class LearnedPositions(NamedTuple):
    """The learned table of a checkpoint: rows of the patches, their grid, rows of the prefix."""

    patches: Tensor  # (H*W, dim)
    grid: Grid
    prefix: Tensor  # (n, dim), n = 0 where prefix tokens have no position


def split_positions(
    weights: Mapping[str, Tensor], where: object, grid: Grid | None = None
) -> LearnedPositions:
    """Split ``pos_embed`` (1, prefix + H*W, dim) of a checkpoint.

    How many rows belong to prefix tokens follows from the tokens the checkpoint has; without
    `grid` the rest must be a square.
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
    """State dict under timm's names, the additive encoding written out as its ``pos_embed``.

    Any additive encoding can go this way, for one grid, as it is in eval mode. Rotary and bias
    encodings cannot: timm's `VisionTransformer` has no place for them, and `InputError` says so.
    """
    encoding = model.encoding
    if encoding.kind not in ("none", "additive"):
        raise InputError(f"{encoding.name} is no table of positions: timm has no place for it")
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("encoding.")}
    n_prefix = sum(state[name].shape[1] for name in ("cls_token", "reg_token") if name in state)
    was_training = encoding.training
    encoding.eval()  # or dropout of a projection would be written down
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
