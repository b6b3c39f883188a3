"""The machinery of the benchmark, on works that take no time; no figure is judged here."""

import json
from typing import Any

import numpy as np
import pytest

from training import cli
from verification.bench import backend_entries, benchmark, time_backends
from verification.bench.backend_entries import COMPARISONS, ENTRIES, BackendEntry, Comparison
from verification.bench.benchmark import Quantity
from verification.bench.time_backends import BackendTiming
from wefpe_core import get_backend


def work_of(z, device):
    return lambda: np.square(z)


def failing(z, device):
    raise RuntimeError("[cannot] be prepared\nsecond line")


@pytest.fixture(autouse=True)
def restored_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the benchmark sets it for good


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the benchmark on the entries given; the exit code and what it prints."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(entries, **options):
        tiny: dict[str, Any] = {"points": 64, "repeat": 2, "comparisons": ()}
        code = time_backends.run(entries=entries, **(tiny | options))
        return code, capsys.readouterr().out

    return run


def row_of(output, name):
    return next(line for line in output.splitlines() if line.strip().startswith(name))


# --- Arithmetic ----------------------------------------------------------------------------


def test_the_ratio_is_best_over_best():
    timing = BackendTiming("work", 100, seconds=(6e-8, 4e-8, 9e-8), yardstick=(2e-8, 3e-8, 3e-8))
    assert timing.ratio == pytest.approx(2.0)
    assert timing.median_ratio == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("at_most", "expected"), [(None, None), (2.0, True), (1.9, False)], ids=str
)
def test_a_ceiling_is_kept_or_not(at_most, expected):
    assert BackendTiming("work", 1, (4.0,), (2.0,), at_most=at_most).is_kept is expected


def test_skipped_work_is_not_judged_and_failed_work_is():
    assert BackendTiming("work", at_most=2.0, problem="skipped: reason").is_kept is None
    assert BackendTiming("work", problem="failed: reason").is_kept is False


def test_a_figure_has_a_floor_or_a_ceiling():
    assert Quantity("speed-up", 500.0, "x", at_least=500.0).is_kept is True
    assert Quantity("speed-up", 499.0, "x", at_least=500.0).is_kept is False
    assert Quantity("memory", 65.0, "MB", at_most=64.0).is_kept is False
    assert Quantity("memory", 65.0, "MB").is_kept is None


def test_comparisons_divide_ratios_not_times():
    timings = [
        BackendTiming("slow", 1, (8.0,), (2.0,)),  # on a machine half as fast: 4 yardsticks
        BackendTiming("fast", 1, (2.0,), (1.0,)),
        BackendTiming("absent", problem="skipped: reason"),
    ]
    comparisons = [Comparison("slow", "fast", at_least=3.0), Comparison("absent", "fast")]
    (figure,) = time_backends.compare(timings, comparisons)
    assert figure.value == pytest.approx(2.0)
    assert figure.is_kept is False


def test_the_time_of_a_run_is_an_average_over_runs():
    ticks = iter([10.0, 13.0])
    calls = []
    assert benchmark.seconds_of(lambda: calls.append(1), lambda: next(ticks), runs=3) == 1.0
    assert len(calls) == 3


# --- Measuring -----------------------------------------------------------------------------


def test_every_work_is_timed_beside_the_yardstick():
    timing = time_backends.measure(
        BackendEntry("fake", work_of, max_points=16), 64, repeat=3, device="cpu"
    )
    assert timing.points == 16
    assert len(timing.seconds) == len(timing.yardstick) == 3
    assert min(timing.seconds) > 0.0
    assert timing.problem is None


def test_points_are_the_same_in_every_run_and_inside_the_cell():
    z = backend_entries.uniform_points(1000)
    assert np.array_equal(z, backend_entries.uniform_points(1000))
    along3 = z.imag / (2 * backend_entries.LATTICE.omega3.imag)
    along1 = (z - 2 * along3 * backend_entries.LATTICE.omega3) / (
        2 * backend_entries.LATTICE.omega1
    )
    for coordinate in (along1.real, along3):
        assert coordinate.min() >= 0.0
        assert coordinate.max() <= 1.0
    assert backend_entries.uniform_points(3, "complex64").dtype == np.complex64


def test_memory_is_what_exceeds_input_and_output(monkeypatch):
    class Wasteful:
        def wp_and_prime(self, z, lattice):
            wasted = np.ones(5_000_000, dtype=np.uint8)
            return z + wasted[0], z - wasted[0]

    monkeypatch.setattr(time_backends, "get_backend", lambda name: Wasteful())
    assert time_backends.measure_memory(1000).value == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize(
    "entry",
    [
        entry
        for entry in ENTRIES
        if not entry.compiles and entry.name != backend_entries.COMPILED_GRID
    ],
    ids=lambda entry: entry.name,
)
def test_entries_can_be_prepared_and_run(entry):
    if entry.needs:
        pytest.importorskip(entry.needs)
    work = entry.prepare(backend_entries.uniform_points(3, entry.dtype), "cpu")
    assert work() is not None


@pytest.mark.parametrize("prepare", ["published_lattice_sum", "flint_loop"])
def test_peers_compute_the_same_function(prepare):
    pytest.importorskip("torch" if "sum" in prepare else "flint")
    z = backend_entries.uniform_points(4)
    lattice = backend_entries.LATTICE
    values = getattr(backend_entries, prepare)(z, "cpu")()
    if prepare == "flint_loop":
        values = np.array([complex(value) for value in values]) / (2 * lattice.omega1) ** 2
        assert np.allclose(values, get_backend("numpy").wp(z, lattice))
    else:
        truncated = get_backend("numpy").lattice_sum(z, lattice, 12, 12)
        assert np.allclose([value.numpy() for value in values], truncated)


# --- Running -------------------------------------------------------------------------------


def test_a_missed_ceiling_fails_with_check_only(run):
    entries = [BackendEntry("hopeless", work_of, at_most=1e-9)]
    code, output = run(entries)
    assert code == 0
    assert "NO" in row_of(output, "hopeless")
    assert run(entries, check=True)[0] == 1


def test_kept_promises_pass_the_check(run):
    code, output = run([BackendEntry("easy", work_of, at_most=1e9)], check=True)
    assert code == 0
    assert "yes" in row_of(output, "easy")


def test_a_comparison_below_its_floor_fails_the_check(run):
    entries = [BackendEntry("one", work_of), BackendEntry("other", work_of)]
    comparisons = [Comparison("one", "other", at_least=1e12)]
    assert run(entries, check=True, comparisons=comparisons)[0] == 1


@pytest.mark.parametrize(
    ("library", "install"),
    [("torch", "wefpe[torch]"), ("flint", "wefpe[flint]"), ("cypari", "cypari")],
)
def test_a_skip_says_what_to_install(run, monkeypatch, library, install):
    monkeypatch.setattr(benchmark, "find_spec", lambda name: None)
    code, output = run([BackendEntry("peer", failing, needs=library, at_most=1.0)], check=True)
    assert code == 0
    assert f"skipped: not installed (pip install '{install}')" in output


def test_an_error_in_one_row_does_not_cost_the_others(run):
    code, output = run(
        [BackendEntry("broken", failing), BackendEntry("sound", work_of)], check=True
    )
    assert code == 1
    assert "failed: RuntimeError: [cannot] be prepared" in output
    assert "second line" not in output
    assert "64" in row_of(output, "sound")


def test_json_holds_every_sample(run, tmp_path):
    path = tmp_path / "bench.json"
    entries = [
        BackendEntry("one", work_of),
        BackendEntry("other", work_of, at_most=1e9),
        BackendEntry("bad", failing),
    ]
    run(entries, json=path, comparisons=[Comparison("one", "other")])
    report = json.loads(path.read_text(encoding="utf-8"))
    yardstick, one, other, bad = report["timings"]
    assert yardstick["name"] == time_backends.YARDSTICK
    assert yardstick["ratio"] == 1.0
    assert len(yardstick["seconds"]) == 4
    assert one["ratio"] == min(one["seconds"]) / min(one["yardstick"])
    assert other["is_kept"] is True
    assert bad["problem"].startswith("failed")
    assert [figure["unit"] for figure in report["figures"]] == ["x", "MB"]
    assert "numpy" in report["circumstances"]["versions"]


def test_only_selects_by_name(run):
    _, output = run(
        [BackendEntry("chosen", work_of), BackendEntry("left out", work_of)], only="cho"
    )
    assert "chosen" in output
    assert "left out" not in output
    assert time_backends.MEMORY not in output


@pytest.mark.parametrize("options", [["--points", "0"], ["--repeat", "x"], ["--device", "tpu"]])
def test_bad_options_are_refused(options):
    for words in (["bench"], ["bench", "backends"]):
        assert cli.main([*words, *options]) == 2


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(benchmark, "find_spec", lambda name: None)
    assert cli.main(["bench", "--device", "cuda"]) == 2


def test_comparisons_name_entries_that_exist():
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    for slower, faster, *_ in COMPARISONS:
        assert {slower, faster} <= set(names)
