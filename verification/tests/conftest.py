"""Hypothesis profiles, the backends under test, and a guard on mpmath's global precision."""

from __future__ import annotations

import os
from collections.abc import Iterator

import mpmath
import pytest
from hypothesis import HealthCheck, settings

from verification.subjects import Subject, cuda_is_available, numpy_subject, torch_subject
from wefpe_core import available_backends

# Evaluations cost the same for every example, so a deadline measures the machine only.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
settings.register_profile("dev", max_examples=40, **_COMMON)
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=10_000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def _torch_reason(device: str) -> str | None:
    if "torch" not in available_backends():
        return "the torch extra is not installed"
    if device == "cuda" and not cuda_is_available():
        return "no CUDA device on this machine"
    return None


@pytest.fixture(params=["numpy", "torch:cpu", "torch:cuda"], scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    """Every array backend on every device; what cannot run is skipped by name."""
    library, _, device = request.param.partition(":")
    if library == "numpy":
        return numpy_subject()
    reason = _torch_reason(device)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    return torch_subject(device)


@pytest.fixture(autouse=True)
def _mpmath_precision_is_left_alone() -> Iterator[None]:
    before = mpmath.mp.prec
    yield
    after, mpmath.mp.prec = mpmath.mp.prec, before
    assert after == before, "a test changed mpmath's global precision"
