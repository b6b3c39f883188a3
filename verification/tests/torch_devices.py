"""The devices on which the torch tests run, in one place.

Tests with the mark `cuda` are collected only where torch sees a CUDA device; see conftest.py.
"""

import pytest

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]

every_device = pytest.mark.parametrize("device", DEVICES)
