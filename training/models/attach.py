"""`attach` and `detach`: another position encoding for a model of timm or Hugging Face.

Neither timm nor transformers is imported here: whoever has a model of theirs has imported it.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from torch import nn

from training.encodings import AbstractEncoding
from training.models.attachment import AbstractAttachment
from training.models.layers import checked_encoding
from training.models.timm_attachment import TimmAttachment
from training.models.transformers_attachment import TransformersAttachment
from wefpe_core import InputError, InputTypeError

Model = TypeVar("Model", bound=nn.Module)

_KEEPER = "_position_attachment"  # the attribute of a model that holds its attachment


def attach(model: Model, encoding: AbstractEncoding) -> Model:
    """Give a timm `VisionTransformer` or a Hugging Face `ViTModel` another position encoding.

    The learned table of the model leaves it, so position is added once. The encoding becomes
    ``model.encoding``, with its parameters in ``parameters()`` and in the state dict. A state dict
    of an attached model loads into another one with an encoding of the same kind attached.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place. A Hugging Face model with a head (`ViTForImageClassification`) is
        changed in its ``.vit``. For images of several sizes build a timm model with
        ``dynamic_img_size=True``; a `ViTModel` takes any size once attached.
    encoding : AbstractEncoding
        Built for the width, depth and heads of the model. It is moved to the device and the
        floating-point type of the model, and put into its mode, training or evaluation.

    Returns
    -------
    torch.nn.Module
        The model given. Make the optimiser after this.

    Raises
    ------
    InputError
        An encoding is attached already, or does not fit, or the model has parts (patch dropping,
        another attention, patches from a convolutional network, a distillation token) in which
        an encoding could not act. The model is then as it was.
    """
    core, attachment_class, numbers = _recognised(model)
    if hasattr(core, _KEEPER) or hasattr(core, "encoding"):
        raise InputError("an encoding is attached to this model already; detach(model) first")
    checked_encoding(encoding, *numbers)
    attachment = attachment_class(core)
    attachment.check(encoding)
    core.encoding = encoding.to(attachment.patch_weight()).train(core.training)
    attachment.connect()
    setattr(core, _KEEPER, attachment)
    return model


def detach(model: nn.Module) -> AbstractEncoding:
    """Undo `attach`: the model gets its own learned table back; returns the encoding."""
    core, _, _ = _recognised(model)
    attachment: AbstractAttachment | None = getattr(core, _KEEPER, None)
    if attachment is None:
        raise InputError("no encoding is attached to this model")
    encoding: Any = core.encoding
    if not isinstance(encoding, AbstractEncoding):
        raise InputError(
            f"the encoding is wrapped in {type(encoding).__name__}: merge or unload the adapter "
            "before detach(model)"
        )
    attachment.disconnect()
    delattr(core, _KEEPER)
    del core.encoding
    return encoding


def _recognised(model: nn.Module) -> tuple[Any, type[AbstractAttachment], tuple[int, int, int]]:
    """The part of the model to change, the class that can, and its width, depth and heads."""
    timm_class = _imported("timm.models.vision_transformer", "VisionTransformer")
    if timm_class is not None and isinstance(model, timm_class):
        vit: Any = model
        heads = getattr(getattr(vit.blocks[0], "attn", None), "num_heads", 1)
        return vit, TimmAttachment, (vit.embed_dim, len(vit.blocks), heads)
    hugging_class = _imported("transformers.models.vit.modeling_vit", "ViTPreTrainedModel")
    if hugging_class is not None and isinstance(model, hugging_class):
        core: Any = model.base_model
        config = core.config
        numbers = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
        return core, TransformersAttachment, numbers
    raise InputTypeError(
        "attach takes a timm VisionTransformer or a Hugging Face ViTModel, "
        f"got {type(model).__module__}.{type(model).__name__}"
    )


def _imported(module: str, name: str) -> type[Any] | None:
    """A class of a module, or None if that module has not been imported."""
    return getattr(sys.modules.get(module), name, None)
