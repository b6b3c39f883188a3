"""``wefpe.plot``: figures from Python, without a window, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from inspect import cleandoc
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the report extra is not installed")

import wefpe
from training.plot.functions import NAMES, portrait
from wefpe import Lattice, get_backend, plot
from wefpe_core import InputError, InputTypeError

LATTICE = Lattice(1.0, 0.3 + 0.9j)
SIDE = 24


def labels(axis):
    return axis.get_legend_handles_labels()[1]


# --- Functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_named_function_is_coloured_by_its_argument(name):
    figure = plot.domain_colouring(name, LATTICE, side=SIDE)
    axis = figure.axes[0]
    drawn = axis.collections[0].get_array().reshape(SIDE, SIDE)
    z = portrait(name, LATTICE, side=SIDE).z
    want = np.angle(getattr(get_backend("numpy"), name)(z, LATTICE).astype(complex))
    assert (drawn == want).all()
    assert NAMES[name] in axis.get_title()
    assert ("pole" in labels(axis)) == (name != "sigma")
    figure.canvas.draw()


def test_any_function_is_coloured():
    def cube(z):
        return z**3

    figure = plot.domain_colouring(cube, LATTICE, side=SIDE, title="the cube")
    assert figure.axes[0].get_title() == "the cube"
    assert labels(figure.axes[0]) == []
    assert "cube" in plot.domain_colouring(cube, LATTICE, side=SIDE).axes[0].get_title()


def test_a_surface_has_three_dimensions():
    axis = plot.surface("zeta", LATTICE, side=SIDE).axes[0]
    assert axis.name == "3d"
    assert axis.get_title() == "log10 |ζ|"


def test_a_period_cell_shows_poles_zeros_and_half_periods():
    figure = plot.period_cell(LATTICE)
    lines = {line.get_label(): line.get_xydata() @ [1, 1j] for line in figure.axes[0].lines}
    backend = get_backend("numpy")
    assert np.abs(backend.wp(lines["zero of ℘"], LATTICE)).max() < 1e-12
    assert np.abs(backend.wp_prime(lines["zero of ℘′"], LATTICE)).max() < 1e-10
    assert 0 in lines["pole"]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["ω₁", "ω₃", "ω₁+ω₃"]
    assert figure.legends


@pytest.mark.parametrize("draw", [plot.domain_colouring, plot.surface])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("gamma", "there is no function 'gamma'; there are wp"),
        (lambda z: z[0], "a number for each"),
        (lambda z: "text", "a number for each"),
        (lambda z: np.full(z.shape, np.nan), "too few finite values"),
        (lambda z: 0 * z, "too few finite values"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, function, message):
    with pytest.raises(InputError, match=message):
        draw(function, LATTICE, side=SIDE)


def test_half_periods_alone_are_no_lattice():
    half_periods: Any = (1.0, 1j)
    with pytest.raises(InputTypeError, match="expected a Lattice"):
        plot.domain_colouring("wp", half_periods)


def test_functions_are_drawn_without_torch_and_without_pyplot():
    code = """
        import sys
        class Hidden:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "torch":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Hidden())
        import wefpe
        lattice = wefpe.Lattice(1.0, 1j)
        wefpe.plot.domain_colouring("wp", lattice, side=8)
        wefpe.plot.period_cell(lattice)
        assert "matplotlib.pyplot" not in sys.modules
    """
    command = [sys.executable, "-W", "error", "-c", cleandoc(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_door_names_every_figure():
    names = {name for name in vars(plot) if not name.startswith("_")}
    assert {"domain_colouring", "surface", "period_cell", "attention"} <= names
    assert "plot" in dir(wefpe)


# --- Encodings and models ------------------------------------------------------------------------


def built(name, **options):
    pytest.importorskip("torch", reason="the torch extra is not installed")
    sizes: dict[str, Any] = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 6)}
    return wefpe.encodings.build_encoding(name, **sizes, **options).eval()


def images_of(figure):
    return [axis.images[0].get_array() for axis in figure.axes if axis.images]


def test_a_table_is_drawn_on_any_grid():
    encoding = built("sincos2d")
    figure = plot.encoding_table(encoding, channels=(0, 5), query=(1, 2))
    first, second, similarity = images_of(figure)
    table = encoding.additive((4, 6)).numpy()
    assert (first == table[:, 0].reshape(4, 6)).all()
    assert (second == table[:, 5].reshape(4, 6)).all()
    assert similarity[1, 2] == similarity.max()
    assert images_of(plot.encoding_table(encoding, grid=(3, 5)))[0].shape == (3, 5)


def sections_of(figure):
    return labels(figure.axes[len(images_of(figure))])


def test_equal_sections_are_one_curve():
    encoding = built("sincos2d")
    square = plot.encoding_table(encoding, grid=(5, 5), query=(2, 2))
    assert sections_of(square) == ["its row and its column"]
    for elsewhere in ({"grid": (5, 5), "query": (1, 2)}, {"grid": (4, 5), "query": (2, 2)}):
        figure = plot.encoding_table(encoding, **elsewhere)
        assert sections_of(figure) == ["its row", "its column"]
    learned = plot.encoding_table(built("learned"), grid=(5, 5), query=(2, 2))
    assert sections_of(learned) == ["its row", "its column"]


def test_a_bias_and_a_rotation_are_drawn():
    encoding = built("weierstrass_green")
    *biases, softmax = images_of(plot.encoding_bias(encoding, query=(0, 0)))
    want = encoding.bias((4, 6), 0).detach().double().numpy()
    assert (np.array(biases) == want[:, 0].reshape(3, 4, 6)).all()
    assert softmax.sum() == pytest.approx(1.0)
    pairs = ((0, 0), (1, 3))
    maps = images_of(plot.encoding_rotation(built("rope_axial"), pairs=pairs))
    assert len(maps) == 3
    assert np.abs(maps[0]).max() <= 1.0


def test_an_encoding_without_what_is_asked_for_is_refused():
    with pytest.raises(InputError, match="sincos2d has no bias"):
        plot.encoding_bias(built("sincos2d"))
    with pytest.raises(InputError, match="rope_axial adds no table"):
        plot.encoding_table(built("rope_axial"))
    with pytest.raises(InputError, match="sincos2d does not turn"):
        plot.encoding_rotation(built("sincos2d"))
    with pytest.raises(InputError, match="no channel 48"):
        plot.encoding_table(built("sincos2d"), channels=(48,))
    with pytest.raises(InputError, match="no patch 4x0 in a grid of 4 x 6"):
        plot.encoding_table(built("sincos2d"), query=(4, 0))


@pytest.mark.parametrize("name", ["vit", "dhvt"])
def test_attention_is_drawn_from_one_patch(name):
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    from training.models import build_dhvt, build_vit

    sizes: dict[str, Any] = {"image_size": 16, "patch_size": 4, "num_classes": 5, "depth": 2}
    sizes["encoding"] = "none"
    model = build_vit("micro", in_channels=3, **sizes) if name == "vit" else build_dhvt(**sizes)
    model.train()
    image = torch.randn(3, 16, 24)
    *heads, mean = images_of(plot.attention(model, image, layer=0, query=(3, 5)))
    assert model.training
    with torch.no_grad():
        weights = model.eval()(image[None], return_attention=True)[1][0][0]
    want = weights[:, -1, -24:].reshape(-1, 4, 6).double().numpy()  # the last patch is 3x5
    assert (np.array(heads) == want).all()
    assert np.abs(mean - want.mean(0)).max() < 1e-6
    with pytest.raises(InputError, match="no layer 2: the model has 2"):
        plot.attention(model, image, layer=2)
    with pytest.raises(InputError, match="Linear has no option to return its attention"):
        plot.attention(torch.nn.Linear(2, 2), image)
