"""Biases by displacement and rotations by generators, against a second, slow way to write them."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.encodings import build_encoding
from training.encodings.displacements import HIDDEN
from training.errors import EncodingOptionError
from training.models import build_vit
from verification.tests.encoding_cases import CEILINGS, DEPTH, HEADS, error_in_eps, small, tokens
from wefpe_core import get_backend

HOME, OTHER = (5, 8), (4, 12)
TABLES = CEILINGS["tables"]["float64"]


def by_pairs(grid, value, scale=(1.0, 1.0)):
    """value(head, columns, rows) for all pairs of patches, written out."""
    height, width = grid
    places = [(column, row) for row in range(height) for column in range(width)]
    return np.array(
        [
            [
                [value(h, (q[0] - p[0]) * scale[0], (q[1] - p[1]) * scale[1]) for q in places]
                for p in places
            ]
            for h in range(HEADS)
        ]
    )


def both_grids(name, value, layer=1, coordinates="reference", **options):
    """Compare the bias of an encoding with a function, on the grid it is made for and another."""
    encoding = small(name, grid=HOME, coordinates=coordinates, **options).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    for grid in (HOME, OTHER):
        is_scaled = coordinates == "reference"
        scale = (HOME[1] / grid[1], HOME[0] / grid[0]) if is_scaled else (1.0, 1.0)
        want = by_pairs(grid, lambda h, x, y: value(encoding, layer, h, x, y), scale)
        assert error_in_eps(encoding.bias(grid, layer), want, torch.float64) <= TABLES


def test_alibi_is_the_distance_times_slopes_of_powers_of_two():
    def value(encoding, layer, h, x, y):
        return -(2.0 ** (-8 * (h + 1) / HEADS)) * math.hypot(x, y)

    both_grids("alibi2d", value)
    both_grids("alibi2d", value, coordinates="index")


def rolled_pairs(grid, by):
    """The number of each patch after the grid was rolled, row-major."""
    numbers = torch.arange(grid[0] * grid[1]).reshape(grid)
    return torch.roll(numbers, by, (0, 1)).flatten()


@pytest.mark.parametrize("name", ["relative_table", "alibi2d", "gaussian"])
@pytest.mark.parametrize("grid", [HOME, (4, 16), (6, 3)])
def test_a_periodic_bias_does_not_change_when_the_world_is_rolled(name, grid):
    for periodic in (True, False):
        bias = small(name, grid=HOME, periodic=periodic).double().bias(grid, 0)
        moved = rolled_pairs(grid, (1, 2))
        assert torch.equal(bias[:, moved][:, :, moved], bias) == periodic


def test_a_periodic_distance_is_the_shortest_to_any_copy():
    def value(encoding, layer, h, x, y):
        copies = [
            math.hypot(x + a * HOME[1], y + b * HOME[0]) for a in (-1, 0, 1) for b in (-1, 0, 1)
        ]
        return -(2.0 ** (-8 * (h + 1) / HEADS)) * min(copies)

    both_grids("alibi2d", value, periodic=True)


def test_learned_slopes_of_alibi_start_as_the_fixed_ones():
    fixed, learned = small("alibi2d").bias(HOME, 0), small("alibi2d", learnable=True).bias(HOME, 0)
    single = CEILINGS["rotations"]["float32"]
    assert error_in_eps(learned, fixed.numpy(), torch.float32) <= single


@pytest.mark.parametrize("centres", ["ring", "zero"])
def test_gaussian_is_the_squared_distance_from_its_centre(centres):
    def value(encoding, layer, h, x, y):
        cx, cy = encoding.centre[layer, h].tolist()
        width = math.exp(encoding.log_width[layer, h].item())
        return -((x - cx) ** 2 + (y - cy) ** 2) / (2.0 * width**2)

    both_grids("gaussian", value, centres=centres)


def test_centres_start_on_a_ring_of_one_patch():
    for name in ("gaussian", "weierstrass_heat"):
        centre = small(name).centre
        assert centre.shape == (DEPTH, HEADS, 2)
        wanted = np.array([[1.0, 0.0], [-1.0, 0.0]])
        assert np.abs(centre[2].detach().numpy() - wanted).max() < 1e-6
        assert not small(name, centres="zero").centre.any()


def test_relative_table_has_one_number_per_displacement_and_reads_between_them():
    def value(encoding, layer, h, x, y):
        table = encoding.displacement_table[layer, h].tolist()
        height, width = HOME
        x, y = np.clip(x, 1 - width, width - 1), np.clip(y, 1 - height, height - 1)
        column, row = min(math.floor(x), width - 2), min(math.floor(y), height - 2)
        s, t = x - column, y - row
        total = 0.0
        for dy, weight in ((0, 1.0 - t), (1, t)):
            for dx, share in ((0, 1.0 - s), (1, s)):
                total += weight * share * table[row + dy + height - 1][column + dx + width - 1]
        return total

    both_grids("relative_table", value)


@pytest.mark.parametrize("field_of_view", [180, 90])
def test_lookhere_sees_one_direction_and_less_with_distance(field_of_view):
    heads, depth, grid = 6, 3, (4, 5)
    encoding = build_encoding(
        "lookhere", dim=48, depth=depth, num_heads=heads, grid=grid, field_of_view=field_of_view
    ).double()
    angles = {0: -90.0, 1: 90.0, 2: 180.0, 3: 0.0}  # up, down, left, right; rows count down
    slopes = [0.5, 0.5, 0.5, 0.5, 0.25, 0.0625]
    for layer, factor in enumerate((1.5, 1.0, 0.5)):
        found = encoding.bias(grid, layer)
        assert found is not None
        bias = found.numpy()
        for h in range(heads):
            for i in range(20):
                for j in range(20):
                    x, y = j % 5 - i % 5, j // 5 - i // 5
                    want = -factor * slopes[h] * math.hypot(x, y)
                    if h in angles and (x or y):
                        turn = math.degrees(math.atan2(y, x)) - angles[h]
                        away = abs((turn + 180.0) % 360.0 - 180.0)
                        want = HIDDEN if away > field_of_view / 2 + 1e-9 else want
                    assert abs(bias[h, i, j] - want) <= TABLES * 2.0**-52 * abs(want)


# --- LieRE and ComRoPE ---------------------------------------------------------------------------


def rotation_of(encoding, layer, head, u, v):
    """The matrix of one place, by mpmath's own exponential."""
    side, total = encoding.options.block, encoding.size.head_dim
    whole = np.zeros((total, total))
    for block in range(total // side):
        given = encoding.generators[layer, :, head, block].detach().numpy().astype(float)
        upper = np.triu(given, 1)
        a, b = upper - upper.transpose(0, 2, 1)
        exponent = u * a + v * b
        if encoding.options.commuting:
            exponent = v * b if block % 2 else u * a
        exact = mpmath.expm(mpmath.matrix(exponent.tolist()))
        whole[block * side : (block + 1) * side, block * side : (block + 1) * side] = np.array(
            exact.tolist(), dtype=float
        )
    return whole


@pytest.mark.parametrize("commuting", [False, True])
def test_liere_turns_by_the_exponential_of_its_generators(commuting):
    encoding = small("liere", block=4, commuting=commuting).double()
    q, k = tokens(OTHER, dtype=torch.float64)
    turned, _ = encoding.rotate(q, k, OTHER, 1)
    for patch in (0, 7, 30):
        u, v = (patch % 12 + 0.5) / 12, (patch // 12 + 0.5) / 4
        for head in range(HEADS):
            want = rotation_of(encoding, 1, head, u, v) @ q[0, head, patch].numpy()
            got = turned[0, head, patch]
            assert error_in_eps(got, want, torch.float64) <= TABLES


def test_commuting_generators_see_the_displacement_alone():
    def product(commuting, first, second):
        encoding = small("liere", grid=(6, 6), block=4, commuting=commuting).double()
        same = torch.ones(1, HEADS, 36, 16, dtype=torch.float64)
        q, k = encoding.rotate(same, same, (6, 6), 0)
        return (q[0, 0, first] @ k[0, 0, second]).item()

    # From patch 0 to 8 and from 14 to 22: one row down and two columns to the right.
    ceiling = CEILINGS["rotations"]["float32"] * 2.0**-23
    assert abs(product(True, 0, 8) - product(True, 14, 22)) <= ceiling
    assert abs(product(False, 0, 8) - product(False, 14, 22)) > 1e-3


def test_blocks_must_divide_the_channels_of_a_head():
    with pytest.raises(EncodingOptionError, match="block=5 does not divide head_dim=16"):
        small("liere", block=5)
    with pytest.raises(EncodingOptionError, match="two blocks"):
        small("liere", block=16, commuting=True)


# --- DINOv3's coordinates of training ------------------------------------------------------------


def test_augmented_coordinates_are_shifted_and_stretched_in_training_only():
    options: dict[str, Any] = {
        "coordinates": "centred",
        "shift": 0.5,
        "jitter": 1.5,
        "rescale": 2.0,
    }
    plain, encoding = small("rope_axial", coordinates="centred"), small("rope_axial", **options)
    device = torch.device("cpu")
    want = plain.angles(HOME, 0, device)
    assert torch.equal(encoding.eval().angles(HOME, 0, device), want)
    encoding.train()
    quarter = encoding.size.head_dim // 4
    for seed in range(20):
        torch.manual_seed(seed)
        got = encoding.angles(HOME, 0, device)
        factors = []
        for axis in (0, quarter):  # the fastest frequency is 1: the angle is 2 pi times the place
            x, y = (angles[:, axis].numpy() / (2.0 * math.pi) for angles in (want, got))
            factor, moved = np.polyfit(x, y, 1)
            assert np.abs(factor * x + moved - y).max() < 1e-12
            assert abs(moved / factor) <= 0.5
            factors.append(math.log(factor))
        assert max(map(abs, factors)) <= math.log(3.0) + 1e-12
        assert abs(factors[0] - factors[1]) <= 2.0 * math.log(1.5) + 1e-12
        assert factors[0] != factors[1]


def test_all_layers_of_a_pass_see_the_same_coordinates_and_the_next_pass_others():
    encoding = small("rope_axial", coordinates="centred", rescale=2.0).train()
    q, k = tokens(HOME)
    with encoding.shared_pass():
        first, second = (encoding.rotate(q, k, HOME, layer)[0] for layer in (0, 2))
    with encoding.shared_pass():
        third = encoding.rotate(q, k, HOME, 0)[0]
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_augmentation_needs_centred_coordinates():
    with pytest.raises(EncodingOptionError, match="coordinates='centred'"):
        small("rope_axial", shift=0.1)


# --- The heat kernel -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"centres": "zero", "per_layer": False}, {"lattice": "general"}, {"g2": 0.0, "g3": 1.0}],
    ids=str,
)
def test_heat_is_the_kernel_of_the_torus_at_the_displacements(options):
    encoding = small("weierstrass_heat", grid=HOME, **options).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    lattice, backend, layer = encoding.lattice(), get_backend("mpmath", dps=20), 1
    of_layer = layer if options.get("per_layer", True) else 0
    w1, w3 = complex(lattice.omega1), complex(lattice.omega3)
    for grid in (HOME, OTHER):
        height, width = grid
        bias = encoding.bias(grid, layer)
        got, want = [], []
        for i, j in ((0, 0), (3, 20), (height * width - 1, 2), (7, 6)):
            for h in range(HEADS):
                cx, cy = encoding.centre[of_layer, h].tolist()
                u = (j % width - i % width) / width - cx / HOME[1]
                v = (j // width - i // width) / height - cy / HOME[0]
                strength = math.log1p(math.exp(encoding.strength_raw[of_layer, h].item()))
                t = encoding.times()[of_layer, h].item()
                want.append(strength * float(backend.log_heat(u * w1 + v * w3, t, lattice)))
                got.append(bias[h, i, j].item())
        assert error_in_eps(np.array(got), np.array(want), torch.float64) <= TABLES


def test_the_width_of_heat_is_counted_in_columns():
    encoding = small("weierstrass_heat", grid=HOME, width=3.0)
    column = encoding.lattice().omega1.real / HOME[1]  # half a period over the width
    assert np.allclose(encoding.times().detach().numpy(), (3.0 * column) ** 2, rtol=1e-6)


def test_heat_decreases_away_from_the_centre_up_to_half_a_period():
    encoding = small("weierstrass_heat", grid=(9, 9), centres="zero").double()
    bias = encoding.bias((9, 9), 0)[0, 40].reshape(9, 9)
    for table in (bias, bias.T):
        steps = table[4:].diff(dim=0)
        assert (steps < 0).all()
        assert torch.allclose(table, table.flip(0), rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["weierstrass_heat", "relative_table", "alibi2d", "gaussian", "lookhere", "liere"],
)
def test_a_model_learns_with_them_alone_and_combined(name):
    for encoding, options in (
        (name, {}),
        ("combined", {"parts": f"sincos2d+{name}"}),
    ):
        torch.manual_seed(0)
        model = build_vit(
            "micro", encoding=encoding, encoding_options=options, depth=2, num_classes=5
        )
        logits = model(torch.randn(2, 3, 32, 32))
        logits.square().sum().backward()
        assert torch.isfinite(logits).all()
        for parameter in model.encoding.parameters():
            assert parameter.grad is not None
            assert torch.isfinite(parameter.grad).all()
