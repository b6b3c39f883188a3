"""Published weights on photographs. Needs files that are not in the repository.

``WEFPE_DATA`` names a folder with ``vit_tiny_augreg/model.safetensors`` (timm's ViT-Ti/16, AugReg,
ImageNet-1k) and ``photos/``; without it these tests are skipped.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("safetensors", reason="the training extra is not installed")
image_library = pytest.importorskip("PIL.Image", reason="pillow is not installed")
if "WEFPE_DATA" not in os.environ:
    pytest.skip("WEFPE_DATA names no folder with weights and photos", allow_module_level=True)

from training.models import build_vit, load_checkpoint
from verification.tests.model_doubles import CEILINGS, error_in_eps

DATA = Path(os.environ["WEFPE_DATA"])
WEIGHTS = DATA / "vit_tiny_augreg" / "model.safetensors"
# ImageNet-1k classes: Egyptian cat, espresso, moped; bell cote or palace.
PHOTOS = {
    "skimage_chelsea.png": {285},
    "skimage_coffee.png": {967},
    "skimage_motorcycle_left.png": {665},
    "sklearn_china.jpg": {442, 698},
}


def photo(name: str, size: tuple[int, int] = (224, 224)):
    """Resized so that the shorter side is 248 at 224, bicubic, centre crop, mean = std = 0.5."""
    image = image_library.open(DATA / "photos" / name).convert("RGB")
    scale = max(size[0] / image.height, size[1] / image.width) * 248 / 224
    image = image.resize(
        (round(image.width * scale), round(image.height * scale)), image_library.Resampling.BICUBIC
    )
    left, top = (image.width - size[1]) // 2, (image.height - size[0]) // 2
    image = image.crop((left, top, left + size[1], top + size[0]))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    return (pixels / 255.0 - 0.5) / 0.5


@pytest.fixture(scope="module")
def model():
    model = build_vit("tiny", encoding="learned").eval()
    report = load_checkpoint(model, WEIGHTS)
    assert report.missing == report.unexpected == ()
    assert len(report.loaded) == 151  # of 152: the table of positions is the encoding's
    return model


@pytest.mark.parametrize(("name", "classes"), PHOTOS.items())
def test_photographs_are_recognised(model, name, classes):
    with torch.no_grad():
        assert int(model(photo(name)).argmax()) in classes


@pytest.mark.parametrize("size", [(288, 288), (224, 304)], ids=str)
def test_a_cat_is_recognised_at_other_sizes(model, size):
    with torch.no_grad():
        assert int(model(photo("skimage_chelsea.png", size)).argmax()) == 285


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed; `nox -s timm`")
@pytest.mark.parametrize("name", PHOTOS)
def test_logits_are_those_of_timm(model, name):
    from verification.tests.models.test_timm_adapter import timm

    theirs = timm.create_model("vit_tiny_patch16_224", checkpoint_path=WEIGHTS).eval()
    with torch.no_grad():
        got, want = model(photo(name)), theirs(photo(name))
    assert error_in_eps(got, want) <= CEILINGS["attention"]


def test_the_rollout_of_published_weights_sees_what_the_model_sees():
    pytest.importorskip("accelerate", reason="the training extra is not installed")
    from training.study.analyse_rollout import rollout_analysis

    names = ["skimage_coffee.png", "skimage_motorcycle_left.png"]
    rows = rollout_analysis([WEIGHTS], [DATA / "photos" / name for name in names]).tables["maps"]
    assert [row["predicted"] for row in rows] == ["class 967", "class 665"]
    # Far from uniform in places, and nowhere near a single patch.
    assert all(1.5 < row["largest_over_uniform"] < 10 for row in rows)
    assert all(row["relative_entropy"] > 0.9 for row in rows)
