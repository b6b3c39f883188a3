"""Saving models of transformers with their encoding, and loading them again.

`save_pretrained` of an attached model writes beside the files of transformers one of ours with the
encoding: its name, size, options and tensors. The weights of transformers are complete too, with
the table of the model and the tensors of the encoding, so its Trainer resumes from them. What
must not happen is that someone loads the folder without the encoding and does not notice:
`config.json` therefore asks for an attention that ``from_pretrained`` does not know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from training.encodings import AbstractEncoding, build_encoding
from training.encodings.registry import available_encodings, encoding_class
from wefpe_core import InputError
from wefpe_core.errors import import_optional

ENCODING_FILE = "wefpe_encoding.safetensors"
_KEY = "wefpe"  # of the metadata in that file
_CONFIG = "config.json"
_FORMAT = 1
# No attention has this name, and the error of transformers shows it: it says what to do.
_REFUSED_ATTENTION = "wefpe.load_attached"


class KeepsEncoding:
    """What stands for `save_pretrained` on a model whose encoding is to be saved with it."""

    def __init__(self, whole: nn.Module, attachment: Any) -> None:
        self.whole: Any = whole
        self.attachment = attachment

    def __call__(
        self,
        save_directory: Any,
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        **options: Any,
    ) -> Any:
        attachment, folder = self.attachment, Path(save_directory)
        if options.get("push_to_hub"):
            raise InputError(
                "push_to_hub=True would upload the model before its encoding is written: call "
                "save_pretrained(folder), then huggingface_hub.upload_folder"
            )
        metadata = _description(attachment)
        state = dict(self.whole.state_dict() if state_dict is None else state_dict)
        table = attachment.table_now()
        if table is not None:
            [path] = [n for n, part in self.whole.named_modules() if part is attachment.model]
            state[f"{path}.{attachment.table_name}".lstrip(".")] = table.detach()
        result = type(self.whole).save_pretrained(
            self.whole, folder, is_main_process=is_main_process, state_dict=state, **options
        )
        if is_main_process:
            tensors = attachment.encoding.state_dict()
            safetensors = import_optional(
                "safetensors.torch", purpose="save_pretrained", extra="encodings"
            )
            safetensors.save_file(
                {name: tensor.detach().contiguous() for name, tensor in tensors.items()},
                folder / ENCODING_FILE,
                metadata={_KEY: json.dumps(metadata)},
            )
            config = folder / _CONFIG
            content = json.loads(config.read_text(encoding="utf-8"))
            content["attn_implementation"] = _REFUSED_ATTENTION
            config.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return result


def _description(attachment: Any) -> dict[str, Any]:
    """What `build_encoding` needs to make the encoding again, and the attention of the model."""
    encoding = attachment.encoding
    if not isinstance(encoding, AbstractEncoding):
        raise InputError(
            f"the encoding is wrapped in {type(encoding).__name__}: merge or unload the adapter "
            "before save_pretrained, or save the adapter alone"
        )
    name = encoding.name
    if name not in available_encodings() or encoding_class(name) is not type(encoding):
        raise InputError(
            f"{type(encoding).__name__} cannot be saved by name: it is not the encoding registered "
            f"as {encoding.name!r} (register_encoding)"
        )
    options = getattr(encoding, "options", None)
    return {
        "format": _FORMAT,
        "name": encoding.name,
        **encoding.size._asdict(),
        "options": {} if options is None else options.model_dump(exclude_unset=True),
        "attention": attachment.model.config._attn_implementation,
    }


def load_attached(model_class: Any, folder: Any, **options: Any) -> Any:
    """A model saved with its encoding by `save_pretrained`, with the encoding attached.

    Parameters
    ----------
    model_class : type
        The class of transformers whose ``from_pretrained`` loads the rest, `AutoModel` too.
    folder : path
        On this machine; of a model on the hub take ``huggingface_hub.snapshot_download(name)``.
    options
        Go to ``from_pretrained``.

    Returns
    -------
    model_class
        Computes what the model computed that was saved; `detach` gives it its own table back.

    Raises
    ------
    InputError
        The folder has no encoding, or one of a newer format.

    Examples
    --------
    ``docs/tutorials/your_model.md`` runs this on a small model:

    >>> model.save_pretrained("mine")  # doctest: +SKIP
    >>> model = wefpe.load_attached(transformers.Dinov2Model, "mine")  # doctest: +SKIP
    """
    file = Path(folder) / ENCODING_FILE
    if not file.is_file():
        raise InputError(f"{folder} has no {ENCODING_FILE}: no encoding was saved with the model")
    config = json.loads((file.parent / _CONFIG).read_text(encoding="utf-8"))
    if config.get("attn_implementation") != _REFUSED_ATTENTION:
        raise InputError(f"the model in {folder} was saved after {ENCODING_FILE}, without encoding")
    safetensors = import_optional("safetensors", purpose="load_attached", extra="encodings")
    with safetensors.safe_open(file, "pt") as opened:
        metadata = json.loads((opened.metadata() or {}).get(_KEY, "{}"))
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    if metadata.get("format") != _FORMAT:
        raise InputError(
            f"{file} has the format {metadata.get('format')!r}, this version reads {_FORMAT}"
        )
    encoding = build_encoding(
        metadata["name"],
        **{name: metadata[name] for name in ("dim", "depth", "num_heads")},
        grid=tuple(metadata["grid"]),
        **metadata["options"],
    )
    encoding.load_state_dict(tensors)
    options.setdefault("attn_implementation", metadata["attention"])
    model = model_class.from_pretrained(folder, **options)
    from training.models.attach import attach

    return attach(model, encoding)
