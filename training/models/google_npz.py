"""Names and layouts of Google's .npz vision transformers, translated to timm's.

Two generations are published: the first (``MultiHeadDotProductAttention_1``, ``LayerNorm_2``,
``MlpBlock_3``) and big_vision's (``..._0``, ``LayerNorm_1``, ``MlpBlock_0``), the latter also with
all layers stacked in one array. Both store kernels input first, and attention by head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_ROOTS = ("opt/target/", "params/img/", "params/", "")
_STACKED = "Transformer/encoderblock/"
_ATTENTION = re.compile(r"MultiHeadDotProductAttention_\d/(query|key|value|out)/(kernel|bias)")
_OTHER_PARTS = (
    (re.compile(r"LayerNorm_0/(scale|bias)"), "norm1"),
    (re.compile(r"LayerNorm_[12]/(scale|bias)"), "norm2"),
    (re.compile(r"MlpBlock_\d/Dense_0/(kernel|bias)"), "mlp.fc1"),
    (re.compile(r"MlpBlock_\d/Dense_1/(kernel|bias)"), "mlp.fc2"),
)
_TOP = {
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
    "head": "head",
    "pre_logits": "pre_logits.fc",
}
_WHOLE = {
    "cls": "cls_token",
    "pos_embedding": "pos_embed",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
}


def looks_like_google(names: Mapping[str, object]) -> bool:
    """Whether the arrays of an .npz are a vision transformer of Google's."""
    return any(f"{root}embedding/kernel" in names for root in _ROOTS)


def timm_names(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under timm's names and in torch's layouts; unknown ones keep their names."""
    root = next(root for root in _ROOTS if f"{root}embedding/kernel" in arrays)
    found: dict[str, Tensor] = {}
    separate: dict[str, dict[str, Tensor]] = {}  # queries, keys and values of each layer
    for name, array in _one_array_a_layer(arrays, root):
        if name in _WHOLE:
            found[_WHOLE[name]] = array
            continue
        block = re.fullmatch(r"Transformer/encoderblock_(\d+)/(.*)", name)
        if block is None:
            stem, _, kind = name.rpartition("/")
            if stem in _TOP and kind in ("kernel", "bias", "scale"):
                found[f"{_TOP[stem]}.{_parameter(kind)}"] = _turned(array, kind)
            else:
                found[name] = array
            continue
        layer, part = f"blocks.{block[1]}", block[2]
        if attention := _ATTENTION.fullmatch(part):
            role, kind = attention.groups()
            if role == "out":
                flat = array.flatten(0, 1).T if kind == "kernel" else array
                found[f"{layer}.attn.proj.{_parameter(kind)}"] = flat
            else:
                flat = array.flatten(1).T if kind == "kernel" else array.flatten()
                separate.setdefault(f"{layer}.attn.qkv.{_parameter(kind)}", {})[role] = flat
            continue
        for pattern, target in _OTHER_PARTS:
            if match := pattern.fullmatch(part):
                found[f"{layer}.{target}.{_parameter(match[1])}"] = _turned(array, match[1])
                break
        else:
            found[name] = array
    for name, parts in separate.items():
        if len(parts) == 3:
            found[name] = torch.cat([parts[role] for role in ("query", "key", "value")])
    return {name: tensor.contiguous() for name, tensor in found.items()}


def _one_array_a_layer(arrays: Mapping[str, Tensor], root: str) -> list[tuple[str, Tensor]]:
    """Names without the root, and arrays that hold all layers cut into one for each."""
    pairs: list[tuple[str, Tensor]] = []
    for name, array in arrays.items():
        name = name.removeprefix(root)
        if name.startswith(_STACKED):
            part = name.removeprefix(_STACKED)
            pairs += [
                (f"Transformer/encoderblock_{layer}/{part}", each)
                for layer, each in enumerate(array)
            ]
        else:
            pairs.append((name, array))
    return pairs


def _parameter(kind: str) -> str:
    return "bias" if kind == "bias" else "weight"


def _turned(array: Tensor, kind: str) -> Tensor:
    """A kernel with the output first: (in, out) or (height, width, in, out)."""
    if kind != "kernel":
        return array
    return array.permute(3, 2, 0, 1) if array.ndim == 4 else array.T
