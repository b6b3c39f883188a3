"""The machinery of the benchmark of training steps, on a micro model; no figure is judged here."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training import cli
from training.encodings.learned_lattice import LatticeParameter
from training.models import build_vit
from verification.bench import count_models, time_models
from verification.bench.benchmark import Quantity
from verification.bench.count_models import EncodingCounts, StepCounts
from verification.bench.count_operators import CompiledCalls, Operators
from verification.bench.count_work import work_of
from verification.bench.time_models import COMPARISONS, ENTRIES, TIMM, ModelEntry, StepTiming
from verification.tests.encoding_cases import NAMES
from wefpe_core import InputError

TINY: dict[str, Any] = {"size": "micro", "batch": 2, "repeat": 2, "compiled": False}


@pytest.fixture
def run(capsys):
    """Run the benchmark on the entries given; the exit code and what it prints."""

    def run(entries, **options):
        code = time_models.run(entries=entries, **(TINY | options))
        return code, capsys.readouterr().out

    return run


def timing(step=(2.0, 1.0), encoding=(0.05, 0.01), at_most=2.0):
    return StepTiming(ModelEntry("some", "none", at_most=at_most), list(step), list(encoding))


def test_the_share_is_best_over_best():
    assert timing().percent == pytest.approx(1.0)
    assert timing(encoding=()).percent is None


@pytest.mark.parametrize(("at_most", "expected"), [(None, None), (2.0, True), (0.9, False)])
def test_a_promise_is_kept_or_not(at_most, expected):
    assert timing(at_most=at_most).is_kept is expected


def test_what_is_skipped_breaks_no_promise_and_what_fails_does():
    for problem, expected in (("skipped: no timm", None), ("failed: ValueError", False)):
        assert (
            StepTiming(ModelEntry("some", "none", at_most=2.0), problem=problem).is_kept is expected
        )
    assert Quantity("a / b", 1.1, "x", at_least=1.0).is_kept
    assert not Quantity("a / b", 0.9, "x", at_least=1.0).is_kept


def test_every_encoding_is_timed_and_the_learned_lattice_is_promised():
    assert {entry.encoding for entry in ENTRIES} == {*NAMES, None}
    promised = {entry.name: entry.at_most for entry in ENTRIES if entry.at_most is not None}
    assert promised["weierstrass"] == 2.0
    parameter = build_vit("micro", encoding="weierstrass").encoding.lattice_parameter
    assert isinstance(parameter, LatticeParameter)
    assert parameter.learned == "omega3"
    assert COMPARISONS == ((TIMM, "learned", 1.0),)
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    assert {name for slower, faster, _ in COMPARISONS for name in (slower, faster)} <= set(names)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.encoding], ids=lambda e: e.name)
def test_each_entry_can_be_timed(entry):
    (found,) = time_models.measure([entry], size="micro", batch=2, repeat=1, device="cpu")
    assert found.problem is None
    assert len(found.step) == 1
    assert len(found.encoding) == (0 if entry.encoding == "none" else 1)


def test_the_encoding_alone_reaches_all_its_parameters():
    for name in ("rope_mixed", "weierstrass", "weierstrass_relative", "weierstrass_green"):
        encoding = build_vit("micro", encoding=name).encoding
        work = count_models.encoding_step(encoding, 2, "cpu", layers=encoding.size.depth)
        assert work is not None
        work()
        for key, parameter in encoding.named_parameters():
            assert parameter.grad is not None, key


def test_the_table_and_the_file_hold_the_figures(run, tmp_path):
    path = tmp_path / "bench.json"
    entries = [ModelEntry("none", "none"), ModelEntry("[learned]", "learned", at_most=1e-9)]
    code, output = run(entries, json=path, check=True)
    assert code == 0  # what is promised of ViT-Ti at batch 64 is not judged here
    assert "vit_micro at 32, batch 2" in output
    assert "best of 2" in output
    row = next(line for line in output.splitlines() if "[learned]" in line)
    assert "%" in row
    written = json.loads(path.read_text(encoding="utf-8"))
    assert [each["name"] for each in written["timings"]] == ["none", "[learned]"]
    assert all(len(each["step"]) == 2 for each in written["timings"])
    assert [each["name"] for each in written["counts"]] == ["none", "[learned]"]
    assert written["counts"][1]["step"]["forward"]["names"] == {"aten::slice": 1}


BUDGET = {"eager": 120.0, "compiled": 10.0}


def counts(eager=120, compiled: int | None = 10, ceilings=BUDGET, problem=None):
    one_layer = StepCounts(
        Operators(launching=eager - 20),
        Operators(launching=12, free=8),
        None if compiled is None else CompiledCalls(generated=compiled - 1, extern=1),
    )
    model = StepCounts(Operators(launching=224), compiled=CompiledCalls(generated=40))
    return EncodingCounts("some", model, one_layer, one_layer, ceilings, problem)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"eager": 121}, False),
        ({"compiled": 11}, False),
        ({"compiled": None}, True),
        ({"compiled": None, "eager": 121}, False),
        ({"eager": 5000, "ceilings": {}}, None),
        ({"ceilings": {}, "problem": "failed: reason"}, False),
    ],
    ids=str,
)
def test_a_budget_is_kept_or_not(given, expected):
    assert counts(**given).is_kept is expected


def test_budgets_grow_with_lattices_and_hidden_layers():
    def ceilings(name, **options):
        model = build_vit("micro", encoding=name, encoding_options=options)
        return count_models.ceilings_of(model.encoding)

    for how in ("eager", "compiled"):
        layers = count_models.budget("hidden layers", how)
        allowed = count_models.budget("encoding", how)
        assert ceilings("weierstrass")[how] == ceilings("weierstrass_green")[how] == allowed
        assert ceilings("combined")[how] == 2 * allowed
        assert ceilings("weierstrass", projection="mlp")[how] == allowed + layers
    assert ceilings("weierstrass", learnable=False) == ceilings("learned") == {}


def test_shares_are_of_what_the_model_launches():
    assert counts().eager_share == pytest.approx(50.0)
    assert counts().compiled_share == pytest.approx(25.0)
    assert counts(compiled=None).compiled_share is None


def test_a_model_with_an_encoding_has_the_operators_of_both():
    """What the encoding adds to a step is what it costs alone, and one addition each way."""
    images, labels = torch.zeros(2, 3, 32, 32), torch.arange(2)
    entries = [ModelEntry("learned", "learned"), ModelEntry("weierstrass", "weierstrass")]
    totals = {}
    for name in ("none", "learned", "weierstrass"):
        model = time_models.model_of(ModelEntry(name, name), "micro", "cpu")
        step = count_models.model_step(model, images, labels)
        totals[name] = count_models.counts_of(step, compiled=False).both.total
    for row in time_models.count(entries, size="micro", device="cpu", compiled=False):
        assert row.model.both.total == totals["none"]
        assert 0 < totals[row.name] - totals["none"] - row.step.both.total < 10


def test_counts_do_not_depend_on_the_batch():
    encoding = build_vit("micro", encoding="rope_mixed").encoding
    few, many = (
        count_models.counts_of(
            count_models.encoding_step(encoding, batch, "cpu", layers=4), compiled=False
        )
        for batch in (2, 5)
    )
    assert few.both.names == many.both.names
    assert few.both.total == many.both.total > 0


def test_what_a_device_counts_is_shown(run, tmp_path):
    calls = []

    def count_device(work):
        work()
        calls.append(work)
        return {"launches": 1234, "waits": len(calls)}

    entries = [ModelEntry("none", "none"), ModelEntry("learned", "learned")]
    path = tmp_path / "bench.json"
    _, output = run(entries, count_device=count_device, json=path)
    on_device = output.partition("On the device")[2]
    rows = {line.split()[0]: line.split()[1:] for line in on_device.splitlines() if line.split()}
    assert rows["none"] == ["0", "0"]  # it computes nothing, so nothing is run
    assert rows["learned"] == ["1,234", "2"]
    assert rows["the"] == ["model", "itself", "1,234", "1"]
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["counts"][1]["step"]["device"] == {"launches": 1234, "waits": 2}
    assert "On the device" not in run(entries)[1]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_compiled_kernels_are_counted_beside_those_of_the_model(run, tmp_path):
    path = tmp_path / "bench.json"
    fixed = ModelEntry("fixed", "weierstrass", {"learnable": False})
    run([fixed], compiled=True, json=path)
    (row,) = json.loads(path.read_text(encoding="utf-8"))["counts"]
    assert row["problem"] is None
    encoding, model = (row[key]["compiled"]["total"] for key in ("one_layer", "model"))
    assert 0 < encoding < model
    assert row["compiled_share"] == pytest.approx(100.0 * encoding / model)


def test_a_broken_entry_costs_no_other_and_fails_the_check(run):
    entries = [ModelEntry("broken", "learned", {"no": "option"}), ModelEntry("none", "none")]
    code, output = run(entries, check=True)
    assert code == 1
    assert "failed: EncodingOptionError" in output
    assert run(entries)[0] == 0
    broken, sound = time_models.count(entries, size="micro", device="cpu", compiled=False)
    assert broken.problem is not None
    assert broken.problem.startswith("failed: EncodingOptionError")
    assert sound.problem is None


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_without_timm_its_row_says_so(run):
    code, output = run([ModelEntry(TIMM, None), ModelEntry("learned", "learned")], check=True)
    assert code == 0
    assert "skipped: not installed" in output


def test_only_what_is_asked_for_is_timed(run):
    code, output = run(ENTRIES, only="sincos")
    assert code == 0
    assert "sincos2d" in output
    assert "rope" not in output
    with pytest.raises(InputError, match="nobody"):
        run(ENTRIES, only="nobody")
    assert cli.main(["bench", "models", "--only", "nobody"]) == 2


def test_steps_are_compared_by_their_best():
    slow, fast = (StepTiming(ModelEntry(name, None)) for name in (TIMM, "learned"))
    slow.step, fast.step = [3.0, 2.5], [2.0, 4.0]
    (quotient,) = time_models.compare([slow, fast])
    assert quotient.value == pytest.approx(1.25)
    assert time_models.compare([fast]) == []


@pytest.mark.parametrize("options", [["--batch", "0"], ["--device", "tpu"], ["--size", "huge"]])
def test_bad_options_are_refused(options):
    assert cli.main(["bench", "models", *options]) == 2


def test_the_work_of_a_model_is_what_its_shape_says():
    model = build_vit("micro", encoding="weierstrass_green", num_classes=10)
    work = work_of(model, 3, 32, "green")
    tokens, dim, depth = 65, 64, 4
    each = tokens * dim * (4 * dim + 8 * dim) + 2 * tokens * tokens * dim  # with attention's own
    want = 64 * 48 * dim + depth * each + 10 * dim
    assert work.macs == want
    assert work.parameters == sum(p.numel() for p in model.parameters())
    assert work.as_json()["name"] == "green"


def test_parameters_and_operations_are_in_the_table(run):
    _, output = run([ModelEntry("none", "none"), ModelEntry("learned", "learned")])
    assert "giga-MAC of an image" in output
    assert f"{sum(p.numel() for p in build_vit('micro', encoding='none').parameters()):,}" in output
