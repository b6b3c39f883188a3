"""Rollout and locality on attention whose answers are known, and on models before training."""

from __future__ import annotations

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("accelerate", reason="the training extra is not installed")

import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file
from torch import nn

from training.config import load_config
from training.engine.finished_run import open_finished_run
from training.engine.run import run
from training.errors import RunError
from training.models import build_dhvt, build_vit, timm_state_dict
from training.study import initial_attention as initial
from training.study.analyse_attention_init import initial_attention_analysis
from training.study.analyse_rollout import (
    map_correlation,
    map_of_rollout,
    rollout,
    rollout_analysis,
    share_in_centre,
)
from training.study.analysis import write_analysis
from training.study.attention_models import checked_model, read_photographs
from training.study.encoding_choice import choose_encodings
from training.study.initial_attention import locality, relative_entropy
from verification.tests.training_runs import TINY
from wefpe_core import InputError

SMALL = (4, 6)

# --- Rollout -----------------------------------------------------------------------------------


def by_hand() -> list[torch.Tensor]:
    """Two layers of three tokens; the first with two heads that differ."""
    one = [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    other = [[1, 0, 0], [0, 0, 1], [1, 0, 0]]
    second = [[0, 1, 0], [0, 1, 0], [0, 0, 1]]
    return [
        torch.tensor([[one, other]], dtype=torch.float32),
        torch.tensor([[second, second]], dtype=torch.float32),
    ]


def test_two_layers_of_three_tokens_as_by_hand():
    # Half identity: rows (1,0,0), (1/4,1/2,1/4), (1/2,0,1/2), then (1/2,1/2,0), (0,1,0), (0,0,1).
    expected = [[0.625, 0.25, 0.125], [0.25, 0.5, 0.25], [0.5, 0.0, 0.5]]
    assert rollout(by_hand())[0].tolist() == expected


def test_the_map_is_the_row_of_what_the_head_sees():
    rolled = rollout(by_hand())
    of_token = map_of_rollout(rolled, (1, 2), pooling="token")
    assert of_token[0].tolist() == [[pytest.approx(2 / 3), pytest.approx(1 / 3)]]
    # The mean of the rows (1/2, 1/4) and (0, 1/2) of the patches.
    of_mean = map_of_rollout(rolled, (1, 2), pooling="mean")
    assert of_mean[0].tolist() == [[pytest.approx(0.4), pytest.approx(0.6)]]


def test_identity_stays_identity_and_uniform_attention_forgets_by_halves():
    tokens, layers = 5, 3
    one = torch.eye(tokens, dtype=torch.float64)
    assert torch.equal(rollout([one[None, None]] * layers)[0], one)
    uniform = torch.full((1, 2, tokens, tokens), 1.0 / tokens, dtype=torch.float64)
    left = 0.5**layers  # of the identity
    expected = left * one + (1.0 - left) / tokens
    assert (rollout([uniform] * layers)[0] - expected).abs().max() < 1e-15


def test_rollout_is_of_each_image_for_itself():
    maps = [torch.rand(2, 3, 4, 4).softmax(-1) for _ in range(3)]
    both = rollout(maps)
    assert (both.sum(-1) - 1.0).abs().max() < 1e-12
    alone = rollout([each[1:] for each in maps])
    assert torch.equal(both[1:], alone)


def test_nothing_cannot_be_rolled_out():
    with pytest.raises(InputError, match="one layer"):
        rollout([])


@pytest.mark.parametrize("grid", [(2, 2), (3, 5), (14, 14), (7, 4)])
def test_a_uniform_map_has_a_quarter_in_the_centre(grid):
    uniform = np.ones(grid)
    assert share_in_centre(uniform) == pytest.approx(0.25)
    assert relative_entropy(uniform) == pytest.approx(1.0)


def test_numbers_of_concentrated_maps():
    middle, corner = np.zeros((8, 8)), np.zeros((8, 8))
    middle[3, 4] = corner[0, 7] = 2.0
    assert (share_in_centre(middle), share_in_centre(corner)) == (1.0, 0.0)
    assert relative_entropy(middle) == 0.0
    assert relative_entropy(middle + corner) == pytest.approx(math.log(2) / math.log(64))


def test_correlations_of_maps():
    rising = np.arange(12.0).reshape(3, 4)
    assert map_correlation(rising, 5.0 + 2.0 * rising) == pytest.approx(1.0)
    assert map_correlation(rising, -rising) == pytest.approx(-1.0)
    assert map_correlation(rising, np.kron(rising, np.ones((2, 2)))) > 0.97  # on the finer grid
    assert math.isnan(map_correlation(rising, np.ones((3, 4))))


# --- Locality ----------------------------------------------------------------------------------


def distance_map(query: tuple[int, int], grid: tuple[int, int]) -> np.ndarray:
    return np.array([[math.dist(query, (i, j)) for j in range(grid[1])] for i in range(grid[0])])


def test_attention_that_falls_with_distance_is_perfectly_local():
    query = (2, 1)
    found = locality(np.exp(-distance_map(query, (5, 4))), query)
    assert found.spearman == pytest.approx(-1.0)
    assert found.query_rank == 1.0
    assert (found.largest_row, found.largest_column) == query
    assert found.query_is_largest is True
    assert found.relative_distance < 0.7
    assert found.max_over_min == pytest.approx(math.exp(math.dist((4, 3), query)))
    turned = locality(np.exp(distance_map(query, (5, 4))), query)
    assert turned.spearman == pytest.approx(1.0)
    assert turned.query_rank == 20.0
    assert turned.query_is_largest is False
    assert turned.relative_distance > 1.2


def test_uniform_attention_has_no_order():
    rounding = 1.0 + 1e-15 * np.random.default_rng(0).standard_normal((5, 4))
    for uniform in (np.full((5, 4), 0.05), rounding):
        found = locality(uniform, (0, 0))
        assert math.isnan(found.spearman)
        assert found.query_rank == 10.5  # the middle of 20 places
        assert found.query_is_largest is None
        assert (found.largest_row, found.largest_column) == (None, None)
        assert found.relative_distance == pytest.approx(1.0)
        assert found.max_over_min == pytest.approx(1.0)
        assert found.relative_entropy == pytest.approx(1.0)


def test_a_query_that_shares_the_largest_attention_is_not_the_largest():
    shared = np.array([[2.0, 1.0, 1.0], [1.0, 1.0, 2.0]])
    found = locality(shared, (0, 0))
    assert (found.largest_row, found.largest_column) == (0, 0)
    assert found.query_rank == 1.5
    assert found.query_is_largest is False


def test_all_attention_on_the_query():
    alone = np.zeros((3, 3))
    alone[1, 2] = 1.0
    found = locality(alone, (1, 2))
    assert (found.query_rank, found.relative_distance, found.relative_entropy) == (1.0, 0.0, 0.0)
    assert found.max_over_min == math.inf


def test_a_permutation_of_the_patches_loses_locality_and_nothing_else():
    query, grid = (7, 7), (14, 14)
    local = np.exp(-distance_map(query, grid))
    shuffled = np.random.default_rng(1).permutation(local.ravel()).reshape(grid)
    before, after = locality(local, query), locality(shuffled, query)
    assert abs(after.spearman) < 0.2
    assert after.query_rank != 1.0
    assert shuffled[after.largest_row, after.largest_column] == local.max()
    assert after.max_over_min == pytest.approx(before.max_over_min)
    assert after.relative_entropy == pytest.approx(before.relative_entropy)


def test_one_patch_and_a_query_outside_are_refused():
    with pytest.raises(InputError, match="one patch"):
        locality(np.ones((1, 1)), (0, 0))
    with pytest.raises(InputError, match=r"5x0 .*5 x 4"):
        locality(np.ones((5, 4)), (5, 0))
    with pytest.raises(InputError, match="one patch"):
        initial.measure(choose_encodings(["none"], SMALL), (1, 1), (0,))


# --- Before training -----------------------------------------------------------------------------


def test_wef_pe_is_not_local_at_the_start_and_flatter_than_a_learned_table():
    """Over five seeds as the published scripts start; the paper says the contrary."""
    labels = ["weierstrass:fidelity=authors", "learned", "weierstrass_green"]
    found = initial.measure(
        choose_encodings(labels, (14, 14)), seeds=range(5), start="authors", image="zero"
    )
    theirs, learned, green = (
        [each.locality for each in found if each.label == label] for label in labels
    )
    for mine, rival in zip(theirs, learned, strict=True):
        assert mine.query_is_largest is False
        assert mine.query_rank > 20
        assert abs(mine.spearman) < 0.6
        assert 1.2 < mine.max_over_min < rival.max_over_min
        assert 3.0 < rival.max_over_min < 7.5
    assert min(each.spearman for each in theirs) < 0 < max(each.spearman for each in theirs)
    # What local attention looks like.
    assert all(each.query_rank == 1.0 and each.spearman < -0.99 for each in green)


@pytest.mark.slow
def test_the_first_block_alone_gives_what_the_whole_model_gives():
    [subject] = choose_encodings(["weierstrass_relative"], SMALL)
    [found] = initial.measure([subject], SMALL, [3], image="noise", query=(1, 5))
    model = initial._model(SMALL, 3, "timm")
    model.encoding = subject.build(SMALL, 3)
    with torch.no_grad():
        _, maps = model(initial._pixels("noise", SMALL)(3), return_attention=True)
    row = maps[0][0, :, 1 + 1 * 6 + 5, 1:]
    expected = (row / row.sum(-1, keepdim=True)).reshape(3, *SMALL).numpy()
    assert np.abs(found.heads - expected).max() < 1e-14
    assert np.abs(found.mean - expected.mean(axis=0)).max() < 1e-14


@pytest.mark.slow
def test_the_weights_of_the_model_do_not_depend_on_the_encodings():
    both = initial.measure(choose_encodings(["sincos2d", "learned"], SMALL), SMALL, (0, 1))
    alone = initial.measure(choose_encodings(["learned"], SMALL), SMALL, (0, 1))
    assert [(each.label, each.seed) for each in both[2:]] == [("learned", 0), ("learned", 1)]
    for one, other in zip(both[2:], alone, strict=True):
        assert np.array_equal(one.heads, other.heads)
    assert not np.array_equal(alone[0].heads, alone[1].heads)


def test_without_added_position_a_zero_image_is_seen_evenly():
    found = initial.measure(choose_encodings(["rope_axial"], SMALL), SMALL, (0,), start="authors")
    assert math.isnan(found[0].locality.spearman)
    assert np.ptp(found[0].mean) < 1e-15


def test_a_photograph_and_what_is_none(tmp_path):
    subjects = choose_encodings(["none"], SMALL)
    path = photograph(tmp_path / "a.png", (90, 70))
    images = (str(path), "zero")
    seen = [initial.measure(subjects, SMALL, (0,), image=image)[0].mean for image in images]
    assert np.ptp(seen[0]) > 1e-4 > np.ptp(seen[1])
    with pytest.raises(InputError, match=r"b\.png does not exist"):
        initial.measure(subjects, SMALL, (0,), image=str(tmp_path / "b.png"))


def test_segments_are_the_groups_of_like_rows():
    quarters = np.kron(np.array([[0, 1], [2, 3]]), np.ones((2, 3), dtype=int))
    rows = np.eye(4)[quarters.ravel()] + 1e-3 * np.arange(4.0)
    found = initial.segments_of(rows, quarters.shape, count=4)
    assert len(np.unique(found)) == 4
    for number in range(4):
        assert len(np.unique(found[quarters == number])) == 1
    one = initial.segments_of(np.full((24, 24), 1 / 24) * (1 + 1e-15), quarters.shape)
    assert np.unique(one).tolist() == [1]


def test_coherence_is_one_by_chance_and_counts_neighbours():
    halves = np.repeat([[1], [2]], 4, axis=0).reshape(2, 4)
    # 6 of 10 pairs of neighbours share a half, and 12 of 28 of all pairs do.
    assert initial.coherence(halves) == pytest.approx((6 / 10) / (12 / 28))
    assert initial.coherence(np.ones((3, 5), dtype=int)) == 1.0
    board = np.indices((4, 4)).sum(axis=0) % 2
    assert initial.coherence(board) == 0.0
    drawn = np.random.default_rng(0).integers(0, 6, (100, 100))
    assert abs(initial.coherence(drawn) - 1.0) < 0.1
    assert np.isnan(initial.coherence(np.ones((1, 1), dtype=int)))


def test_the_analysis_of_initial_attention_is_written(tmp_path):
    subjects = choose_encodings(["none", "learned", "weierstrass"], SMALL)
    told: list[str] = []
    analysis = initial_attention_analysis(subjects, SMALL, (0, 1), progress=told.append)
    assert told == ["seed 0", "seed 1"]
    assert "seeds 0, 1" in analysis.caption
    assert "row 2, column 3" in analysis.caption
    assert "4 x 6 patches" in analysis.caption
    assert all(subject.label in analysis.caption for subject in subjects)
    assert len(analysis.tables["locality"]) == 3 * 2 * (1 + 3)  # the mean and three heads
    names = {path.name for path in write_analysis(analysis, tmp_path / "out")}
    assert {"maps.png", "heads.png", "statistics.svg", "locality.csv", "summary.csv"} <= names


def test_even_attention_is_a_dash_none_and_empty(tmp_path):
    subjects = choose_encodings(["none", "weierstrass_green"], SMALL)
    analysis = initial_attention_analysis(subjects, SMALL, (0, 1))
    none, green = analysis.numbers["encodings"]
    assert (none["query_is_largest"], none["spearman"], none["spearman_low"]) == (None,) * 3
    assert (green["query_is_largest"], green["seeds_ordered"]) == (2, 2)
    lines = analysis.markdown.splitlines()
    assert lines[2].startswith("| `none` | – | – |")
    assert lines[3].startswith("| `weierstrass_green` | 2 of 2 | -")
    write_analysis(analysis, tmp_path / "out")
    rows = csv.DictReader((tmp_path / "out" / "locality.csv").read_text("utf-8").splitlines())
    first = next(rows)
    assert first["encoding"] == "none"
    columns = ("query_is_largest", "spearman", "largest_row", "largest_column")
    assert {first[name] for name in columns} == {""}


# --- Models and images ---------------------------------------------------------------------------


def photograph(path: Path, size: tuple[int, int]) -> Path:
    """Width and height; a bright square on the left, dark elsewhere."""
    image = Image.new("RGB", size, (20, 40, 60))
    image.paste((250, 240, 200), (0, 0, size[0] // 3, size[1] // 2))
    image.save(path)
    return path


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rollout") / "digits"
    config = load_config("digits", [*TINY, "training.epochs=1", "training.threads=0"])
    run(config, path, console=Console(quiet=True))
    return path


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    model = build_vit("micro", encoding="learned", num_classes=5)
    path = tmp_path_factory.mktemp("weights") / "published.safetensors"
    state = timm_state_dict(model, (8, 8))
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    return path


def test_a_run_sees_images_as_in_its_training(digits_run):
    analysis = rollout_analysis([digits_run], test_images=2)
    opened = open_finished_run(digits_run)
    stored = opened.splits.open_test().fetch(torch.arange(2))

    def entropies(images: torch.Tensor) -> list[float]:
        with torch.no_grad():
            _, maps = opened.model(images, return_attention=True)
        found = map_of_rollout(rollout(maps), (4, 4), pooling="token")
        return [relative_entropy(each) for each in found]

    shown = [row["relative_entropy"] for row in analysis.tables["maps"]]
    assert shown == pytest.approx(entropies(opened.splits.normalise(stored)), rel=1e-6)
    assert shown != pytest.approx(entropies(stored / 127.5 - 1.0), rel=1e-6)  # others would differ
    mean = opened.splits.normalise.mean[0]
    assert f"mean {mean:.4g} " in analysis.caption
    for text in ("4x4 patches", "Data: digits.", "weierstrass:projection=mlp: seed 0"):
        assert text in analysis.caption
    assert "the row of the class token" in analysis.caption


def test_two_models_side_by_side_on_a_rectangular_photograph(weights_file, digits_run, tmp_path):
    path = photograph(tmp_path / "castle.png", (300, 200))
    told: list[str] = []
    analysis = rollout_analysis(
        [weights_file, digits_run], [path], image_size=(32, 48), progress=told.append
    )
    assert told == ["published", "weierstrass:projection=mlp"]
    rows = analysis.tables["maps"]
    assert [row["grid"] for row in rows] == ["8 x 12", "16 x 24"]  # patches of 4 and of 2
    [pair] = analysis.tables["correlations"]
    assert -1.0 <= pair["correlation"] <= 1.0
    assert (pair["one"], pair["other"], pair["image"]) == (*told, "castle")
    assert {"rollout.png", "maps.csv"} <= {
        each.name for each in write_analysis(analysis, tmp_path / "out")
    }


def test_the_image_is_shown_as_large_as_any_model_sees_it(weights_file, digits_run, tmp_path):
    path = photograph(tmp_path / "castle.png", (300, 300))
    figure = rollout_analysis([digits_run, weights_file], [path]).figures["rollout"]
    [shown] = figure.axes[0].images
    assert shown.get_array().shape == (32, 32, 3)  # digits are 8 x 8
    assert np.ptp(np.asarray(shown.get_array()), axis=-1).max() > 0  # and have no colour


def test_damaged_weights_of_a_run_and_those_of_another_model_are_named(digits_run, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(digits_run, path)
    weights = path / "weights.safetensors"
    whole = weights.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"{" * 100):
        weights.write_bytes(damaged)
        with pytest.raises(RunError, match=r"copy/weights\.safetensors is not a readable"):
            open_finished_run(path)
    weights.write_bytes(whole)
    config = path / "config.toml"
    for before, after in (("dim = 16", "dim = 32"), ("depth = 2", "depth = 1")):
        text = config.read_text()
        assert before in text
        config.write_text(text.replace(before, after))
        with pytest.raises(RunError, match=r"weights\.safetensors does not fit") as caught:
            open_finished_run(path)
        assert "\n" not in str(caught.value)
        config.write_text(text)


def test_mean_pooling_is_said(digits_run, tmp_path):
    config = load_config("digits", [*TINY, "training.epochs=1", "model.pooling=mean"])
    run(config, tmp_path / "mean", console=Console(quiet=True))
    assert "mean of the rows" in rollout_analysis([tmp_path / "mean"], test_images=1).caption


def test_photographs_are_cut_to_the_middle_not_distorted(tmp_path):
    wide = Image.new("RGB", (30, 10), (0, 0, 0))
    wide.paste((255, 255, 255), (10, 0, 20, 10))
    wide.save(tmp_path / "wide.png")
    [read] = read_photographs([tmp_path / "wide.png"])
    assert (read.fitted(10, 3) == 255).all()  # the white square in the middle
    assert read.fitted((10, 30), 1).shape == (1, 10, 30)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_white(mode, tmp_path):
    image = Image.new("RGBA", (4, 4), (200, 200, 200, 255))
    image.paste((10, 10, 10, 0), (0, 0, 2, 4))
    image.convert(mode).save(tmp_path / "cut.png")
    [read] = read_photographs([tmp_path / "cut.png"])
    row = read.fitted(4, 3)[:, 0]
    assert row.tolist() == [[255, 255, 200, 200]] * 3


def test_photographs_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "b").mkdir()
    one, other = (photograph(tmp_path / name, (20, 20)) for name in ("x.png", "b/x.png"))
    alone = photograph(tmp_path / "y.png", (20, 20))
    names = [each.name for each in read_photographs([one, other, alone, one])]
    assert names == [str(one), str(other), "y"]


def test_files_that_are_no_images_are_named_before_any_work(digits_run, tmp_path):
    text = tmp_path / "notes.png"
    text.write_text("not an image")
    good = photograph(tmp_path / "good.png", (20, 20))
    for bad, found in (
        (text, r"notes\.png cannot be decoded"),
        (tmp_path / "absent.png", r"absent\.png does not exist"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(InputError, match=found):
            rollout_analysis([tmp_path / "no run is looked at"], [good, bad])


def test_models_that_cannot_be_rolled_out_are_refused(weights_file, digits_run, tmp_path):
    dhvt = build_dhvt(encoding="none", dim=16, depth=1, num_heads=2)
    with pytest.raises(InputError, match=r"somewhere is a DHVT: its convolutions"):
        checked_model(dhvt, "somewhere")
    with pytest.raises(InputError, match="Linear gives no attention maps"):
        checked_model(nn.Linear(2, 2), "somewhere")
    with pytest.raises(InputError, match="absent does not exist"):
        rollout_analysis([tmp_path / "absent"])
    with pytest.raises(InputError, match="without test images"):
        rollout_analysis([weights_file])
    with pytest.raises(InputError, match="other channels"):
        rollout_analysis([digits_run, weights_file])
    good = photograph(tmp_path / "good.png", (20, 20))
    with pytest.raises(InputError, match=r"30 x 48 pixels.*patches of 4"):
        rollout_analysis([weights_file], [good], image_size=(30, 48))
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"other\.safetensors holds no vision transformer"):
        rollout_analysis([tmp_path / "other.safetensors"], [good])
