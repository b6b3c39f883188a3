"""`attach` and `detach`: another position encoding for a model of timm or Hugging Face.

Neither timm nor transformers is imported here: whoever has a model of theirs has imported it.
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from training.encodings import AbstractEncoding
from training.models.attachment import AbstractAttachment
from training.models.layers import checked_encoding
from training.models.timm_attachment import TimmAttachment, architecture_of
from training.models.transformers_attachment import (
    BACKBONES,
    TransformersAttachment,
    backbone_in,
)
from wefpe_core import InputError, InputTypeError

Model = TypeVar("Model", bound=nn.Module)

_KEEPER = "_position_attachment"  # the attribute of a model that holds its attachment


def attach(model: Model, encoding: AbstractEncoding) -> Model:
    """Give a vision transformer of timm or Hugging Face another position encoding.

    The learned table and the rotation of the model leave it, so position enters once. The encoding
    becomes
    ``model.encoding``, with its parameters in ``parameters()`` and in the state dict. A state dict
    of an attached model loads into another one with an encoding of the same kind attached.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place. Of timm: `VisionTransformer` (ViT, DeiT, DINOv2 and others) or `Eva`
        (EVA-02, DINOv3). Of Hugging Face: what has a ViT, DeiT, DINOv2, DINOv3, CLIP vision,
        SigLIP vision or ViTMAE model in it, perhaps under a head. For images of several sizes
        build a timm model with ``dynamic_img_size=True``; the others take any size once attached.
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

    Examples
    --------
    >>> import timm, torch, wefpe  # doctest: +SKIP
    >>> model = timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True)  # doctest: +SKIP
    >>> size = {"dim": 192, "depth": 12, "num_heads": 3, "grid": (14, 14)}
    >>> encoding = wefpe.encodings.build_encoding("weierstrass", **size)  # doctest: +SKIP
    >>> wefpe.attach(model, encoding)(torch.zeros(1, 3, 224, 320)).shape  # doctest: +SKIP
    torch.Size([1, 1000])
    """
    core, attachment_class, numbers = _recognised(model)
    if hasattr(core, _KEEPER) or hasattr(core, "encoding"):
        raise InputError("an encoding is attached to this model already; detach(model) first")
    checked_encoding(encoding, *numbers)
    attachment = attachment_class(core)
    attachment.check(encoding)
    core.encoding = encoding.to(attachment.patch_weight()).train(core.training)
    attachment.connect()
    attachment.keep_when_saved(model)
    setattr(core, _KEEPER, attachment)
    return model


def detach(model: nn.Module) -> AbstractEncoding:
    """Undo `attach`: the model gets its own learned table back; returns the encoding.

    It changes the model in place. `InputError` if no encoding is attached to it.

    >>> encoding = wefpe.detach(model)  # doctest: +SKIP
    """
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
    core: Any
    if architecture_of(model) is not None:
        core = model
        heads = getattr(getattr(core.blocks[0], "attn", None), "num_heads", 1)
        return core, TimmAttachment, (core.embed_dim, len(core.blocks), heads)
    core = backbone_in(model) if isinstance(model, nn.Module) else None
    if core is not None:
        config = core.config
        numbers = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
        return core, TransformersAttachment, numbers
    raise InputTypeError(
        "attach takes a timm VisionTransformer or Eva, or a Hugging Face model with one of "
        f"{', '.join(BACKBONES)}; got {type(model).__module__}.{type(model).__name__}"
    )
