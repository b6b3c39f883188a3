"""Hypothesis profiles, the backends and devices under test, and a guard on mpmath's precision."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import mpmath
import pytest
from hypothesis import HealthCheck, settings

from verification.gpu.emulated_cuda import device_label
from verification.subjects import Subject, cuda_is_available, numpy_subject, torch_subject
from wefpe_core import available_backends

# Evaluations cost the same for every example, so a deadline measures the machine only.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}
settings.register_profile("dev", max_examples=40, **_COMMON)
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=10_000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Tests and the processes they start read and write receipts here, not in the user's folder.
os.environ["WEFPE_RECEIPTS"] = tempfile.mkdtemp(prefix="wefpe-receipts-")

_LEFT_OUT = pytest.StashKey[int]()  # how many tests of a device that is not here


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of a CUDA device where there is none; the summary says how many."""
    if cuda_is_available():
        return
    for_cuda = [item for item in items if item.get_closest_marker("cuda")]
    if for_cuda:
        items[:] = [item for item in items if item not in set(for_cuda)]
        config.hook.pytest_deselected(items=for_cuda)
        config.stash[_LEFT_OUT] = len(for_cuda)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints the summary; with xdist it collects nothing itself."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what became of the tests for CUDA: on which device they ran, or that they did not."""
    ran = sum(
        "cuda" in report.keywords
        for outcome in ("passed", "failed", "xfailed", "xpassed")
        for report in terminalreporter.stats.get(outcome, ())
        if getattr(report, "when", None) == "call"
    )
    if ran:
        terminalreporter.write_line(f"{ran:,} tests for CUDA ran on {device_label('cuda')}.")
    left_out = config.stash.get(_LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(
            f"{left_out:,} tests for CUDA were not collected: torch sees no CUDA device here."
        )


@pytest.fixture(
    params=[
        "numpy",
        "torch:cpu",
        pytest.param("torch:cuda", marks=pytest.mark.cuda, id=f"torch:{device_label('cuda')}"),
    ],
    scope="session",
)
def subject(request: pytest.FixtureRequest) -> Subject:
    """Every array backend on every device that is here."""
    library, _, device = request.param.partition(":")
    if library == "numpy":
        return numpy_subject()
    if library not in available_backends():
        pytest.skip(f"{request.param}: the torch extra is not installed")
    return torch_subject(device)


@pytest.fixture(autouse=True)
def _mpmath_precision_is_left_alone() -> Iterator[None]:
    before = mpmath.mp.prec
    yield
    after, mpmath.mp.prec = mpmath.mp.prec, before
    assert after == before, "a test changed mpmath's global precision"
