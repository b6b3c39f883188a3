"""Reading weights from a file or the hub as named tensors, whatever model they are for.

No file can run code: .safetensors and .npz hold numbers only, and pickles are read with
``weights_only=True``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from training.config.schema import HUB_PREFIX as HUB_PREFIX
from wefpe_core import WefpeError
from wefpe_core.errors import import_optional

_PICKLES = (".pth", ".pt", ".bin", ".tar", ".ckpt")
# Keys under which training scripts store the weights in a pickle, in the order of preference.
_WRAPPERS = ("model", "state_dict", "model_state_dict")
# What DistributedDataParallel and torch.compile put before every name.
_NAME_PREFIXES = ("module.", "_orig_mod.")


class CheckpointError(WefpeError, ValueError):
    """A file of weights cannot be read, or does not fit the model."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no such file of weights."""


# --- Google's .npz vision transformers -------------------------------------------------------
#
# Two generations are published: the first (``MultiHeadDotProductAttention_1``, ``LayerNorm_2``,
# ``MlpBlock_3``) and big_vision's (``..._0``, ``LayerNorm_1``, ``MlpBlock_0``), the latter also
# with all layers stacked in one array. Both store kernels with the input first and attention by
# head. Their names and layouts are translated to timm's.

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
    """Whether the arrays of an .npz are one of Google's vision transformers."""
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
    """Names without the root; arrays that hold all layers are cut into one for each layer."""
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


# --- Files -----------------------------------------------------------------------------------


def read_weights(source: str | Path) -> tuple[dict[str, Tensor], Path]:
    """The tensors of a .safetensors, .pth or .npz file by name, and the path of the file.

    `source` is a path, or ``hf-hub:owner/name`` to download ``model.safetensors`` from there.
    """
    if isinstance(source, str) and source.startswith(HUB_PREFIX):
        source = hub_checkpoint(source.removeprefix(HUB_PREFIX))
    path = Path(source)
    if not path.is_file():
        what = "is a directory, not a file of weights" if path.is_dir() else "does not exist"
        raise CheckpointNotFoundError(f"{path} {what}")
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return _read_safetensors(path), path
    if suffix == ".npz":
        return _read_npz(path), path
    if suffix in _PICKLES:
        return _read_pickle(path), path
    raise CheckpointError(
        f"{path}: unknown kind of file {suffix!r}; "
        f"known are .safetensors, .npz, {', '.join(_PICKLES)}"
    )


def hub_checkpoint(
    repository: str, filename: str = "model.safetensors", *, revision: str | None = None
) -> Path:
    """Path of a file of the Hugging Face hub, which is downloaded unless it is in the cache.

    `repository` may name the revision after an @, as timm writes it.
    """
    hub = import_optional(
        "huggingface_hub", purpose="loading from the hub", extra="hub", package="huggingface-hub"
    )
    repository, _, pinned = repository.partition("@")
    try:
        return Path(hub.hf_hub_download(repository, filename, revision=revision or pinned or None))
    except Exception as error:  # offline, unknown repository, no access: many kinds
        raise CheckpointError(
            f"{filename} of {repository} cannot be fetched from the hub: "
            f"{type(error).__name__}: {error}"
        ) from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    safetensors = import_optional("safetensors", purpose=str(path), extra="encodings")
    reader = import_optional("safetensors.torch", purpose=str(path), extra="encodings")
    try:
        return reader.load_file(path)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a readable .safetensors file: {error}") from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError, RuntimeError, EOFError, BadZipFile, ...
        raise CheckpointError(
            f"{path} cannot be read as weights (damaged, or it holds pickled code, "
            f"which is not run): {str(error).partition(chr(10))[0]}"
        ) from error
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
            break
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{path} holds no state dict, but {type(content).__name__}")
    strays = [repr(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if strays:
        raise CheckpointError(f"{path}: not a tensor: {', '.join(strays[:5])}")
    return {_bare(str(name)): value for name, value in content.items()}


def _bare(name: str) -> str:
    for prefix in _NAME_PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _read_npz(path: Path) -> dict[str, Tensor]:
    import numpy as np

    tensors: dict[str, Tensor] = {}
    try:
        # Opened here, because NumPy leaves a damaged file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for name in archive.files:
                array = archive[name]
                if array.dtype.kind == "V" and array.dtype.itemsize == 2:  # bfloat16 to JAX
                    tensors[name] = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
                else:
                    tensors[name] = torch.from_numpy(array)
    except Exception as error:  # BadZipFile, ValueError (pickled objects), TypeError, OSError
        raise CheckpointError(f"{path} is not a readable .npz of numbers: {error}") from error
    if not looks_like_google(tensors):
        raise CheckpointError(
            f"{path} is not one of Google's vision transformers: it has no embedding/kernel"
        )
    return timm_names(tensors)
