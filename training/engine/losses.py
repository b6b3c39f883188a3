"""What a training step minimises: the loss on the targets, and agreement with a teacher."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.config.schema import Distillation, Training
from training.errors import RunError
from training.models.building import build_model
from training.models.published import open_published


def target_loss(logits: Tensor, targets: Tensor, options: Training) -> Tensor:
    """The mean loss; `targets` are labels (n,), shares of classes (n, classes), or fields.

    Binary cross-entropy asks of every class by itself whether the image shows it, and is the mean
    over images and classes, as in timm and DeiT-III.
    """
    if options.loss == "relative_l2":
        return relative_errors(logits, targets).mean()
    smoothing = options.label_smoothing
    if options.loss == "cross_entropy":
        return F.cross_entropy(logits, targets, label_smoothing=smoothing)
    classes = logits.shape[-1]
    shares = targets if targets.is_floating_point() else F.one_hot(targets, classes)
    shares = shares.to(logits.dtype) * (1.0 - smoothing) + smoothing / classes
    if options.bce_threshold is not None:
        shares = (shares > options.bce_threshold).to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, shares)


def relative_errors(fields: Tensor, truth: Tensor) -> Tensor:
    """|field - truth|/|truth| in the L2 norm over channels and pixels, (n,)."""
    return (fields - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)


def teacher_loss(logits: Tensor, taught: Tensor, options: Distillation) -> Tensor:
    """How far the model is from its teacher: from its answer (hard), or its opinions (soft)."""
    if options.kind == "hard":
        return F.cross_entropy(logits, taught.argmax(dim=-1))
    t = options.temperature
    own, other = (F.log_softmax(each / t, dim=-1) for each in (logits, taught))
    return F.kl_div(own, other, reduction="batchmean", log_target=True) * t**2


def open_teacher(
    options: Distillation, num_classes: int, channels: int, device: torch.device
) -> nn.Module | None:
    """The teacher of a run, which is not trained: published weights or a finished run."""
    if not options.teacher:
        return None
    from training.engine.finished_run import config_of_finished_run, load_weights  # which uses this
    from training.engine.run_folder import RunFolder

    path = Path(options.teacher).expanduser()
    teacher: nn.Module
    if path.is_dir():
        config = config_of_finished_run(path)
        teacher = build_model(config, num_classes, channels, pretrained=False)
        load_weights(teacher, RunFolder(path).weights)
    else:
        teacher, _, _ = open_published(options.teacher)
        classes = len(teacher.state_dict()["head.bias"])
        if classes != num_classes:
            raise RunError(
                f"distillation.teacher={options.teacher!r} knows {classes} classes, the data have "
                f"{num_classes}"
            )
    return teacher.requires_grad_(False).eval().to(device)
