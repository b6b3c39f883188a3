"""Each augmentation does what it says: exactly where it can be, by its statistics elsewhere."""

from __future__ import annotations

import colorsys
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("PIL", reason="the training extra is not installed")

import torch
from PIL import Image, ImageEnhance

from training.augmentation import Augmenter, Normalisation
from training.augmentation.colour import coloured, hue_turned
from training.augmentation.geometry import (
    ERASE_RATIO,
    ERASE_SCALE,
    cut_out,
    erased,
    random_boxes,
    shifted_and_flipped,
    warped,
)
from training.augmentation.mixing import mixed
from training.config.schema import Augmentation, RandomResizedCrop
from training.randomness import Draws
from wefpe_core import InputError

EPS = torch.finfo(torch.float32).eps


def only(**options) -> Augmentation:
    """These augmentations and no others."""
    return Augmentation(**({"crop_padding": 0, "flip": 0.0} | options))


def draws(size: int, *, epoch: int = 0, batch: int = 0, seed: int = 0) -> Draws:
    return Draws(seed, epoch, batch, size=size, places=slice(0, size))


def same_image(count: int, height: int = 6, width: int = 5) -> torch.Tensor:
    """One image whose pixels all differ, `count` times; no pixel is black."""
    pixels = torch.arange(1, 3 * height * width + 1, dtype=torch.uint8)
    return pixels.view(1, 3, height, width).repeat(count, 1, 1, 1)


def within(share: float, expected: float, count: int) -> bool:
    """Whether a share of `count` trials is within 5 standard deviations of its probability."""
    return abs(share - expected) <= 5 * math.sqrt(expected * (1 - expected) / count)


# --- Draws -------------------------------------------------------------------------------------


def test_every_purpose_of_every_batch_has_numbers_of_its_own():
    some = [Draws(*numbers, size=6, places=slice(0, 6)) for numbers in ((0, 0, 0), (1, 0, 0))]
    some += [draws(6, epoch=1), draws(6, batch=1), draws(6, epoch=1, batch=1)]
    drawn: Counter[Any] = Counter()
    for each in some:
        for purpose in ("flip", "crop"):
            drawn[tuple(each.uniform(purpose, 1)[0].tolist())] += 1
            drawn[tuple(each.integers(purpose, 2**40).tolist())] += 1
            drawn[each.of_the_batch(purpose).random()] += 1
    assert len(drawn) == len(some) * 2 * 3


def test_draws_are_cut_from_those_of_the_global_batch():
    whole = draws(10)
    for places in (slice(0, 4), slice(4, 10)):
        part = Draws(0, 0, 0, size=10, places=places)
        for got, expected in zip(part.uniform("x", 3), whole.uniform("x", 3), strict=True):
            assert torch.equal(got, expected[places])
        assert torch.equal(part.integers("x", 99), whole.integers("x", 99)[places])
        assert part.of_the_batch("x").random() == whole.of_the_batch("x").random()


# --- Places ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "axis"), [("flip", 3), ("vertical_flip", 2)])
def test_flips_mirror_the_share_of_images_asked_for(name, axis):
    images = same_image(2000)
    result = shifted_and_flipped(images, only(**{name: 0.3}), draws(2000))
    is_flipped = (result == images.flip(axis)).flatten(1).all(dim=1)
    is_same = (result == images).flatten(1).all(dim=1)
    assert (is_flipped ^ is_same).all()
    assert within(float(is_flipped.double().mean()), 0.3, 2000)


@pytest.mark.parametrize("name", ["flip", "vertical_flip"])
def test_flips_with_probability_1_and_0(name):
    images = same_image(50)
    always = shifted_and_flipped(images, only(**{name: 1.0}), draws(50))
    assert torch.equal(always, images.flip(3 if name == "flip" else 2))
    never = Augmenter(only(), normalisation(5, 6), classes=2)
    result, _ = never(images, torch.zeros(50, dtype=torch.int64), draws(50))
    assert torch.equal(result, normalisation(5, 6)(images))


def normalisation(width=8, height=8, channels=3) -> Normalisation:
    return Normalisation((0.5,), (0.25,), size=(height, width), channels=channels)


def test_shifts_cover_exactly_the_padding_each_equally_often():
    count, padding = 5000, 2
    images = same_image(count)
    result = shifted_and_flipped(images, only(crop_padding=padding), draws(count))
    padded = torch.nn.functional.pad(images[0], (padding,) * 4)
    crops = {
        bytes(padded[:, top : top + 6, left : left + 5].contiguous().numpy()): (top, left)
        for top in range(5)
        for left in range(5)
    }
    assert len(crops) == 25
    found = Counter(crops[bytes(image.numpy())] for image in result)
    assert len(found) == 25
    assert all(within(times / count, 1 / 25, count) for times in found.values())


def test_a_shift_comes_before_the_flip():
    images = same_image(300)
    options = only(crop_padding=1)
    shifted = shifted_and_flipped(images, options, draws(300))
    both = shifted_and_flipped(images, only(crop_padding=1, flip=1.0), draws(300))
    assert torch.equal(both, shifted.flip(3))


# --- Windows and rotations ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "ratio", "aspect"),
    [
        ((0.08, 1.0), (0.75, 4 / 3), 1.0),
        ((0.8, 1.0), (0.9, 1.1), 1.5),
        ((0.8, 1.0), (0.9, 1.1), 1 / 1.5),
        (ERASE_SCALE, ERASE_RATIO, 1.0),
    ],
)
def test_boxes_have_the_areas_and_shapes_asked_for_and_lie_within(scale, ratio, aspect):
    boxes = random_boxes(draws(20_000), "x", scale, ratio, aspect=aspect)
    top, left, height, width = boxes
    tiny = 16 * torch.finfo(torch.float64).eps
    assert min(float(each.min()) for each in boxes) >= 0
    assert float((top + height).max()) <= 1 + tiny
    assert float((left + width).max()) <= 1 + tiny
    area, shape = height * width, aspect * width / height
    assert scale[0] - tiny <= float(area.min())
    assert float(area.max()) <= scale[1] + tiny
    # Uniform: a tenth of the areas in each tenth of the range.
    tenth = ((area - scale[0]) / (scale[1] - scale[0]) * 10).clamp(0, 9).long()
    shares = torch.bincount(tenth, minlength=10) / len(tenth)
    assert all(within(float(share), 0.1, len(tenth)) for share in shares)
    # As wide as asked for, but for boxes that fill the height or the width.
    is_free = (height < 1 - tiny) & (width < 1 - tiny)
    if aspect == 1.0:
        assert float(is_free.double().mean()) > 0.5
        assert ratio[0] * (1 - tiny) <= float(shape[is_free].min()) < ratio[0] * 1.01
        assert ratio[1] / 1.01 < float(shape[is_free].max()) <= ratio[1] * (1 + tiny)
    else:
        assert not is_free.any()


def gradient_image(count: int, size: int = 16) -> torch.Tensor:
    """Two channels that hold the coordinates of their pixels, x and y from -1 to 1, and a third."""
    line = (torch.arange(size) * 2 + 1) / size - 1
    x, y = line.expand(size, size), line[:, None].expand(size, size)
    return torch.stack((x, y, torch.ones(size, size))).repeat(count, 1, 1, 1)


def test_a_window_is_stretched_to_the_whole():
    options = only(random_resized_crop=RandomResizedCrop(scale=(0.2, 0.6), ratio=(0.8, 1.25)))
    result = warped(gradient_image(200), (16, 16), options, draws(200))
    top, left, height, width = random_boxes(
        draws(200), "random resized crop", (0.2, 0.6), (0.8, 1.25), aspect=1.0
    )
    # Pixel centres of the result, in the coordinates of the image; the edge is repeated beyond
    # the outermost centres.
    part = (torch.arange(16) + 0.5) / 16
    x = ((left[:, None] + width[:, None] * part) * 2 - 1).clamp(-15 / 16, 15 / 16)
    y = ((top[:, None] + height[:, None] * part) * 2 - 1).clamp(-15 / 16, 15 / 16)
    assert float((result[:, 0] - x[:, None, :]).abs().max()) < 16 * EPS
    assert float((result[:, 1] - y[:, :, None]).abs().max()) < 16 * EPS
    assert float((result[:, 2] - 1).abs().max()) < 16 * EPS  # no darkness at the edges


def test_the_whole_as_its_window_is_what_resizing_gives():
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    options = only(random_resized_crop=RandomResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0)))
    result = warped(images, (20, 20), options, draws(4))
    resized = normalisation(20, 20).resized(images)
    assert float((result - resized).abs().max()) < 16 * EPS


@pytest.mark.parametrize("degrees", [10.0, 90.0])
def test_rotations_cover_the_angles_to_either_side(degrees):
    count = 3000
    options = only(rotation=degrees)
    result = warped(gradient_image(count), (16, 16), options, draws(count))
    # Near the centre: how the coordinates change to the right is the angle.
    right = result[:, :2, 8, 8] - result[:, :2, 8, 7]
    angles = torch.atan2(right[:, 1], right[:, 0]) * 180 / math.pi
    assert float(angles.abs().max()) <= degrees * (1 + 64 * EPS)
    tenth = ((angles / degrees + 1) * 5).clamp(0, 9).long()
    shares = torch.bincount(tenth, minlength=10) / count
    assert all(within(float(share), 0.1, count) for share in shares)
    lengths = right.norm(dim=1)
    assert float((lengths - 2 / 16).abs().max()) < 16 * EPS  # nothing is stretched


def test_rotation_of_a_rectangle_does_not_shear():
    line = torch.arange(12.0)
    x, y = line.expand(8, 12), line[:8, None].expand(8, 12)
    images = torch.stack((x, y, x)).repeat(50, 1, 1, 1)
    result = warped(images, (8, 12), only(rotation=30.0), draws(50))
    right = result[:, :2, 4, 6] - result[:, :2, 4, 5]
    down = result[:, :2, 4, 5] - result[:, :2, 3, 5]
    assert float((right.norm(dim=1) - 1).abs().max()) < 128 * EPS
    assert float((right * down).sum(dim=1).abs().max()) < 128 * EPS


def test_what_turns_in_is_black():
    result = warped(torch.ones(20, 3, 16, 16), (16, 16), only(rotation=45), draws(20))
    assert set(result.unique().tolist()) <= {0.0} | {1 + k * EPS / 2 for k in range(-4, 5)}
    assert (result[:, 0] == 0).flatten(1).any(dim=1).sum() > 10
    assert (result[:, :, 8, 8] > 0).all()


# --- Colours -----------------------------------------------------------------------------------


def photograph() -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8))


def factors(purpose: str, most: float, count: int) -> list[float]:
    (chance,) = draws(count).uniform(purpose, 1)
    low = max(0.0, 1 - most)
    return (low + (1 + most - low) * chance).tolist()


@pytest.mark.parametrize(
    ("name", "enhancer"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("saturation", ImageEnhance.Color),
    ],
)
def test_factors_do_what_pillow_does(name, enhancer):
    count = 40
    image = photograph()
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
    result = coloured(tensor.repeat(count, 1, 1, 1), only(**{name: 0.8}), draws(count))
    for factor, got in zip(factors(name, 0.8, count), result, strict=True):
        expected = np.array(enhancer(image).enhance(factor)).transpose(2, 0, 1)
        # Pillow rounds the grey value and the result, each by half a step, and scales the first.
        assert float((got * 255 - torch.from_numpy(expected)).abs().max()) <= 1 + 0.5 + 0.5


def test_factors_reach_from_one_end_to_the_other():
    for most, low in ((0.4, 0.6), (1.5, 0.0)):
        drawn = factors("brightness", most, 4000)
        assert low <= min(drawn) < low + 0.01
        assert 1 + most - 0.01 < max(drawn) < 1 + most


def test_hue_turns_the_circle_by_its_part():
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1).repeat(2000, 1, 2, 2)
    result = coloured(red, only(hue=0.1), draws(2000))[:, :, 0, 0]
    # A tenth of the circle is 0.6 of the way from red to yellow, or to magenta.
    assert (result[:, 0] == 1).all()
    assert float(result[:, 1].max()) == pytest.approx(0.6, abs=0.01)
    assert float(result[:, 2].max()) == pytest.approx(0.6, abs=0.01)
    assert within(float((result[:, 1] > 0).double().mean()), 0.5, 2000)


def test_hue_agrees_with_the_conversion_by_hsv():
    images = torch.rand(20, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    images[:, :, 0] = images[:, :1, 0]  # some grey ones
    images[:, 1, 1] = images[:, 0, 1]  # and two alike
    sixths = torch.linspace(-3, 3, 20)
    expected = images.double()
    for image, turn in zip(expected.unbind(), (sixths.double() / 6).tolist(), strict=True):
        for pixel in image.flatten(1).T:
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel.tolist())
            pixel[:] = torch.tensor(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value))
    assert float((hue_turned(images, sixths) - expected).abs().max()) < 64 * EPS


def test_grey_images_are_the_share_asked_for():
    count = 2000
    image = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0)).repeat(
        count, 1, 1, 1
    )
    result = coloured(image.clone(), only(grayscale=0.2), draws(count))
    is_grey = (result[:, 0] == result[:, 2]).flatten(1).all(dim=1)
    assert within(float(is_grey.double().mean()), 0.2, count)
    assert torch.equal(result[~is_grey], image[~is_grey])
    luma = (image * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(dim=1)
    assert float((result[is_grey][:, 0] - luma[is_grey]).abs().max()) < 4 * EPS


@pytest.mark.parametrize("name", ["saturation", "hue", "grayscale"])
def test_colours_of_grey_images_are_refused(name):
    options = only(**{name: 0.1})
    with pytest.raises(InputError, match=rf"augmentation\.{name} needs images with 3 channels"):
        Augmenter(options, normalisation(channels=1), classes=2)
    Augmenter(only(brightness=0.1), normalisation(channels=1), classes=2)


# --- Erasing and cutout ------------------------------------------------------------------------


def blank_boxes(images: torch.Tensor) -> list[tuple[int, int, int, int] | None]:
    """The box of zeros in each image of ones; the zeros must fill it."""
    boxes: list[tuple[int, int, int, int] | None] = []
    for image in images == 0:
        assert (image == image[0]).all()
        rows, columns = image[0].nonzero(as_tuple=True)
        if not len(rows):
            boxes.append(None)
            continue
        top, bottom = int(rows.min()), int(rows.max()) + 1
        left, right = int(columns.min()), int(columns.max()) + 1
        assert len(rows) == (bottom - top) * (right - left)
        boxes.append((top, bottom, left, right))
    return boxes


def test_cutout_is_a_square_around_any_pixel():
    for side in (3, 4):
        boxes = blank_boxes(cut_out(torch.ones(3000, 3, 10, 8), only(cutout=side), draws(3000)))
        tops: Counter[int] = Counter()
        lefts: Counter[int] = Counter()
        for box in boxes:
            assert box is not None
            top, bottom, left, right = box
            assert bottom - top == side or top == 0 or bottom == 10
            assert right - left == side or left == 0 or right == 8
            tops[bottom if top == 0 else top + side] += 1
            lefts[right if left == 0 else left + side] += 1
        assert sum(b[1] - b[0] == side and b[3] - b[2] == side for b in boxes if b) > 1000
        # The centre is every row and every column equally often.
        assert len(tops) == 10
        assert len(lefts) == 8
        assert all(within(times / 3000, 1 / 10, 3000) for times in tops.values())
        assert all(within(times / 3000, 1 / 8, 3000) for times in lefts.values())


def test_erasing_happens_as_often_as_asked_and_within_its_areas():
    count, side = 4000, 32
    options = only(erase_probability=0.25)
    boxes = blank_boxes(erased(torch.ones(count, 2, side, side), options, draws(count)))
    found = [box for box in boxes if box is not None]
    assert within(len(found) / count, 0.25, count)
    areas = np.array([(b - t) * (r - le) for t, b, le, r in found]) / side**2
    # Sides are rounded by half a pixel.
    rounding = 2 * 0.5 * side * 0.6 / side**2 + 0.25 / side**2
    assert areas.min() >= ERASE_SCALE[0] - rounding
    assert areas.max() <= ERASE_SCALE[1] + rounding
    assert areas.min() < 0.04
    assert areas.max() > 0.3
    assert abs(areas.mean() - sum(ERASE_SCALE) / 2) < 5 * areas.std() / math.sqrt(len(areas))
    assert {t for t, *_ in found} >= set(range(16))


# --- Mixing ------------------------------------------------------------------------------------


def mixed_ones(options, *, count=8, size=10, is_warmup=False, batch=0, epoch=0):
    """Image i is i everywhere and of class i: what a pixel holds says where it comes from."""
    images = torch.arange(count, dtype=torch.float32).view(-1, 1, 1, 1).repeat(1, 1, size, size)
    return mixed(
        images,
        torch.arange(count),
        count,
        options,
        draws(count, batch=batch, epoch=epoch),
        is_warmup=is_warmup,
    )


MIXUP = only(mixup_alpha=0.8)
CUTMIX = only(cutmix_alpha=1.0)


@pytest.mark.parametrize("batch", range(5))
def test_mixup_mixes_pairs_and_their_targets_alike(batch):
    images, targets = mixed_ones(MIXUP, batch=batch)
    share = float(targets[0, 0])
    for own in range(8):
        other = own ^ 1
        expected = torch.zeros(8)
        expected[own], expected[other] = targets[0, 0], targets[0, 1]
        assert torch.equal(targets[own], expected)
        value = share * own + (1 - share) * other
        assert float((images[own] - value).abs().max()) < 16 * EPS
    assert abs(float(targets[0].sum()) - 1) <= EPS


def test_cutmix_areas_are_the_weights_of_the_targets():
    areas = set()
    for batch in range(200):
        images, targets = mixed_ones(CUTMIX, batch=batch)
        for own in (0, 5):
            other = own ^ 1
            assert set(images[own].unique().tolist()) <= {float(own), float(other)}
            area = int((images[own] == own).sum())
            assert abs(float(targets[own, own]) * 100 - area) < 100 * 2 * EPS
            assert abs(float(targets[own, other]) * 100 - (100 - area)) < 100 * 2 * EPS
        places = (images[0, 0] == 1).nonzero()
        if len(places):
            tall, wide = (places.max(dim=0).values - places.min(dim=0).values + 1).tolist()
            assert tall * wide == len(places)
        areas.add(area)
    assert len(areas) > 20


def test_an_image_without_a_partner_stays_as_it_is():
    for options in (MIXUP, CUTMIX):
        images, targets = mixed_ones(options, count=5)
        assert (images[4] == 4).all()
        assert targets[4].tolist() == [0, 0, 0, 0, 1]


def kinds(options, batches=2000, **more) -> Counter[str]:
    found: Counter[str] = Counter()
    for batch in range(batches):
        images, targets = mixed_ones(options, count=2, size=4, batch=batch, **more)
        values = set(images[0].unique().tolist())
        if values <= {0.0, 1.0} and float(targets.min()) == 0 and values == {0.0}:
            found["none"] += 1
        else:
            found["cutmix" if values <= {0.0, 1.0} else "mixup"] += 1
    return found


def test_how_often_batches_are_mixed_and_by_which():
    # A large alpha: shares near one half, so that each kind is recognised.
    options = only(
        mixup_alpha=50.0, cutmix_alpha=50.0, mix_probability=0.6, switch_probability=0.25
    )
    found = kinds(options)
    assert within((found["mixup"] + found["cutmix"]) / 2000, 0.6, 2000)
    assert within(found["cutmix"] / 2000, 0.6 * 0.25, 2000)
    assert kinds(only(mixup_alpha=50.0), 200) == {"mixup": 200}
    assert kinds(only(cutmix_alpha=50.0), 200) == {"cutmix": 200}


def shares(options, count, **more) -> np.ndarray:
    return np.array(
        [
            float(mixed_ones(options, count=2, size=2, batch=b, **more)[1][0, 0])
            for b in range(count)
        ]
    )


@pytest.mark.parametrize("alpha", [0.15, 0.3, 1.0])
def test_shares_follow_the_beta_distribution(alpha):
    from scipy import stats

    drawn = shares(only(mixup_alpha=alpha), 3000).astype(np.float64)
    # Close to 0 a float32 is exact, close to 1 it is not: half of a symmetric law is enough.
    low = drawn[drawn < 0.5]
    assert within(len(low) / len(drawn), 0.5, len(drawn))
    assert stats.kstest(low, lambda x: 2 * stats.beta(alpha, alpha).cdf(x)).pvalue > 0.001
    assert stats.kstest(low, lambda x: 2 * stats.beta(2 * alpha, 2 * alpha).cdf(x)).pvalue < 0.001


def test_warm_up_has_an_alpha_of_its_own():
    options = only(mixup_alpha=200.0, mixup_alpha_warmup=0.05)
    assert np.abs(shares(options, 200) - 0.5).max() < 0.2
    early = shares(options, 200, is_warmup=True)
    assert np.abs(early - 0.5).mean() > 0.4
    without = only(mixup_alpha=200.0)
    assert np.array_equal(shares(without, 50), shares(without, 50, is_warmup=True))


@pytest.mark.parametrize(("epoch", "is_early"), [(0, True), (2, True), (3, False)])
def test_warm_up_ends_with_its_epochs(epoch, is_early):
    options = only(mixup_alpha=1e4, mixup_alpha_warmup=0.0)
    augmentation = Augmenter(options, normalisation(), classes=2, warmup_epochs=3.0)
    images = torch.randint(0, 256, (2, 3, 8, 8)).to(torch.uint8)
    _, targets = augmentation(images, torch.tensor([0, 1]), draws(2, epoch=epoch))
    assert (float(targets[0, 0]) == 1.0) == is_early


def test_targets_are_soft_whenever_any_batch_is_mixed():
    images, labels = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.arange(4)
    for options, is_soft in (
        (only(), False),
        (only(mixup_alpha=0.2, mix_probability=0.0), False),
        (only(mixup_alpha=0.2, mix_probability=0.01), True),
    ):
        augmentation = Augmenter(options, normalisation(), classes=4)
        assert augmentation.mixes == is_soft
        _, targets = augmentation(images, labels, draws(4))
        assert torch.equal(targets, torch.eye(4) if is_soft else labels)


# --- All together ------------------------------------------------------------------------------


def test_stored_images_are_not_changed():
    options = only(
        brightness=0.4, erase_probability=1.0, cutout=4, cutmix_alpha=1.0, mixup_alpha=1.0
    )
    augmentation = Augmenter(options, normalisation(), classes=4)
    images, labels = torch.randint(0, 256, (4, 3, 8, 8)).to(torch.uint8), torch.arange(4)
    before = images.clone()
    for batch in range(10):
        augmentation(images, labels, draws(4, batch=batch))
    assert torch.equal(images, before)


def test_images_are_enlarged_after_the_shift_and_before_the_cutout():
    options = only(crop_padding=1, cutout=12)
    augmentation = Augmenter(options, normalisation(32, 32), classes=2)
    images = same_image(30, 8, 8)
    result, _ = augmentation(images, torch.zeros(30, dtype=torch.int64), draws(30))
    assert result.shape == (30, 3, 32, 32)
    shifted = shifted_and_flipped(images, options, draws(30))
    expected = cut_out(normalisation(32, 32)(shifted), options, draws(30))
    assert torch.equal(result, expected)


def test_enlarging_is_what_pillow_does():
    image = photograph()
    normalise = Normalisation((0.0,), (1.0,), size=(27, 21), channels=3)
    got = normalise(torch.from_numpy(np.array(image)).permute(2, 0, 1)[None])[0] * 255
    expected = np.array(image.resize((21, 27), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    # Pillow rounds after each of its two passes.
    assert float((got - torch.from_numpy(expected)).abs().max()) <= 0.5 + 0.5 + 1 / 255


def test_a_whole_window_after_a_flip_is_the_flipped_image():
    whole = RandomResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0))
    options = only(flip=1.0, random_resized_crop=whole)
    augmentation = Augmenter(options, normalisation(), classes=2)
    images = same_image(2, 8, 8)
    result, _ = augmentation(images, torch.zeros(2, dtype=torch.int64), draws(2))
    difference = result - normalisation()(images.flip(3))
    assert float(difference.abs().max()) < 64 * EPS
