"""Encodings at places that are no grid: crops, tokens left out, images packed together."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.encodings.grid import patch_centres
from verification.tests.encoding_cases import HEADS, small, tokens
from wefpe_core import InputError

GRID = (4, 6)
ROUNDING = 64 * 2.0**-23  # tables are in float32, most of them computed in float64

ADDITIVE = [
    ("learned", {}),
    ("sincos2d", {}),
    ("sincos2d", {"convention": "periodic"}),
    ("sincos2d", {"convention": "wef_authors"}),
    ("weierstrass", {}),
    ("weierstrass", {"origin": "half_period", "lattice": "general"}),
    ("weierstrass", {"learnable": False}),
    ("weierstrass", {"function": "powers"}),
    ("combined", {"parts": "sincos2d+gaussian"}),
]
BIASES = [
    ("alibi2d", {}),
    ("alibi2d", {"periodic": True}),
    ("gaussian", {}),
    ("relative_table", {}),
    ("lookhere", {}),
    ("weierstrass_green", {}),
    ("weierstrass_green", {"form": "log", "diagonal": "nearest", "alpha_u": 1.0}),
    ("weierstrass_green", {"learnable": False}),
    ("weierstrass_relative", {}),
    ("weierstrass_relative", {"diagonal": "learned", "learnable": False}),
    ("weierstrass_heat", {}),
    ("weierstrass_heat", {"lattice": "general", "alpha_u": 0.9}),
    ("combined", {"parts": "sincos2d+gaussian"}),
]
ROTARY = [
    ("rope_axial", {}),
    ("rope_axial", {"coordinates": "centred"}),
    ("rope_axial", {"coordinates": "periodic"}),
    ("rope_mixed", {}),
    ("combined", {"parts": "rope_mixed+rope_axial"}),
]


def centres(grid=GRID):
    return torch.stack(patch_centres(grid, torch.float64, torch.device("cpu")), -1)


def near(got, want):
    return (got - want).abs().max() <= ROUNDING * max(1.0, float(want.abs().max()))


def made(name, options):
    encoding = small(name, grid=GRID, **options).eval()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return encoding


KEPT = torch.tensor([3, 0, 17, 9, 9])  # tokens left out, in another order, one of them twice


@pytest.mark.parametrize(("name", "options"), ADDITIVE)
def test_an_additive_encoding_at_patches_is_its_table(name, options):
    encoding = made(name, options)
    with torch.no_grad():
        table = encoding.additive(GRID)
        assert near(encoding.additive_at(centres()), table)
        assert near(encoding.additive_at(centres()[KEPT]), table[KEPT])
        packed = torch.stack((centres()[:5], centres()[7:12]))  # two images at once
        assert near(encoding.additive_at(packed), torch.stack((table[:5], table[7:12])))


@pytest.mark.parametrize(("name", "options"), BIASES)
def test_a_bias_at_patches_is_that_of_the_grid(name, options):
    encoding = made(name, options)
    with torch.no_grad():
        for layer in range(2):
            bias = encoding.bias(GRID, layer)
            assert bias.shape[0] == HEADS
            assert near(encoding.bias_at(centres(), layer), bias)
            some = encoding.bias_at(centres()[KEPT], layer)
            assert near(some, bias[:, KEPT][:, :, KEPT])
            packed = encoding.bias_at(torch.stack((centres()[:5], centres()[7:12])), layer)
            assert near(packed, torch.stack((bias[:, :5, :5], bias[:, 7:12, 7:12])))


@pytest.mark.parametrize(("name", "options"), ROTARY)
def test_a_rotation_at_patches_is_that_of_the_grid(name, options):
    encoding = made(name, options)
    q, k = tokens(GRID)
    with torch.no_grad():
        for layer in range(2):
            want = encoding.rotate(q, k, GRID, layer)
            got = encoding.rotate_at(q, k, centres(), layer)
            each = encoding.rotate_at(q, k, centres()[None].expand(len(q), -1, -1), layer)
            some = encoding.rotate_at(q[:, :, KEPT], k[:, :, KEPT], centres()[KEPT], layer)
            for index in (0, 1):
                assert near(got[index], want[index])
                assert near(each[index], want[index])
                assert near(some[index], want[index][:, :, KEPT])


def test_a_crop_at_its_true_place_sees_the_function_of_the_place():
    """The left half of a grid of twice the width, of which the encoding knows only the whole."""
    encoding = made("weierstrass", {})
    half = centres() * torch.tensor([0.5, 1.0])
    with torch.no_grad():
        wide = encoding.additive((GRID[0], 2 * GRID[1])).reshape(GRID[0], 2 * GRID[1], -1)
        assert near(encoding.additive_at(half), wide[:, : GRID[1]].flatten(0, 1))


def test_places_carry_gradients():
    for name in ("weierstrass", "weierstrass_heat"):
        encoding = made(name, {})
        points = centres().requires_grad_()
        found = encoding.bias_at(points, 0) if "heat" in name else encoding.additive_at(points)
        (found * torch.linspace(0.0, 1.0, found.numel()).reshape(found.shape)).sum().backward()
        assert points.grad.abs().max() > 0


def test_neutral_answers_and_encodings_of_whole_grids():
    q, k = tokens(GRID)
    assert small("none").additive_at(centres()) is None
    assert small("sincos2d").bias_at(centres(), 0) is None
    assert small("gaussian").rotate_at(q, k, centres(), 0)[0] is q
    with pytest.raises(InputError, match="rope1d knows the places of a whole grid only"):
        small("rope1d").rotate_at(q, k, centres(), 0)
    with pytest.raises(InputError, match="fope knows the places of a whole grid only"):
        small("fope").rotate_at(q, k, centres(), 0)
    with pytest.raises(InputError, match="fidelity='corrected'"):
        small("weierstrass", fidelity="authors").additive_at(centres())
    with pytest.raises(InputError, match=r"points must be \(\.\.\., tokens, 2\)"):
        small("sincos2d").additive_at(torch.zeros(3))
