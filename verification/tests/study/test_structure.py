"""The structure of encodings: measures with known answers, and the analysis that shows them."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest

from training.study import structure_measures as measures
from wefpe_core import InputError

GRIDS = [(14, 14), (3, 8), (8, 3), (2, 2)]
ROUNDING = 1e-12


def plane_of(grid):
    """The grid itself."""
    return np.stack(measures.patch_places(grid), axis=-1).astype(float)


def in_a_plane(grid, width=10, seed=0):
    """The grid in a plane somewhere in a space of `width` dimensions."""
    rng = np.random.default_rng(seed)
    directions, _ = np.linalg.qr(rng.standard_normal((width, 2)))
    return plane_of(grid) @ directions.T + rng.standard_normal(width)


def kept_by_counting(points, grid):
    """`neighbours_kept` for points without ties, from its definition."""
    places, shares, total = plane_of(grid), 0, 0
    for i, here in enumerate(places):
        near = {j for j, other in enumerate(places) if j != i and np.abs(other - here).max() == 1}
        order = sorted(range(len(points)), key=lambda j: np.linalg.norm(points[j] - points[i]))
        shares += len(near & set(order[1 : len(near) + 1]))
        total += len(near)
    return shares / total


# --- Principal components --------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS)
def test_a_plane_has_two_components_and_keeps_the_grid(grid):
    table = in_a_plane(grid)
    found = measures.principal_components(table @ table.T)
    assert found.coordinates.shape[1] == 2
    assert found.explained.sum() == pytest.approx(1, abs=ROUNDING)
    # Rows and columns vary as n² - 1.
    spreads = sorted((n**2 - 1 for n in grid), reverse=True)
    assert found.explained == pytest.approx(np.array(spreads) / sum(spreads), abs=ROUNDING)
    assert found.negative == 0
    assert measures.position_explained(found.coordinates, grid) == pytest.approx(1, abs=ROUNDING)
    assert measures.cells_unfolded(found.coordinates, grid) == 1


@pytest.mark.parametrize("grid", [(14, 14), (2, 2), (1, 7)])
def test_the_neighbours_of_the_grid_itself_are_all_kept(grid):
    """Also at edges and corners, whose fewer neighbours are the nearest too."""
    assert measures.neighbours_kept(plane_of(grid), grid) == pytest.approx(1, abs=ROUNDING)
    table = in_a_plane(grid)
    found = measures.principal_components(table @ table.T)
    assert measures.neighbours_kept(found.coordinates, grid) == pytest.approx(1, abs=ROUNDING)


def test_components_are_those_of_the_singular_values_of_the_centred_table():
    table = np.random.default_rng(1).standard_normal((30, 6)) * np.arange(1, 7) + 5
    centred = table - table.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    found = measures.principal_components(table @ table.T)
    assert found.explained == pytest.approx(singular**2 / (singular**2).sum(), abs=ROUNDING)
    assert np.abs(found.coordinates) == pytest.approx(np.abs(left * singular), abs=1e-9)
    assert np.all(found.coordinates[np.abs(found.coordinates).argmax(axis=0), range(6)] > 0)


def test_a_matrix_that_is_no_table_says_how_much_is_left_out():
    matrix = np.zeros((4, 4))
    matrix[0, 1] = matrix[1, 0] = 1.0  # centred: -1, 1/2 and 0
    centring = np.eye(4) - 0.25
    values = np.linalg.eigvalsh(centring @ matrix @ centring)
    found = measures.principal_components(matrix)
    assert found.negative == pytest.approx(-values[values < 0].sum() / np.abs(values).sum())
    assert 0 < found.negative < 1


@pytest.mark.parametrize("constant", [0.0, 1.0, -2.5])
def test_a_constant_matrix_has_no_component(constant):
    found = measures.principal_components(np.full((12, 12), constant))
    assert found.coordinates.shape == (12, 0)
    assert found.negative == 0


# --- What is kept of the grid ----------------------------------------------------------------


def test_noise_keeps_what_chance_gives():
    grid = (14, 14)
    chance = measures.neighbours_by_chance(grid)
    rng = np.random.default_rng(2)
    shares = [measures.neighbours_kept(rng.standard_normal((196, 50)), grid) for _ in range(40)]
    assert abs(np.mean(shares) - chance) < 4 * np.std(shares, ddof=1) / math.sqrt(40)
    unfolded = [measures.cells_unfolded(rng.standard_normal((196, 2)), grid) for _ in range(40)]
    # The share of the majority of 338 triangles exceeds 1/2 by a deviation or so.
    assert 0.5 < np.mean(unfolded) < 0.5 + 3 * 0.5 / math.sqrt(338)


def test_equal_distances_share_the_places_of_the_nearest():
    grid = (3, 4)
    one_place = np.zeros((12, 2))
    assert measures.neighbours_kept(one_place, grid) == pytest.approx(
        measures.neighbours_by_chance(grid), abs=ROUNDING
    )


@pytest.mark.parametrize("grid", [(6, 7), (3, 8)])
def test_neighbours_are_counted_as_defined(grid):
    points = plane_of(grid) * (1.0, 1.8) + 0.3 * np.random.default_rng(3).random(
        (grid[0] * grid[1], 2)
    )
    expected = kept_by_counting(points, grid)
    assert 0.3 < expected < 0.95
    assert measures.neighbours_kept(points, grid) == pytest.approx(expected, abs=ROUNDING)


def test_a_folded_sheet_is_seen_and_a_bent_one_is_not_folded():
    grid = (5, 9)
    row, column = measures.patch_places(grid)
    folded = np.stack([row, np.minimum(column, 8 - column)], axis=-1).astype(float)
    assert measures.cells_unfolded(folded, grid) == 0.5
    partly = np.stack([row, np.minimum(column, 12 - column)], axis=-1).astype(float)
    assert measures.cells_unfolded(partly, grid) == 6 / 8  # two of eight columns of cells go back
    angle, radius = 0.15 * column, 2.0 + row
    bent = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    assert measures.cells_unfolded(bent, grid) == 1
    assert measures.position_explained(bent, grid) < 0.999
    assert math.isnan(measures.cells_unfolded(plane_of((1, 5)), (1, 5)))


def test_triangles_without_an_area_are_neither_folded_nor_unfolded():
    grid = (5, 9)
    row, column = measures.patch_places(grid)
    line = np.stack([row + 0.37 * column, np.zeros(45)], axis=-1)
    assert math.isnan(measures.cells_unfolded(line, grid))
    turned = line[:, :1] * np.array([math.cos(0.6), math.sin(0.6)])  # areas of rounding
    assert math.isnan(measures.cells_unfolded(turned, grid))
    assert math.isnan(measures.cells_unfolded(np.ones((45, 2)), grid))
    # Half of the sheet is a line, the rest is not folded.
    partly = np.stack([row, np.minimum(column, 4)], axis=-1).astype(float)
    assert measures.cells_unfolded(partly, grid) == 1
    small = plane_of(grid) * 1e-5  # small cells are not flat ones
    assert measures.cells_unfolded(np.where(row[:, None] > 3, plane_of(grid), small), grid) == 1


def test_a_spiral_is_counted_in_turns():
    grid = (2, 40)
    row, column = measures.patch_places(grid)
    angle = 2 * np.pi * 2.5 * column / 39
    radius = 1 + 0.05 * angle + 0.01 * row
    spiral = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    # The middle of an uneven spiral is not its pole, which tilts the ends a little.
    assert measures.turns_about_the_middle(spiral, grid) == pytest.approx(2.5, abs=0.1)
    assert measures.turns_about_the_middle(plane_of((6, 6)), (6, 6)) < 0.5


def test_position_is_predicted_from_what_is_given():
    grid = (4, 6)
    row, column = measures.patch_places(grid)
    assert measures.position_explained(row[:, None].astype(float), grid) == pytest.approx(0.5)
    both = np.stack([row + column, row - column], axis=-1).astype(float)
    assert measures.position_explained(both, grid) == pytest.approx(1)
    assert measures.position_explained(np.zeros((24, 2)), grid) == pytest.approx(0, abs=ROUNDING)
    assert measures.position_explained(np.arange(5.0)[:, None], (1, 5)) == pytest.approx(1)


@pytest.mark.parametrize(
    "measure", [measures.neighbours_kept, measures.position_explained], ids=lambda f: f.__name__
)
def test_one_patch_is_refused(measure):
    with pytest.raises(InputError, match="1x1 has no pair"):
        measure(np.zeros((1, 2)), (1, 1))


# --- The pattern of the matrix ---------------------------------------------------------------


def cosine_of_offset(grid, wave):
    """cos(wave times the column offset) + a slow decay with the row offset."""
    row, column = measures.patch_places(grid)
    down, across = np.subtract.outer(row, row), np.subtract.outer(column, column)
    return np.cos(wave * across) - 0.1 * np.abs(down)


def test_a_smooth_function_of_the_place_repeats_by_row_and_noise_does_not():
    grid = (12, 9)
    places = plane_of(grid)
    smooth = np.exp(-((places[:, None] - places[None]) ** 2).sum(axis=-1) / 60)
    assert measures.raster_period(smooth, grid) > 0.9
    noise = np.random.default_rng(4).standard_normal((30, 108, 108))
    found = [measures.raster_period(each + each.T, grid) for each in noise]
    assert abs(np.mean(found)) < 4 * np.std(found, ddof=1) / math.sqrt(30)
    # Numbered in another order the same function shows nothing.
    order = np.random.default_rng(5).permutation(108)
    assert abs(measures.raster_period(smooth[np.ix_(order, order)], grid)) < 0.5


def test_constants_and_single_rows_have_no_pattern():
    assert math.isnan(measures.raster_period(np.ones((20, 20)), (4, 5)))
    assert math.isnan(measures.raster_period(np.eye(5), (1, 5)))
    for grid in ((5, 6), (3, 17)):  # too few rows to tell a smooth function
        places = plane_of(grid)
        smooth = np.exp(-((places[:, None] - places[None]) ** 2).sum(axis=-1) / 60)
        assert math.isnan(measures.raster_period(smooth, grid))
    assert math.isnan(measures.rise_after_the_minimum(np.ones(5)))
    assert math.isnan(measures.rise_after_the_minimum(np.array([1.0, 0.5])))


def test_profiles_are_means_over_one_offset():
    grid = (3, 5)
    matrix = np.random.default_rng(6).standard_normal((15, 15))
    rows, columns = measures.offset_profiles(matrix, grid)
    number = np.arange(15).reshape(grid)
    for offset in range(3):
        first, second = number[: 3 - offset].ravel(), number[offset:].ravel()
        assert rows[offset] == pytest.approx(matrix[first, second].mean(), abs=ROUNDING)
    for offset in range(5):
        first, second = number[:, : 5 - offset].ravel(), number[:, offset:].ravel()
        assert columns[offset] == pytest.approx(matrix[first, second].mean(), abs=ROUNDING)


def test_a_period_within_the_grid_shows_as_a_rise():
    grid = (4, 13)
    matrix = cosine_of_offset(grid, 2 * np.pi / 12)
    rows, columns = measures.offset_profiles(matrix, grid)
    expected = (1 - -1) / (math.cos(2 * math.pi / 12) - -1)  # back at 1 after 12 columns
    assert measures.rise_after_the_minimum(columns) == pytest.approx(expected)
    assert measures.rise_after_the_minimum(rows) == 0


# --- The analysis ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    from training.study.analyse_structure import structure_analysis
    from training.study.analysis import write_analysis
    from training.study.encoding_choice import choose_encodings

    grid = (5, 4)
    done: list[str] = []
    labels = ["weierstrass", "none", "rope_axial", "weierstrass_relative", "learned"]
    analysis = structure_analysis(choose_encodings(labels, grid), grid, progress=done.append)
    folder = tmp_path_factory.mktemp("structure") / "results"
    write_analysis(analysis, folder)
    return analysis, folder, done


def test_the_analysis_has_the_subjects_and_the_controls_once(finished):
    _, folder, done = finished
    labels = ["weierstrass", "none", "rope_axial", "weierstrass_relative", "learned"]
    labels += ["weierstrass:function=powers,features=2", "sincos2d"]
    assert done == [*labels, "drawing"]
    text = (folder / "structure.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["encoding"] for row in rows] == labels
    by_label = {row["encoding"]: row for row in rows}
    assert by_label["weierstrass"]["space"] == "principal components of the table"
    assert by_label["rope_axial"]["space"] == "principal coordinates of the interaction"
    assert float(by_label["weierstrass_relative"]["negative"]) > 0.1
    assert by_label["none"]["neighbours_in_plane"] == ""
    document = json.loads((folder / "structure.json").read_text(encoding="utf-8"))
    assert document["rows"][1]["explained_1"] is None


def test_undefined_numbers_are_dashes_and_more_than_four_columns_are_two_figures(finished):
    analysis, folder, _ = finished
    assert f"| `none` |{' – |' * 11}" in analysis.markdown
    assert set(analysis.figures) == {"structure_1", "structure_2"}
    assert (folder / "structure_2.png").stat().st_size > 10_000
    assert "kernel PCA" in analysis.caption
    assert "5x4 grid" in analysis.caption
    assert "seed 0" in analysis.caption
    assert "near 1 for smooth functions of the place on grids of many rows" in analysis.caption
    for row in analysis.numbers["rows"]:
        assert row["encoding"] in analysis.caption


def test_a_control_is_one_whatever_the_order_of_its_options():
    pytest.importorskip("matplotlib")
    pytest.importorskip("torch")
    from training.study.analyse_structure import structure_analysis
    from training.study.encoding_choice import choose_encodings

    label = "weierstrass:features=2,function=powers"
    analysis = structure_analysis(choose_encodings([label], (3, 4)), (3, 4))
    labels = [row["encoding"] for row in analysis.numbers["rows"]]
    assert labels == [label, "learned", "sincos2d"]
    assert f"`{label}` (control)" in analysis.markdown


def test_the_table_of_the_encoding_is_what_is_analysed():
    pytest.importorskip("torch")
    from training.study.analyse_structure import structure_of
    from training.study.encoding_choice import EncodingChoice

    grid = (6, 6)
    found = structure_of(EncodingChoice("sincos2d"), grid)
    rows = EncodingChoice("sincos2d").build(grid).additive(grid)
    assert rows is not None
    table = rows.numpy()
    centred = table - table.mean(axis=0)
    singular = np.linalg.svd(centred, compute_uv=False)
    expected = (singular[:2] ** 2).sum() / (singular**2).sum()
    assert found.numbers["explained_by_two"] == pytest.approx(expected, abs=ROUNDING)
    assert found.numbers["neighbours_in_space"] == pytest.approx(1)


def test_a_grid_of_one_patch_is_refused_before_any_work():
    pytest.importorskip("torch")
    from training.study.analyse_structure import structure_analysis
    from training.study.encoding_choice import EncodingChoice

    with pytest.raises(InputError, match="1x1 has no pair"):
        structure_analysis([EncodingChoice("learned")], (1, 1))
