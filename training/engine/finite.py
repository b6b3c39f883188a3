"""A run stops as soon as its loss or its weights are not finite, without asking at every step."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import Tensor, nn

from training.data import TrainingFeed
from training.engine.errors import NonFiniteError
from training.engine.run_folder import RunFolder

_ADVICE = (
    "Lower optimizer.learning_rate or training.clip_norm and train in another folder; the "
    "checkpoints here are from before it"
)


class FiniteGuard:
    """Notes on the device which loss was the first that is not finite, and is asked later."""

    def __init__(self, accelerator: Accelerator, feed: TrainingFeed, folder: RunFolder) -> None:
        self._accelerator, self._feed, self._folder = accelerator, feed, folder
        self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=accelerator.device)

    def note(self, loss: Tensor, step: int) -> None:
        is_first = ~torch.isfinite(loss.detach()) & (self._first_bad_step < 0)
        self._first_bad_step = torch.where(is_first, step, self._first_bad_step)

    def check_losses(self) -> None:
        """Stop if a loss was not finite, in any process; its batch is saved."""
        bad = self._accelerator.gather(self._first_bad_step[None])
        bad = bad[bad >= 0]
        if len(bad) == 0:
            return
        step = int(bad.min())
        path = self._folder.path / f"not-finite-step-{step}.safetensors"
        if int(self._first_bad_step) == step:
            batch = self._feed.batch(*divmod(step, len(self._feed)))
            tensors = {"images": batch.images, "targets": batch.targets, "indices": batch.indices}
            save_file({name: t.cpu().contiguous() for name, t in tensors.items()}, path)
        self._accelerator.wait_for_everyone()
        raise NonFiniteError(
            f"the loss of step {step} is not finite; its batch is in {path}. {_ADVICE}"
        )

    def check_weights(self, model: nn.Module, step: int) -> None:
        """Stop if the last step spoiled the weights, which the loss would show a step later."""
        tensors = [t for t in model.state_dict().values() if t.is_floating_point()]
        if not torch.isfinite(nn.utils.get_total_norm(tensors)):
            raise NonFiniteError(f"the weights after step {step} are not finite. {_ADVICE}")
