"""Receipts: what they record, when they are stale, and what is said about files that are none."""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.numpy_backend import NumpyBackend
from training import cli
from verification import precision_page, second_opinion, subjects, verifier
from verification.measure import measure
from verification.receipts import Place
from wefpe_core import get_backend, receipts, reporting
from wefpe_core.receipts import (
    Measured,
    Need,
    Receipt,
    ReceiptError,
    fingerprint,
    read_receipt,
    read_receipts,
    standing,
    write_receipt,
)
from wefpe_core.registry import BackendDescription

NEEDS = (Need("wp_and_prime", "complex128"),)
GREEN = ["--size", "small", "--backend", "numpy", "--function", "green"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of receipts for each test."""
    path = tmp_path / "receipts"
    monkeypatch.setenv("WEFPE_RECEIPTS", str(path))
    return path


@pytest.fixture
def _no_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_opinion, "agreements", lambda count: ([], []))


def measured(**changes: Any) -> Measured:
    fields: dict[str, Any] = {
        "function": "wp_and_prime",
        "value": "wp",
        "dtype": "complex128",
        "form": "",
        "points": 100,
        "largest": 1.5,
        "ceiling": 4.0,
        "passes": True,
    }
    return Measured(**(fields | changes))


def receipt(*rows: Measured, **changes: Any) -> Receipt:
    fields: dict[str, Any] = {
        "backend": "numpy",
        "device": "cpu",
        "size": "small",
        "when": "2026-01-02T03:04:05+00:00",
        "measured": rows or (measured(), measured(value="wp_prime", largest=0.5)),
        "problems": (),
        "decided_by": fingerprint("numpy", ""),
    }
    return Receipt(**(fields | changes))


# --- Standing ------------------------------------------------------------------------------


def test_a_backend_is_verified_once_there_is_a_receipt(folder: Path) -> None:
    assert standing("numpy", "cpu", NEEDS).state == "never"
    written = receipt()
    assert read_receipt(write_receipt(written, folder)) == written
    found = standing("numpy", "cpu", NEEDS)
    assert (found.state, found.receipt) == ("verified", written)
    assert found.worst == measured()
    assert "2026-01-02" in str(found)
    for other in (Need("wp_and_prime", "complex64"), Need("wp_and_prime", "complex128", "tensors")):
        assert standing("numpy", "cpu", [other]).state == "never"
    assert standing("numpy", "cuda", NEEDS).state == "never"


def test_a_backend_shows_whether_it_is_verified(folder: Path) -> None:
    backend = get_backend("numpy")
    assert repr(backend) == "<NumpyBackend 'numpy', never verified here>"
    write_receipt(receipt(), folder)
    assert repr(backend).startswith("<NumpyBackend 'numpy', verified 2026-01-02, wp complex128")


def test_a_row_that_failed_counts_for_those_who_need_it(folder: Path) -> None:
    bad = measured(function="green", value="green", largest=math.inf, passes=False)
    written = receipt(measured(), bad)
    assert not read_receipt(write_receipt(written, folder)).passes
    assert standing("numpy", "cpu", NEEDS).state == "verified"
    assert standing("numpy", "cpu", [Need("green", "complex128")]).state == "failed"
    assert standing("numpy", "cpu").state == "failed"
    # A broken law is a failure of the whole backend.
    later = "2026-01-03T00:00:00+00:00"
    write_receipt(receipt(problems=("parity: 900 eps",), when=later), folder)
    assert standing("numpy", "cpu", NEEDS).state == "failed"


def test_the_newest_receipt_that_is_not_stale_decides(folder: Path) -> None:
    write_receipt(receipt(measured(passes=False), when="2026-01-01T00:00:00+00:00"), folder)
    write_receipt(receipt(measured(), when="2026-01-02T00:00:00+00:00"), folder)
    stale = fingerprint("numpy", "") | {"versions": {"Python": "2.7"}}
    newest = receipt(measured(passes=False), when="2026-01-03T00:00:00+00:00", decided_by=stale)
    write_receipt(newest, folder)
    assert standing("numpy", "cpu", NEEDS).state == "verified"


def copy_of_the_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of their sources, which is taken for the sources from now on."""
    find = receipts._module_folder
    own = find("backends")
    assert own is not None
    copy = tmp_path / "copy" / "backends"
    shutil.copytree(own, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(
        receipts, "_module_folder", lambda name: copy if name == "backends" else find(name)
    )
    return copy


def test_sources_that_change_while_they_are_measured_make_the_receipt_stale(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, measure_job = (
        copy_of_the_backends(tmp_path, monkeypatch) / "kernel.py",
        verifier.measure_job,
    )

    def measured_while_edited(*given: Any) -> Any:
        kernel.write_text(kernel.read_text("utf-8") + "# edited\n", encoding="utf-8")
        return measure_job(*given)

    monkeypatch.setattr(verifier, "measure_job", measured_while_edited)
    verifier.verify_quickly("numpy", "cpu", NEEDS)
    found = standing("numpy", "cpu", NEEDS)
    assert (found.state, found.changed) == ("stale", ("backends/kernel.py changed",))


def test_one_constant_of_the_kernel_makes_every_receipt_stale(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sources are copied and a digit is changed in the copy."""
    for name in ("numpy", "torch", "mpmath", "flint"):
        write_receipt(receipt(backend=name, decided_by=fingerprint(name, "")), folder)
        assert standing(name, "cpu", NEEDS).state == "verified"
    kernel = copy_of_the_backends(tmp_path, monkeypatch) / "kernel.py"
    assert standing("numpy", "cpu", NEEDS).state == "verified"  # a faithful copy changes nothing
    text = kernel.read_text(encoding="utf-8")
    constant = re.search(r"= (\d+)\.(\d)", text)
    assert constant is not None
    place = constant.start(2)
    kernel.write_text(
        text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :], encoding="utf-8"
    )
    for name in ("numpy", "torch", "mpmath", "flint"):
        found = standing(name, "cpu", NEEDS)
        assert (found.state, found.changed) == ("stale", ("backends/kernel.py changed",))
        assert "backends/kernel.py changed" in str(found)


@pytest.mark.parametrize(
    ("kind", "name", "named"),
    [
        ("versions", "numpy", "numpy was 1.0, is "),
        ("versions", "Python", "Python was 1.0, is "),
        ("hardware", "processor", "processor was 1.0, is "),
        ("sources", "backends/kernel.py", "backends/kernel.py changed"),
        ("sources", "verification/contracts.toml", "the contracts changed"),
        ("sources", "backends/gone.py", "backends/gone.py is gone"),
    ],
)
def test_a_stale_or_foreign_receipt_names_what_differs(
    kind: str, name: str, named: str, folder: Path
) -> None:
    before = fingerprint("numpy", "")
    before[kind] = before[kind] | {name: "1.0"}
    write_receipt(receipt(decided_by=before), folder)
    found = standing("numpy", "cpu", NEEDS)
    assert found.state == "stale"
    (text,) = found.changed
    assert text.startswith(named)


def test_another_processor_is_another_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_receipt(receipt(), folder)
    monkeypatch.setattr(receipts, "processor_name", lambda: "Another 9000")
    found = standing("numpy", "cpu", NEEDS)
    here = reporting.processor_name()
    assert found.changed == (f"processor was {here}, is Another 9000",)


def test_the_sources_of_a_third_party_are_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "other_functions"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 1.25\n")
    monkeypatch.syspath_prepend(tmp_path)
    row = BackendDescription(
        "other", "", "other_functions:Backend", package=None, library=None, extra=None
    )
    monkeypatch.setattr(receipts, "backend_descriptions", lambda: (row,))
    before = fingerprint("other", "")
    (package / "__init__.py").write_text("VALUE = 1.26\n")
    after = fingerprint("other", "")
    assert receipts.changes(before, after) == ["other_functions/__init__.py changed"]
    assert "backends/kernel.py" in before["sources"]  # what it may stand on


# --- Files that are no receipts ------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "cannot be read"),
        (lambda text: "", "cannot be read"),
        (lambda text: "[1, 2]", "is no receipt"),
        (lambda text: '{"a": 1}', "is no receipt"),
        (lambda text: text.replace('"largest": 1.5', '"largest": 0.1'), "was changed"),
        (lambda text: text.replace('"failed"', '"verified"'), "was changed"),
        (lambda text: text.replace('"id": "', '"id": "0'), "was changed"),
    ],
)
def test_damaged_and_forged_receipts_are_named_and_passed_over(
    change: Any, said: str, folder: Path
) -> None:
    bad = receipt(measured(), measured(value="wp_prime", largest=9.0, passes=False))
    path = write_receipt(bad, folder)
    path.write_text(change(path.read_text("utf-8")), encoding="utf-8")
    with pytest.raises(ReceiptError) as caught:
        read_receipt(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    found = standing("numpy", "cpu", NEEDS)
    assert found.state == "never"
    assert found.damaged == (str(caught.value),)
    assert path.exists()


def test_a_receipt_with_the_right_checksum_and_the_wrong_content_is_refused(folder: Path) -> None:
    path = write_receipt(receipt(), folder)
    table = json.loads(path.read_text("utf-8"))
    del table["id"], table["checksum"]
    for change, said in (({"format": 2}, "format 2"), ({"measured": [{}]}, "is no receipt")):
        content = table | change
        ends = {"id": "0", "checksum": receipts._checksum(content)}
        path.write_text(json.dumps(content | ends), encoding="utf-8")
        with pytest.raises(ReceiptError, match=said):
            read_receipt(path)


@pytest.mark.parametrize("largest", [900.0, math.nan])
def test_a_receipt_of_an_error_that_passes_above_its_ceiling_is_refused(
    largest: float, folder: Path
) -> None:
    """Whatever its checksum says."""
    path = write_receipt(receipt(measured(largest=largest, passes=True)), folder)
    with pytest.raises(ReceiptError, match=r"contradicts itself: wp complex128 .* passes"):
        read_receipt(path)
    assert standing("numpy", "cpu", NEEDS).state == "never"


def test_receipts_are_kept_where_the_system_keeps_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFPE_RECEIPTS")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    if sys.platform.startswith("linux"):
        assert receipts.receipts_folder().parent == Path("/state/wefpe/receipts")
    here = receipts.receipts_folder()
    monkeypatch.setattr(sys, "prefix", "/another/environment")
    assert receipts.receipts_folder() != here


# --- What the verifier writes --------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("numpy", ("numpy", "cpu", "")),
        ("numpy scalar", ("numpy", "cpu", "scalar")),
        ("torch cpu tensors", ("torch", "cpu", "tensors")),
        ("torch cuda (emulated) float32 only", ("torch", "cuda (emulated)", "float32 only")),
    ],
)
def test_a_label_says_backend_device_and_form(label: str, expected: tuple[str, ...]) -> None:
    assert Place.of(label) == expected


@pytest.mark.usefixtures("_no_second_opinion")
def test_a_verification_leaves_a_receipt_and_the_backends_show_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(precision_page, "find_spec", lambda name: None)  # no pictures
    output = tmp_path / "report"
    assert cli.main(["verify", *GREEN, "--output", str(output)]) == 0
    (found,), problems = read_receipts()
    assert (problems, found.passes, found.size) == ([], True, "small")
    assert found.covers([Need("green", "complex128"), Need("green", "complex64")])
    assert {row.form for row in found.measured} >= {"", "scalar"}
    assert found.id in capsys.readouterr().out
    report = json.loads((output / "report.json").read_text("utf-8"))
    assert (report["verdict"], report["receipts"]) == ("PASS", {"numpy cpu": found.id})
    assert read_receipt(output / found.file_name) == found
    page, markdown = ((output / f"report.{end}").read_text("utf-8") for end in ("html", "md"))
    for text in (page, markdown):
        assert "PASS" in text
        assert found.id in text
        assert "/6" in text  # the ceiling beside the error
    assert "matplotlib, which is not installed" in page
    assert "<svg" not in page
    assert cli.main(["backends"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"verified {found.when[:10]}" in text
    assert "never" in text
    (folder / "torch-cpu-bad.json").write_text("{")
    assert cli.main(["backends"]) == 0
    assert "passed over: the receipt" in capsys.readouterr().out


@pytest.mark.usefixtures("_no_second_opinion")
def test_a_sabotaged_backend_gets_a_receipt_of_its_failure(monkeypatch: Any) -> None:
    green = NumpyBackend.green
    monkeypatch.setattr(NumpyBackend, "green", lambda self, z, lattice: -green(self, z, lattice))
    assert cli.main(["verify", *GREEN]) == 1
    found = standing("numpy", "cpu", [Need("green", "complex128")])
    assert found.state == "failed"
    assert found.worst is not None
    assert found.worst.largest > found.worst.ceiling


@pytest.mark.usefixtures("_no_second_opinion")
def test_a_broken_law_is_a_problem_of_the_receipt(monkeypatch: Any) -> None:
    zeta = NumpyBackend.zeta
    monkeypatch.setattr(NumpyBackend, "zeta", lambda self, z, lattice: zeta(self, z, lattice) + 1)
    assert cli.main(["verify", *GREEN]) == 1
    (found,), _ = read_receipts()
    assert all(row.passes for row in found.measured)
    assert any("parity" in problem for problem in found.problems)


def test_a_folder_that_cannot_be_written_loses_no_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(second_opinion, "agreements", lambda count: ([], []))
    (tmp_path / "file").touch()
    monkeypatch.setenv("WEFPE_RECEIPTS", str(tmp_path / "file" / "folder"))
    assert cli.main(["verify", *GREEN]) == 0
    printed = capsys.readouterr().out
    assert "no receipt is kept" in printed
    assert "PASS" in printed


def test_what_was_measured_before_an_interruption_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    calls: list[Any] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(options)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return measure(*arguments, **options)

    monkeypatch.setattr(verifier, "measure", interrupted)
    assert cli.main(["verify", *GREEN, "--output", str(tmp_path / "report")]) == 130
    assert "INCOMPLETE" in capsys.readouterr().out
    report = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    assert report["verdict"] == "INCOMPLETE"
    assert report["interrupted"].startswith("interrupted after 3 of ")
    assert report["rows"]
    assert report["receipts"] == {}
    assert not folder.exists()
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert "interrupted after 3" in page
    assert "Laws of DLMF" not in page  # nothing of them was measured


def test_a_request_to_terminate_is_an_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), verifier._termination_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interruption_before_anything_was_measured_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(verifier, "measure", interrupted)
    assert cli.main(["verify", *GREEN, "--output", str(tmp_path / "report")]) == 130
    assert list((tmp_path / "report").iterdir()) == []


# --- Quick ---------------------------------------------------------------------------------


def test_a_quick_verification_measures_what_is_needed_and_no_more() -> None:
    needs = [Need("wp_and_prime", "complex128"), Need("green", "complex128")]
    made = verifier.verify_quickly("numpy", "cpu", needs)
    assert {row.need for row in made.measured} == set(needs)
    assert made.size == "quick"
    assert standing("numpy", "cpu", needs).state == "verified"


def test_a_need_that_cannot_be_measured_is_named() -> None:
    with pytest.raises(verifier.NothingToMeasureError, match="nothing to measure"):
        verifier.verify_quickly("numpy", "cpu", [Need("gradient", "complex128")])
    mixed = [Need("green", "complex128"), Need("gradient", "complex128")]
    with pytest.raises(verifier.NothingToMeasureError, match="numpy on cpu cannot be verified"):
        verifier.verify_quickly("numpy", "cpu", mixed)


def test_a_quick_verification_notices_a_sabotaged_backend(monkeypatch: Any) -> None:
    plain = subjects.numpy_subject()

    class Sabotaged(NumpyBackend):
        def green(self, z: Any, lattice: Any) -> Any:
            return super().green(z, lattice) * (1 + 1e-7)

    monkeypatch.setattr(
        verifier, "subjects_here", lambda *given: ([replace(plain, backend=Sabotaged())], [])
    )
    needs = [Need("green", "complex128")]
    assert not verifier.verify_quickly("numpy", "cpu", needs).passes
    assert standing("numpy", "cpu", needs).state == "failed"
