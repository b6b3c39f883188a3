"""The encodings WEF-PE is compared with, against formulas written independently."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.encodings import build_encoding
from training.encodings.learned import Resampling, resample_table
from verification.tests.encoding_cases import (
    CEILINGS,
    DEPTH,
    DIM,
    HEAD_DIM,
    HEADS,
    error_in_eps,
    small,
    table_of,
    tokens,
)
from wefpe_core import InputError

METHODS: list[Resampling] = [
    "bicubic_antialias",
    "bicubic",
    "bilinear_antialias",
    "bilinear",
    "bilinear_corners",
]
every_method = pytest.mark.parametrize("method", METHODS)
TABLES, ROTATIONS = CEILINGS["tables"]["float64"], CEILINGS["rotations"]["float32"]


# --- Learned tables --------------------------------------------------------------------------


@every_method
def test_a_table_on_its_own_grid_is_the_table(method):
    encoding = small("learned", grid=(5, 8), resampling=method)
    assert encoding.additive((5, 8)) is encoding.positions.patches
    # 40 patches of another shape are not the same grid.
    assert not torch.equal(encoding.additive((8, 5)), encoding.positions.patches)


@every_method
def test_resampling_keeps_constants_and_planes(method):
    ones = torch.ones(5 * 8, 3, dtype=torch.float64)
    got = resample_table(ones, (5, 8), (7, 20), method)
    assert error_in_eps(got, torch.ones(140, 3), torch.float64) <= TABLES
    if method == "bicubic":  # torch's kernel without antialias (a = -3/4) bends planes
        return
    plane = torch.arange(8, dtype=torch.float64).repeat(5)[:, None]
    row = resample_table(plane, (5, 8), (5, 16), method).reshape(5, 16)
    steps = row.diff(dim=1)
    middle = steps[:, 6:9]
    step = 7 / 15 if method == "bilinear_corners" else 1 / 2
    assert error_in_eps(middle, torch.full_like(middle, step), torch.float64, 8.0) <= TABLES
    assert (steps > -1e-1).all()
    assert (row.diff(dim=0).abs().max() / 8.0 / torch.finfo(torch.float64).eps) <= TABLES


def test_a_round_trip_over_a_larger_grid_loses_what_was_measured():
    # 14 -> 24 -> 14 by bicubic interpolation loses 38 % of a random table.
    table = torch.randn(196, 192, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = {}
    for method in METHODS:
        there = resample_table(table, (14, 14), (24, 24), method)
        back = resample_table(there, (24, 24), (14, 14), method)
        losses[method] = float((back - table).norm() / table.norm())
    assert 0.37 < losses["bicubic_antialias"] < 0.39
    assert all(0.05 < loss < 0.8 for loss in losses.values()), losses


def test_bilinear_follows_the_textbook_at_half_pixels():
    generator = np.random.default_rng(3)
    table = generator.normal(size=(4, 3))
    want = np.empty((8, 5))
    for i in range(8):
        for j in range(5):
            y, x = max((i + 0.5) / 2 - 0.5, 0.0), max((j + 0.5) * 3 / 5 - 0.5, 0.0)
            r, c = int(y), int(x)
            r2, c2 = min(r + 1, 3), min(c + 1, 2)
            a, b = y - r, x - c
            top = table[r, c] * (1 - b) + table[r, c2] * b
            want[i, j] = top * (1 - a) + (table[r2, c] * (1 - b) + table[r2, c2] * b) * a
    got = resample_table(torch.from_numpy(table.reshape(12, 1)), (4, 3), (8, 5), "bilinear")
    assert error_in_eps(got.reshape(8, 5), want, torch.float64) <= TABLES


def test_the_factorised_layout_is_a_sum_of_row_and_column():
    encoding = small("learned", layout="factorised")
    table = encoding.additive((5, 8)).reshape(5, 8, DIM)
    want = encoding.positions.rows[:, None] + encoding.positions.columns
    assert torch.equal(table, want)
    larger = encoding.additive((10, 8)).reshape(10, 8, DIM)
    assert (
        error_in_eps(
            larger[:, 3] - larger[:, 2],
            (want[0, 3] - want[0, 2]).expand(10, -1),
            torch.float32,
            1.0,
        )
        <= ROTATIONS
    )


def test_a_pretrained_table_is_taken_over_and_resampled():
    patches, token = torch.randn(6, DIM), torch.randn(1, DIM)
    for name in ("learned", "weierstrass_hybrid"):
        encoding = small(name, grid=(2, 3))
        encoding.load_table(patches, (2, 3), token)
        held = encoding.positions if name == "learned" else encoding.learned
        assert torch.equal(held.patches, patches)
        assert torch.equal(encoding.prefix(1), token)
        encoding.load_table(patches, (3, 2), token)
        want = resample_table(patches, (3, 2), (2, 3), "bicubic_antialias")
        assert torch.equal(held.patches, want)
        for wrong in [
            (patches, (2, 2), token),
            (patches, (2, 3), None),
            (patches[:, 1:], (2, 3), token),
        ]:
            with pytest.raises(InputError):
                encoding.load_table(*wrong)


def test_the_table_starts_with_the_published_spread():
    encoding = build_encoding("learned", dim=192, depth=12, num_heads=3, grid=(14, 14))
    assert sum(p.numel() for p in encoding.parameters()) == 197 * 192
    assert 0.0195 < float(table_of(encoding, (14, 14)).std()) < 0.0205


# --- 2-D sin-cos -----------------------------------------------------------------------------


@pytest.mark.parametrize("convention", ["mae", "big_vision", "timm", "wef_authors"])
def test_sincos_against_the_formula_of_each_convention(convention):
    m = DIM // 4
    got = small("sincos2d", convention=convention).double().additive((3, 5))
    for t in range(15):
        y, x = divmod(t, 5)
        for i in range(m):
            f = 10000.0 ** (-i / (m - 1 if convention == "big_vision" else m))
            sx, cx, sy, cy = math.sin(x * f), math.cos(x * f), math.sin(y * f), math.cos(y * f)
            if convention == "wef_authors":
                channels = [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]
            else:
                channels = [i, m + i, 2 * m + i, 3 * m + i]
            want = [sy, sx, cy, cx] if convention == "timm" else [sx, cx, sy, cy]
            assert error_in_eps(got[t, channels], want, torch.float64, 1.0) <= TABLES


def test_sincos_does_not_depend_on_the_grid_and_scales():
    small_grid = small("sincos2d").additive((3, 5)).reshape(3, 5, DIM)
    large_grid = small("sincos2d", scale=2.0).additive((4, 9)).reshape(4, 9, DIM)
    assert torch.equal(2.0 * small_grid, large_grid[:3, :5])


def test_periodic_sines_have_whole_numbers_of_waves_over_any_grid():
    m, waves = DIM // 4, (4, 2)  # half of the width and of the height of the grid of training
    encoding = small("sincos2d", grid=(4, 8), convention="periodic").double()
    for height, width in ((4, 8), (3, 5)):
        got = encoding.additive((height, width))
        for t in range(height * width):
            y, x = divmod(t, width)
            for i in range(m):
                a = 2.0 * math.pi * (i % waves[0] + 1) * (x + 0.5) / width
                b = 2.0 * math.pi * (i % waves[1] + 1) * (y + 0.5) / height
                want = [math.sin(a), math.cos(a), math.sin(b), math.cos(b)]
                channels = [i, m + i, 2 * m + i, 3 * m + i]
                assert error_in_eps(got[t, channels], want, torch.float64, 1.0) <= TABLES


def test_periodic_rotations_do_not_change_when_the_world_is_rolled():
    grid = (4, 8)
    numbers = torch.roll(torch.arange(32).reshape(grid), (1, 3), (0, 1)).flatten()
    q, k = tokens(grid, dtype=torch.float64)
    for coordinates in ("periodic", "index"):
        encoding = small("rope_axial", grid=grid, coordinates=coordinates).double()
        products = [
            (a @ b.transpose(-1, -2))
            for a, b in (
                encoding.rotate(q, k, grid, 0),
                encoding.rotate(q[:, :, numbers], k[:, :, numbers], grid, 0),
            )
        ]
        difference = (products[0][:, :, numbers][:, :, :, numbers] - products[1]).abs().max()
        assert (difference < 1e-12) == (coordinates == "periodic")


# --- Rotary ----------------------------------------------------------------------------------

ROTARY = [
    ("rope1d", {}),
    ("rope1d", {"layout": "half", "class_token": "index_zero"}),
    ("rope_axial", {}),
    ("rope_axial", {"layout": "half", "coordinates": "reference"}),
    ("rope_axial", {"coordinates": "centred"}),
    ("rope_mixed", {}),
    ("rope_mixed", {"layout": "half"}),
]


@pytest.mark.parametrize(("name", "options"), ROTARY)
@pytest.mark.parametrize("grid", [(5, 8), (4, 3)])
def test_products_depend_on_the_displacement_alone_and_norms_stay(name, options, grid):
    encoding = small(name, **options)
    n = grid[0] * grid[1]
    q, k = (x[:, :, :1].expand(-1, -1, n, -1) for x in tokens((1, 1)))
    rotated_q, rotated_k = encoding.rotate(q, k, grid, 2)
    for before, after in ((q, rotated_q), (k, rotated_k)):
        assert error_in_eps(after.norm(dim=-1), before.norm(dim=-1), torch.float32) <= ROTATIONS
    logits = torch.einsum("bhid,bhjd->bhij", rotated_q, rotated_k)
    size = float(q.norm(dim=-1).max() * k.norm(dim=-1).max())
    seen: dict[int | tuple[int, int], Any] = {}
    for i in range(n):
        for j in range(n):
            (yi, xi), (yj, xj) = divmod(i, grid[1]), divmod(j, grid[1])
            shift = j - i if name == "rope1d" else (yj - yi, xj - xi)
            first = seen.setdefault(shift, logits[..., i, j])
            assert error_in_eps(logits[..., i, j], first, torch.float32, size) <= ROTATIONS
    assert len(seen) == (2 * n - 1 if name == "rope1d" else (2 * grid[0] - 1) * (2 * grid[1] - 1))


def rotation_of(encoding, grid, layer=1):
    """cos + i sin of every pair, from unit vectors, in float64: (heads, N, head_dim/2)."""
    n = grid[0] * grid[1]
    first = torch.zeros(1, HEADS, n, HEAD_DIM, dtype=torch.float64)
    half = encoding.layout == "half"
    first[..., slice(0, HEAD_DIM // 2) if half else slice(0, None, 2)] = 1.0
    q, _ = encoding.rotate(first, first, grid, layer)
    if half:
        return torch.complex(*q[0].chunk(2, dim=-1))
    return torch.complex(q[0, ..., 0::2], q[0, ..., 1::2])


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rope_angles_are_the_published_ones(layout):
    t = np.arange(40)
    x, y = t % 8, t // 8
    half, quarter = np.arange(HEAD_DIM // 2), np.arange(HEAD_DIM // 4)
    axial = 100.0 ** (-4 * quarter / HEAD_DIM)
    u, v = (x + 0.5) / 8, (y + 0.5) / 5
    centred = 2 * np.pi
    want = {
        ("rope1d", ()): np.outer(t, 10000.0 ** (-2 * half / HEAD_DIM)),
        ("rope1d", (("class_token", "index_zero"),)): np.outer(
            t + 1, 10000.0 ** (-2 * half / HEAD_DIM)
        ),
        ("rope_axial", ()): np.concatenate([np.outer(x, axial), np.outer(y, axial)], axis=1),
        ("rope_axial", (("coordinates", "centred"),)): centred
        * np.concatenate([np.outer(2 * u - 1, axial), np.outer(2 * v - 1, axial)], axis=1),
    }
    for (name, options), angles in want.items():
        given: dict[str, Any] = dict(options)
        encoding = small(name, layout=layout, **given)
        got = rotation_of(encoding, (5, 8))
        wanted = np.broadcast_to(np.exp(1j * angles), got.shape)
        # The angle itself is rounded: up to 40 radians.
        assert error_in_eps(got, wanted, torch.float64) <= 4 * TABLES


def test_reference_coordinates_keep_the_trained_range():
    encoding = small("rope_axial", grid=(4, 4), coordinates="reference")
    trained, larger = rotation_of(encoding, (4, 4)), rotation_of(encoding, (8, 8))
    every_other = larger.reshape(HEADS, 8, 8, -1)[:, ::2, ::2].reshape(HEADS, 16, -1)
    assert torch.equal(trained, every_other)


def test_mixed_frequencies_start_as_published_and_belong_to_layer_and_head():
    encoding = small("rope_mixed")
    assert encoding.freqs.shape == (2, DEPTH, HEADS * HEAD_DIM // 2)
    fx, fy = encoding.freqs.detach().double().reshape(2, DEPTH, HEADS, 2, HEAD_DIM // 4)
    magnitude = 10.0 ** (-4 * torch.arange(HEAD_DIM // 4, dtype=torch.float64) / HEAD_DIM)
    along, across = torch.complex(fx, fy).unbind(dim=2)
    for part in (along, across):
        wanted = magnitude.expand_as(part)
        assert error_in_eps(part.abs(), wanted, torch.float32) <= ROTATIONS
    assert error_in_eps(across, 1j * along, torch.float32, 1.0) <= ROTATIONS
    directions = torch.angle(along)
    assert error_in_eps(directions, directions[..., :1].expand_as(directions), torch.float32) <= (
        ROTATIONS
    )
    assert len(directions[..., 0].unique()) == DEPTH * HEADS
    x, y = torch.arange(40) % 8, torch.arange(40) // 8
    for layer in range(DEPTH):
        f = encoding.freqs.detach()[:, layer].double().reshape(2, HEADS, 1, -1)
        angles = x[:, None] * f[0] + y[:, None] * f[1]
        got = rotation_of(encoding, (5, 8), layer)
        want = torch.polar(torch.ones_like(angles), angles)
        assert error_in_eps(got, want, torch.float64) <= TABLES


def test_tokens_keep_their_dtype_and_are_not_written_to():
    for name in ("rope1d", "rope_axial", "rope_mixed", "fope"):
        encoding = small(name)
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            q, k = tokens((5, 8), dtype=torch.float64)
            q, k = q.to(dtype), k.to(dtype)
            before = q.clone()
            got, _ = encoding.rotate(q, k, (5, 8), 0)
            assert got.dtype == dtype
            assert torch.equal(q, before)
            wide, _ = encoding.rotate(q.double(), k.double(), (5, 8), 0)
            size = float(wide.detach().abs().max())
            assert error_in_eps(got.double(), wide, dtype, size) <= 4 * ROTATIONS


# --- FoPE ------------------------------------------------------------------------------------


def test_fope_keeps_twelve_frequencies_at_vit_tiny():
    encoding = build_encoding("fope", dim=192, depth=12, num_heads=3, grid=(14, 14))
    assert encoding.sin_coefficients.shape == (12, 3, 12, 12)
    assert not list(encoding.parameters())
    assert {"sin_coefficients", "cos_coefficients"} == set(encoding.state_dict())


@pytest.mark.parametrize("pad", ["official", "identity"])
def test_fope_without_noise_is_rope_on_the_frequencies_kept(pad):
    encoding = small("fope", gain=0.0, pad=pad)
    kept = encoding.kept
    assert kept == sum(10000.0 ** (-2 * i / HEAD_DIM) >= 2 * math.pi / 40 for i in range(8))
    q, k = tokens((5, 8))
    got, _ = encoding.rotate(q, k, (5, 8), 0)
    rope, _ = small("rope1d", layout="half").rotate(q, k, (5, 8), 0)
    channels = [*range(kept), *range(8, 8 + kept)]
    rest = [i for i in range(HEAD_DIM) if i not in channels]
    assert error_in_eps(got[..., channels], rope[..., channels], torch.float32) <= ROTATIONS
    a, b = q[..., rest].chunk(2, dim=-1)
    turned = torch.cat([a - b, a + b], dim=-1) if pad == "official" else q[..., rest]
    assert error_in_eps(got[..., rest], turned, torch.float32) <= ROTATIONS


def test_fope_mixes_by_its_coefficients():
    encoding = small("fope")
    q, k = tokens((5, 8), dtype=torch.float64)
    got, _ = encoding.rotate(q, k, (5, 8), 2)
    frequencies = 10000.0 ** (-2 * np.arange(encoding.kept) / HEAD_DIM)
    angles = np.outer(np.arange(40), frequencies)
    mixed = []
    for waves, name in ((np.cos, "cos_coefficients"), (np.sin, "sin_coefficients")):
        matrices = getattr(encoding, name)[2].double().numpy()
        part = np.einsum("nD,hDd->hnd", waves(angles), matrices)
        padded = np.pad(part, ((0, 0), (0, 0), (0, 8 - part.shape[-1])), constant_values=1.0)
        mixed.append(np.concatenate([padded, padded], axis=-1))
    x = q.numpy()
    half = np.concatenate([-x[..., 8:], x[..., :8]], axis=-1)
    want = x * mixed[0] + half * mixed[1]
    assert error_in_eps(got, want, torch.float64) <= TABLES


def test_fope_with_more_frequencies_than_outputs_takes_every_second():
    encoding = small("fope", grid=(40, 40), gain=0.0)
    # 1600 patches keep more than head_dim/4 = 4 frequencies.
    assert encoding.kept > 4
    step = math.ceil(encoding.kept / 4)
    want = torch.zeros(encoding.kept, 4)
    for i in range(4):
        if i * step < encoding.kept:
            want[i * step, i] = 1.0
    assert torch.equal(encoding.cos_coefficients, want.expand_as(encoding.cos_coefficients))


def test_fope_noise_has_the_published_spread():
    encoding = build_encoding("fope", dim=192, depth=12, num_heads=3, grid=(14, 14), gain=0.6)
    noise = encoding.sin_coefficients - torch.eye(12)
    want = 0.6 * math.sqrt(2.0 / (12 * 12 + 3 * 12))
    assert 0.95 < float(noise.std()) / want < 1.05
