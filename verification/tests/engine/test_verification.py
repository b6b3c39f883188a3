"""Runs and receipts: who must be verified, what is refused, what is recorded, finished runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

import wefpe

pytest.importorskip("accelerate")

from training.cli import main
from training.config import config_hash, dump_toml, load_config
from training.encodings.weierstrass import WeierstrassEncoding
from training.engine.finished_run import open_finished_run, open_trained_encoding
from training.engine.run import run
from training.engine.run_folder import RunFolder, read_lines
from training.engine.verification import Evaluator, consult, describe, evaluators_of
from training.errors import RunError
from training.models.building import build_position_encoding
from training.study.compare import Sweep, parse_arms
from training.study.comparison_page import verification_text
from verification.tests.training_runs import TINY
from wefpe_core.receipts import Measured, Need, Receipt, fingerprint, write_receipt

QUIET = Console(quiet=True)
ROOT = Path(__file__).parents[3]
SHORT = (*TINY, "training.epochs=1", "training.threads=0")
LEARNED = (
    Need("wp_and_prime", "complex128", "tensors"),
    Need("gradient", "complex128", "tensors"),
)
LEARNED_GREEN = (
    Need("green", "complex128", "tensors"),
    Need("green_gradient", "complex128", "tensors"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "receipts"
    monkeypatch.setenv("WEFPE_RECEIPTS", str(path))
    return path


def encoded(name: str, *options: str, backend: str = "torch", policy: str = "require") -> Any:
    place = "position_encoding"
    overrides = [f"{place}.name={name}", f"{place}.backend={backend}", f"verification={policy}"]
    return load_config("digits", [*overrides, *(f"{place}.options.{text}" for text in options)])


def give_receipt(folder: Path, evaluator: Evaluator, **changes: Any) -> Receipt:
    """A receipt for all that an evaluator must have, as a verification would leave it."""
    fields = {"points": 9, "largest": 1.25, "ceiling": 8.0, "passes": True} | changes
    rows = [
        Measured(need.function, need.function, need.dtype, need.form, **fields)
        for need in evaluator.needs
    ]
    made = Receipt(
        backend=evaluator.backend,
        device=evaluator.device,
        size="quick",
        when="2026-01-02T03:04:05+00:00",
        measured=tuple(rows),
        problems=(),
        decided_by=fingerprint(evaluator.backend, ""),
    )
    write_receipt(made, folder)
    return made


# --- What must be verified -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "backend", "expected"),
    [
        ("weierstrass", [], "torch", [("torch", LEARNED)]),
        ("weierstrass_relative", [], "torch", [("torch", LEARNED)]),
        ("weierstrass_green", [], "torch", [("torch", LEARNED_GREEN)]),
        (
            "weierstrass",
            ["learnable=false"],
            "numpy",
            [("numpy", [Need("wp_and_prime", "complex128")])],
        ),
        (
            "weierstrass_relative",
            ["learnable=false"],
            "torch",
            [("torch", [Need("wp_and_prime", "complex128"), Need("add", "complex128")])],
        ),
        ("weierstrass_hybrid", ["wef=weierstrass", "table=fresh"], "torch", [("torch", LEARNED)]),
        (
            "combined",
            [],
            "torch",
            [("torch", [*LEARNED, *LEARNED_GREEN])],
        ),
        (
            "combined",
            ["parts=weierstrass+weierstrass_green:learnable=false;backend=numpy"],
            "torch",
            [("torch", LEARNED), ("numpy", [Need("green", "complex128")])],
        ),
        ("weierstrass", ["fidelity=paper"], "torch", []),
        ("weierstrass", ["function=powers"], "torch", []),
        ("weierstrass_fourier", [], "torch", []),
        ("learned", [], "torch", []),
    ],
)
def test_an_encoding_says_what_it_asks_of_which_backend(name, options, backend, expected):
    found = evaluators_of(encoded(name, *options, backend=backend), "cpu")
    assert [(each.backend, list(each.needs)) for each in found] == [
        (backend, list(needs)) for backend, needs in expected
    ]


def test_a_fixed_lattice_is_evaluated_on_the_host_and_a_learned_one_with_the_model():
    learned, fixed = (
        evaluators_of(encoded("weierstrass", f"learnable={text}"), "cuda")[0].device
        for text in ("true", "false")
    )
    assert (learned, fixed) == ("cuda", "cpu")


# --- Policies ------------------------------------------------------------------------------


def test_a_run_without_a_receipt_is_refused_by_name_before_any_work(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(RunError, match=r"torch on cpu \(wp_and_prime, gradient\): never verified"):
        run(load_config("digits", [*SHORT, "verification=require"]), path, console=QUIET)
    assert not path.exists()


def test_a_run_without_a_receipt_is_warned_of_and_goes_on():
    said: list[str] = []
    found = consult(encoded("weierstrass", policy="warn"), "cpu", say=said.append)
    (line,) = said
    assert line.startswith("warning: torch on cpu (wp_and_prime, gradient): never verified")
    assert found["status"] == "never"


def test_nothing_is_asked_or_said_where_it_is_off_or_not_needed(folder):
    def never(*given: Any) -> None:
        raise AssertionError("measured or said although nothing was asked")

    off = consult(encoded("weierstrass", policy="off"), "cpu", verify=never, say=never)
    assert off["status"] == "off"
    needless = consult(encoded("learned"), "cpu", verify=never, say=never)
    assert needless == {"status": "not needed", "policy": "require", "evaluators": []}
    assert "no elliptic function" in describe(needless)
    fixed = encoded("weierstrass", "learnable=false", backend="mpmath")
    assert consult(fixed, "cpu", verify=never, say=never)["status"] == "reference"


def test_what_is_required_and_missing_is_verified_at_the_start(folder):
    experiment = encoded("weierstrass")
    said: list[str] = []
    (evaluator,) = evaluators_of(experiment, "cpu")

    def verify(backend: str, device: str, needs: Any) -> None:
        asked = Evaluator(backend, device, tuple(needs))
        assert asked == evaluator
        give_receipt(folder, asked)

    found = consult(experiment, "cpu", verify=verify, say=said.append)
    assert found["status"] == "verified"
    (entry,) = found["evaluators"]
    assert (entry["backend"], entry["device"], entry["dtype"]) == ("torch", "cpu", "complex128")
    assert entry["worst_error"] == 1.25
    assert len(said) == 1
    # The second run finds the receipt.
    again = consult(experiment, "cpu", verify=None, say=said.append)
    assert (again, len(said)) == (found, 1)


def test_a_backend_that_failed_is_refused_and_not_measured_again(folder):
    experiment = encoded("weierstrass")
    (evaluator,) = evaluators_of(experiment, "cpu")
    give_receipt(folder, evaluator, largest=900.0, passes=False)

    def never(*given: Any) -> None:
        raise AssertionError("measured again")

    with pytest.raises(RunError, match=r"failed 2026-01-02, .* 900 eps, ceiling 8"):
        consult(experiment, "cpu", verify=never)


def test_a_backend_that_fails_at_the_start_is_refused(folder):
    experiment = encoded("weierstrass")
    (evaluator,) = evaluators_of(experiment, "cpu")

    def verify(*given: Any) -> None:
        give_receipt(folder, evaluator, largest=900.0, passes=False)

    with pytest.raises(RunError, match="failed"):
        consult(experiment, "cpu", verify=verify, say=lambda line: None)


def test_a_damaged_receipt_is_named_and_does_not_count(folder):
    experiment = encoded("weierstrass", policy="warn")
    said: list[str] = []
    (evaluator,) = evaluators_of(experiment, "cpu")
    give_receipt(folder, evaluator)
    (path,) = folder.iterdir()
    path.write_text(path.read_text().replace("1.25", "0.25"))
    assert consult(experiment, "cpu", say=said.append)["status"] == "never"
    assert said[0].startswith(f"passed over: the receipt {path} was changed")


def test_the_policy_is_no_part_of_the_hash():
    assert load_config("digits").verification == "require"
    assert load_config("default").verification == "warn"
    hashes = {
        config_hash(load_config("digits", [f"verification={policy}"]))
        for policy in ("require", "warn", "off")
    }
    assert len(hashes) == 1


# --- What a run records --------------------------------------------------------------------


def test_result_report_log_and_checkpoints_name_the_receipt(tmp_path, folder):
    config = load_config("digits", [*SHORT, "verification=require"])
    (evaluator,) = evaluators_of(config, "cpu")
    made = give_receipt(folder, evaluator)
    path = tmp_path / "run"
    result = run(config, path, console=QUIET)
    assert result["verification"]["status"] == "verified"
    (entry,) = result["verification"]["evaluators"]
    assert (entry["receipt"], entry["worst_error"]) == (made.id, 1.25)
    assert json.loads((path / "result.json").read_text())["verification"] == result["verification"]
    assert f"receipt {made.id}" in (path / "report.md").read_text()
    first = next(iter(read_lines(path / "log.jsonl")))
    assert (first["kind"], first["evaluators"]) == ("verification", [entry])
    states = list((path / "checkpoints").glob("*/state.json"))
    assert states
    for state in states:
        assert json.loads(state.read_text())["verification"] == result["verification"]
    # A finished run is finished, whatever becomes of the receipts.
    for kept in folder.iterdir():
        kept.unlink()
    assert run(config, path, resume=True, console=QUIET) == result


@pytest.mark.parametrize(
    ("statuses", "sentence"),
    [
        (("verified", "not needed"), r"^Verification: verified: weierstrass; not needed: learned"),
        (("verified", "never"), r"^The runs differ in verification: verified: weierstrass; never"),
        (("verified", None), r"^The runs differ in verification: .*not recorded: learned"),
    ],
)
def test_a_comparison_says_how_its_runs_were_verified(tmp_path, statuses, sentence):
    sweep = Sweep(
        load_config("digits"), parse_arms(["weierstrass", "learned"]), (0,), tmp_path / "sweep"
    )
    for planned, status in zip(sweep.planned, statuses, strict=True):
        planned.folder.path.mkdir(parents=True)
        planned.folder.config.write_text(dump_toml(planned.experiment))
        result: dict[str, Any] = {"test_accuracy": 0.5, "seed": 0}
        if status is not None:
            result["verification"] = {"status": status}
        planned.folder.write_result(result)
    assert re.search(sentence, verification_text(sweep.finished_rows()))
    sweep.write_tables()
    assert re.search(sentence, (tmp_path / "sweep" / "comparison.md").read_text(), re.MULTILINE)


# --- Finished runs -------------------------------------------------------------------------


def finished_run(path: Path, experiment: Any) -> Path:
    """The files of a run that matter here, with an encoding that has moved a little."""
    encoding = build_position_encoding(experiment)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    path.mkdir()
    RunFolder(path).config.write_text(dump_toml(experiment))
    tensors = {f"encoding.{name}": tensor for name, tensor in encoding.state_dict().items()}
    save_file(tensors, RunFolder(path).weights)
    return path


@pytest.mark.parametrize(
    ("name", "options", "backend", "tables"),
    [
        ("weierstrass", [], "torch", ["wp", "wp_prime", "features", "features"]),
        ("weierstrass", ["lattice=general"], "torch", ["wp", "wp_prime"]),
        ("weierstrass", ["learnable=false"], "numpy", ["wp", "wp_prime"]),
        ("weierstrass", ["learnable=false"], "mpmath", ["wp", "wp_prime"]),
        ("weierstrass", ["features=2", "origin=half_period"], "torch", ["features"]),
        ("weierstrass_relative", ["compression=softsign"], "torch", ["wp", "features"]),
        ("weierstrass_relative", ["learnable=false"], "numpy", ["wp", "features"]),
        ("weierstrass_green", [], "torch", ["green", "table"]),
        ("weierstrass_green", ["learnable=false"], "numpy", ["green", "table"]),
        ("weierstrass_heat", [], "torch", ["log_heat", "table"]),
        ("weierstrass_heat", ["lattice=general"], "torch", ["log_heat", "table"]),
        (
            "combined",
            [],
            "torch",
            ["weierstrass (parts.0): wp", "weierstrass_green (parts.1): green"],
        ),
        ("weierstrass_hybrid", ["wef=weierstrass", "table=fresh"], "torch", ["wp", "features"]),
    ],
)
def test_the_tables_of_a_finished_run_are_verified_as_trained(
    name, options, backend, tables, tmp_path, capsys
):
    path = finished_run(tmp_path / "run", encoded(name, *options, backend=backend))
    assert main(["verify", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "PASS" in printed
    assert f"backend {backend}" in printed
    flat = " ".join(printed.split())
    for table in tables:
        assert f" {table.split()[0]}" in flat
    # The weights beside their config are the same run.
    assert main(["verify", str(path / "weights.safetensors")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == printed.splitlines()[-1]


def test_a_table_that_is_wrong_in_the_seventh_digit_fails(tmp_path, capsys, monkeypatch):
    path = finished_run(tmp_path / "run", encoded("weierstrass"))
    values = WeierstrassEncoding._rows_of_values
    monkeypatch.setattr(
        WeierstrassEncoding, "_rows_of_values", lambda *given: values(*given) * (1 + 1e-7)
    )
    assert main(["verify", str(path)]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_an_encoding_without_elliptic_functions_has_nothing_to_verify(tmp_path, capsys):
    path = finished_run(tmp_path / "run", encoded("weierstrass_fourier"))
    assert main(["verify", str(path)]) == 0
    assert "nothing to verify" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("removed", "said"),
    [("config.toml", "there is no config.toml"), ("weights.safetensors", "is not finished")],
)
def test_a_folder_without_config_or_weights_is_named_in_one_line(removed, said, tmp_path, capsys):
    path = finished_run(tmp_path / "run", encoded("weierstrass"))
    (path / removed).unlink()
    assert main(["verify", str(path)]) == 2
    streams = capsys.readouterr()
    (line,) = streams.err.splitlines()
    assert str(path) in line
    assert said in line
    assert streams.out == ""


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["runs/x", "--backend", "numpy"], "--backend"),
        (["--quick", "--output", "x"], "--output"),
        (["--encoding", "weierstrass"], "--encoding"),
        (["--quick", "no_such_config"], "no_such_config"),
        (["--quick", "--encoding", "rotor"], "rotor"),
    ],
)
def test_options_that_do_not_go_together_are_named_in_one_line(words, named, capsys):
    assert main(["verify", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line


def test_a_quick_verification_of_an_encoding_that_needs_none_says_so(capsys):
    assert main(["verify", "--quick", "digits", "--encoding", "learned"]) == 0
    assert "no elliptic function" in capsys.readouterr().out


def test_a_quick_verification_makes_the_receipt_of_a_config(capsys):
    assert main(["verify", "--quick", "digits", "--encoding", "weierstrass_green"]) == 0
    assert "torch on cpu (green, green_gradient): verified" in capsys.readouterr().out
    found = consult(encoded("weierstrass_green"), "cpu")
    assert found["status"] == "verified"


def test_weights_of_another_encoding_are_named_in_one_line(tmp_path, capsys):
    path = finished_run(tmp_path / "run", encoded("weierstrass"))
    other = finished_run(tmp_path / "other", encoded("weierstrass_green"))
    (other / "weights.safetensors").replace(path / "weights.safetensors")
    assert main(["verify", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not fit the config" in line


@pytest.fixture
def trained(tmp_path):
    """The folder of a short run with a learned lattice."""
    path = tmp_path / "runs" / "digits"
    run(load_config("digits", SHORT), path, console=QUIET)
    return path


def run_script(page: str) -> dict[str, Any]:
    """The names that the script about a trained encoding defines."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (script,) = (block for block in blocks if "open_trained_encoding" in block)
    names: dict[str, Any] = {"wefpe": wefpe}  # imported further up
    exec(compile(script, page, "exec"), names)
    return names


def test_the_scripts_of_the_pages_say_what_the_command_says(trained, capsys, monkeypatch):
    monkeypatch.chdir(trained.parents[1])
    capsys.readouterr()
    one, other = run_script("docs/verification.md"), run_script("README.md")
    found = re.search(r"(\S+) eps at patch \((\d), (\d)\)", capsys.readouterr().out)
    assert found is not None
    assert 0.0 < float(found[1]) < 8.0
    assert one["lattice"] == other["lattice"]
    for name in ("z", "p", "dp"):
        assert (one[name] == other[name]).all()


def test_an_encoding_is_opened_as_it_was_trained(trained):
    one: Any = open_trained_encoding(str(trained))
    other: Any = open_finished_run(trained).model.encoding
    assert one.lattice() == other.lattice()
    for name, tensor in other.state_dict().items():
        assert torch.equal(one.state_dict()[name], tensor)
