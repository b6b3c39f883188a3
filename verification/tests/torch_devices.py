"""The devices on which the torch tests run, in one place.

Tests with the mark `cuda` are collected only where torch sees a CUDA device; see conftest.py.
With `-p verification.gpu.plugin` that device is emulated, and its name says so.
"""

import pytest

from verification.gpu.emulated_cuda import device_label

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda, id=device_label("cuda"))]

every_device = pytest.mark.parametrize("device", DEVICES)
