"""Reading weights from a file or the hub as named tensors; nothing here knows a model.

No file can run code: .safetensors and .npz hold numbers only, and pickles are read with
``weights_only=True``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from training.models.google_npz import looks_like_google, timm_names
from wefpe_core import BackendUnavailableError, WefpeError

HUB_PREFIX = "hf-hub:"
_PICKLES = (".pth", ".pt", ".bin", ".tar", ".ckpt")
# Where training scripts put the weights inside a pickle, in the order of preference.
_WRAPPERS = ("model", "state_dict", "model_state_dict")
# What DistributedDataParallel and torch.compile put before every name.
_NAME_PREFIXES = ("module.", "_orig_mod.")


class CheckpointError(WefpeError, ValueError):
    """A file of weights cannot be read, or does not fit the model."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no such file of weights."""


def read_weights(source: str | Path) -> tuple[dict[str, Tensor], Path]:
    """Tensors of a .safetensors, .pth or .npz file by name, and the file.

    `source` is a path or, to download, ``hf-hub:owner/name`` (its ``model.safetensors``).
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
    """Path of a file of the Hugging Face hub, downloaded or from its cache.

    `repository` may name the revision after an @, as timm writes it.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise BackendUnavailableError(
            "loading from the hub needs huggingface_hub: pip install 'wefpe[hub]'"
        ) from error
    repository, _, pinned = repository.partition("@")
    try:
        return Path(hf_hub_download(repository, filename, revision=revision or pinned or None))
    except Exception as error:  # offline, unknown repository, no access: many kinds
        raise CheckpointError(
            f"{filename} of {repository} cannot be fetched from the hub: "
            f"{type(error).__name__}: {error}"
        ) from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise BackendUnavailableError(
            f"{path} needs safetensors: pip install 'wefpe[training]'"
        ) from error
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
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
        # Opened here: NumPy leaves a damaged file open.
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
            f"{path} is not a vision transformer of Google's: it has no embedding/kernel"
        )
    return timm_names(tensors)
