"""The figures of compiled kernels: how they are read, written and judged."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from verification.gpu import emulated_cuda, kernel_ceilings

LOG = """
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    432 bytes stack frame, 300 bytes spill stores, 310 bytes spill loads
ptxas info    : Used 255 registers, 512 bytes cmem[0]
"""


def test_the_report_of_the_assembler_is_read():
    assert kernel_ceilings.read_log(LOG, "k") == kernel_ceilings.Usage(
        spilled_bytes=300, registers=255
    )
    with pytest.raises(emulated_cuda.EmulationError, match="does not report on other"):
        kernel_ceilings.read_log(LOG, "other")


def test_figures_above_their_ceilings_are_failures():
    ceilings = {"call": {"kernels": 1, "sm_80_registers": 104}}
    assert not list(kernel_ceilings.problems("call", {"kernels": 1}, ceilings))
    found = kernel_ceilings.problems("call", {"sm_80_registers": 105, "copies": 0}, ceilings)
    assert list(found) == [
        "call: sm_80_registers 105, above the ceiling of 104",
        "call: copies has no ceiling in kernel_ceilings.toml",
    ]


def test_ceilings_are_written_with_a_margin_where_the_assembler_may_differ(tmp_path: Path) -> None:
    figures = {"launches": 5, "sm_80_registers": 94, "sm_90_registers": 255}
    path = tmp_path / "ceilings.toml"
    kernel_ceilings.write_ceilings({"wp complex64": figures | {"sm_80_spilled_bytes": 80}}, path)
    (ceilings,) = tomllib.loads(path.read_text("utf-8")).values()
    assert ceilings == {
        "launches": 5,
        "sm_80_registers": 104,
        "sm_90_registers": 255,
        "sm_80_spilled_bytes": 90,
    }
    assert not list(kernel_ceilings.problems("wp complex64", figures, {"wp complex64": ceilings}))


def test_the_committed_ceilings_can_be_read() -> None:
    for case, figures in kernel_ceilings.load_ceilings().items():
        assert figures["kernels"] >= 1, case
        assert figures["sm_80_registers"] <= 255, case
