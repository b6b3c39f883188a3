"""The devices on which the torch tests run, in one place."""

import pytest
import torch

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            not torch.cuda.is_available(), reason="cuda: torch sees no CUDA device here"
        ),
    ),
]

every_device = pytest.mark.parametrize("device", DEVICES)
