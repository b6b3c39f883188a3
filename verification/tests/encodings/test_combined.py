"""`combined`: what its parts say, together."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from training.encodings import EncodingOptionError, build_encoding
from training.models import build_vit
from verification.tests.encoding_cases import DEPTH, DIM, HEADS, answers, small, tokens
from wefpe_core import InputError

GRID = (5, 8)


def built(parts: str, **options):
    return small("combined", GRID, parts=parts, **options)


def test_tables_and_biases_are_the_sums_of_those_of_the_parts():
    encoding = built("weierstrass + weierstrass_green + learned + weierstrass_relative")
    wef, green, learned, relative = encoding.parts
    torch.testing.assert_close(
        encoding.additive(GRID), wef.additive(GRID) + learned.additive(GRID), rtol=0, atol=0
    )
    for layer in range(DEPTH):
        want = green.bias(GRID, layer) + relative.bias(GRID, layer)
        torch.testing.assert_close(encoding.bias(GRID, layer), want, rtol=0, atol=0)
    want = wef.prefix(3) + learned.prefix(3)
    torch.testing.assert_close(encoding.prefix(3), want, rtol=0, atol=0)


def test_rotations_come_one_after_the_other():
    encoding = built("rope1d+rope_axial")
    q, k = tokens(GRID)
    want = encoding.parts[1].rotate(*encoding.parts[0].rotate(q, k, GRID, 1), GRID, 1)
    for got, expected in zip(encoding.rotate(q, k, GRID, 1), want, strict=True):
        assert torch.equal(got, expected)
        assert not torch.equal(got, q)


def test_parts_have_their_own_options_and_parameters():
    encoding = built("weierstrass:alpha_u=0.25;alpha_v=0.3+weierstrass:alpha_u=1.0")
    assert [part.alpha_u for part in encoding.parts] == [0.25, 1.0]
    assert [part.alpha_v for part in encoding.parts] == [0.3, 1.0]
    first, second = (part.additive(GRID) for part in encoding.parts)
    assert not torch.allclose(first, second)


def test_one_pass_shares_the_tables_of_each_part_but_not_between_them():
    encoding = built("weierstrass_relative:alpha_u=0.25+weierstrass_relative+learned").train()
    alone = [encoding.bias(GRID, layer) for layer in range(DEPTH)]
    kept: list[Any] = []
    made = []
    for layer in range(DEPTH):  # as an adapter does, block by block
        with encoding.shared_pass(kept):
            assert torch.equal(encoding.bias(GRID, layer), alone[layer])
            made.append([len(own) for _, own in kept])
    assert made[0] == made[-1]  # nothing was made again
    assert made[0][0] == made[0][1] > 0


def test_what_decays_is_what_decays_in_the_parts():
    encoding = built("weierstrass+weierstrass_relative")
    names = {name for name, _ in encoding.named_parameters()}
    exempt = encoding.no_weight_decay()
    assert names - exempt == {"parts.0.projection.0.weight"}
    assert exempt <= names


@pytest.mark.parametrize("class_token", [True, False])
def test_every_parameter_of_a_model_gets_a_gradient(class_token: bool):
    model = build_vit(
        "micro",
        encoding="combined",
        encoding_options={"parts": "weierstrass+weierstrass_green+rope_mixed+learned"},
        num_classes=3,
        depth=2,
        class_token=class_token,
        pooling="token" if class_token else "mean",
    )
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert without == []


def test_a_hybrid_part_says_what_it_lacks():
    from training.errors import MissingTableError

    with pytest.raises(MissingTableError):
        built("weierstrass_hybrid+weierstrass_green").check_ready()
    built("weierstrass_hybrid:table=fresh+weierstrass_green").check_ready()


@pytest.mark.slow
def test_compiled_in_one_graph_it_says_the_same():
    encoding = built("weierstrass+weierstrass_green").eval()
    compiled = torch.compile(
        lambda: (encoding.additive(GRID), encoding.bias(GRID, 0)), backend="aot_eager"
    )
    for got, want in zip(
        compiled(), (encoding.additive(GRID), encoding.bias(GRID, 0)), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("weierstrass", "two or more"),
        ("", "unknown encoding ''"),
        ("weierstrass+", "unknown encoding ''"),
        ("weierstrass+grean", "unknown encoding 'grean'"),
        ("combined+learned", "cannot be combined itself"),
        ("weierstrass:alpha=1+learned", "no option 'alpha'"),
        ("weierstrass:alpha_u=-1+learned", "alpha_u"),
    ],
)
def test_mistakes_in_the_parts_are_named(parts: str, message: str):
    with pytest.raises((EncodingOptionError, InputError), match=message):
        built(parts)


def test_parts_must_be_text():
    with pytest.raises(EncodingOptionError, match="must be text"):
        build_encoding(
            "combined", dim=DIM, depth=DEPTH, num_heads=HEADS, grid=GRID, parts=["learned"]
        )


def test_it_says_something_of_every_sort():
    said = answers(built("weierstrass+weierstrass_green+rope_axial"), GRID)
    assert set(said) == {"additive", "bias", "prefix", "q", "k"}


# --- Places that are moved in training ----------------------------------------------------------

PARTS = "sincos2d+gaussian+rope_mixed+weierstrass_green"


def test_all_parts_see_the_same_moved_places_in_all_layers_of_a_pass():
    encoding = built(PARTS, shift=0.3, jitter=1.2, rescale=1.5).train()
    q, k = tokens(GRID)
    with torch.no_grad(), encoding.shared_pass():
        table = encoding.additive(GRID)
        u, v = encoding.moved_centres(GRID, encoding.options)
        places = torch.stack((u, v), -1)
        assert torch.equal(table, encoding.additive_at(places))
        for layer in range(DEPTH):
            assert torch.equal(encoding.bias(GRID, layer), encoding.bias_at(places, layer))
            got, want = encoding.rotate(q, k, GRID, layer), encoding.rotate_at(q, k, places, layer)
            assert torch.equal(got[0], want[0])
            assert torch.equal(got[1], want[1])
    with torch.no_grad(), encoding.shared_pass():
        assert not torch.equal(encoding.additive(GRID), table)  # another pass, other places


def test_places_are_moved_and_stretched_by_no_more_than_the_options_say():
    encoding = built("sincos2d", shift=0.3, jitter=1.2, rescale=1.5).train()
    height, width = GRID
    found_steps, found_middles = [], []
    for _ in range(200):
        u, v = (x.reshape(GRID) for x in encoding.moved_centres(GRID, encoding.options))
        found_steps.append(((u[0, 1] - u[0, 0]) * width, (v[1, 0] - v[0, 0]) * height))
        found_middles.append((2.0 * u.mean() - 1.0, 2.0 * v.mean() - 1.0))
    steps, middles = torch.tensor(found_steps), torch.tensor(found_middles)
    assert steps.max() <= 1.2 * 1.5 < 1.1 * steps.max()
    assert steps.min() >= 1.0 / (1.2 * 1.5) > 0.9 * steps.min()
    assert middles.abs().max() <= 0.3 * 1.2 * 1.5
    assert not torch.allclose(steps[:, 0], steps[:, 1])  # jitter is drawn for each axis


def test_places_do_not_move_outside_training():
    parts = "weierstrass+weierstrass_heat"
    torch.manual_seed(0)
    moved = built(parts, shift=0.3, rescale=2.0).eval()
    torch.manual_seed(0)
    plain = built(parts).eval()
    assert torch.equal(moved.additive(GRID), plain.additive(GRID))
    assert torch.equal(moved.bias(GRID, 1), plain.bias(GRID, 1))


@pytest.mark.parametrize(
    "part", ["rope1d", "fope", "weierstrass_fourier", "weierstrass:fidelity=authors"]
)
def test_a_part_that_knows_whole_grids_only_cannot_be_moved(part):
    with pytest.raises(InputError, match=part.partition(":")[0] + "|places"):
        built(part, jitter=1.1)


def test_one_part_is_enough_if_its_places_move():
    assert len(built("weierstrass", jitter=1.1).parts) == 1
    with pytest.raises(EncodingOptionError, match=r"two or more parts.*shift, jitter, rescale"):
        built("weierstrass")


@pytest.mark.parametrize("recompute", [False, True])
def test_a_model_trains_with_moved_places(recompute):
    options = {"parts": "weierstrass+weierstrass_heat", "jitter": 1.1, "shift": 0.1}
    model = build_vit(
        "micro", encoding="combined", encoding_options=options, num_classes=3, image_size=32,
        recompute=recompute,
    ).train()  # fmt: skip
    logits = model(torch.randn(2, 3, 32, 32))
    logits.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
