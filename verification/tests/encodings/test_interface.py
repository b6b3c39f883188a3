"""Every encoding keeps the interface: shapes, neutral answers, state dicts, refusals."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training import encodings
from training.encodings import (
    AbstractEncoding,
    EncodingOptionError,
    EncodingOptions,
    MissingTableError,
    UnknownEncodingError,
    available_encodings,
    build_encoding,
    describe_encoding,
    option,
    registry,
)
from verification.tests.encoding_cases import (
    DEPTH,
    DIM,
    GRIDS,
    HEAD_DIM,
    HEADS,
    NAMES,
    answers,
    small,
    tokens,
)
from verification.tests.torch_devices import every_device
from wefpe_core import InputError, LatticeError, WefpeError

KINDS = {
    "none": "none",
    "learned": "additive",
    "sincos2d": "additive",
    "rope1d": "rotary",
    "rope_axial": "rotary",
    "rope_mixed": "rotary",
    "fope": "rotary",
    "liere": "rotary",
    "relative_table": "bias",
    "alibi2d": "bias",
    "gaussian": "bias",
    "lookhere": "bias",
    "weierstrass": "additive",
    "weierstrass_fourier": "additive",
    "weierstrass_hybrid": "additive",
    "weierstrass_relative": "bias",
    "weierstrass_green": "bias",
    "weierstrass_heat": "bias",
    "combined": "combined",
}
VARIANTS = [
    *((name, {}) for name in NAMES),
    ("learned", {"layout": "factorised", "prefix_tokens": 0}),
    ("sincos2d", {"convention": "wef_authors"}),
    ("rope_axial", {"coordinates": "centred", "layout": "half"}),
    ("fope", {"learnable": True, "pad": "identity"}),
    ("weierstrass", {"fidelity": "paper"}),
    ("weierstrass", {"fidelity": "authors"}),
    ("weierstrass", {"lattice": "general", "projection": "mlp", "features": 2}),
    ("weierstrass", {"learnable": False, "adaptive_strength": False, "g3": 0.1}),
    ("weierstrass_fourier", {"fidelity": "paper", "terms": 5, "projection": "linear"}),
    ("weierstrass_fourier", {"fidelity": "authors", "recipe": "dmlab"}),
    ("weierstrass_hybrid", {"wef": "weierstrass", "wef_options": {"features": 2}}),
    ("weierstrass_relative", {"lattice": "general", "compression": "softsign"}),
    ("weierstrass_relative", {"alpha_u": 1.0, "per_layer": False, "diagonal": "zero"}),
    ("weierstrass_green", {"lattice": "general", "diagonal": "nearest", "per_layer": False}),
    ("combined", {"parts": "learned+rope_axial+weierstrass_relative"}),
    ("combined", {"parts": "weierstrass:alpha_u=0.25+weierstrass"}),
]
every_variant = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(VARIANTS)]
)


def test_the_names_and_kinds_are_these():
    assert available_encodings()[: len(NAMES)] == tuple(NAMES)
    assert {name: describe_encoding(name).kind for name in NAMES} == KINDS


@every_device
@every_variant
def test_shapes_dtypes_and_neutral_answers(name, options, device):
    encoding = small(name, **options).to(device)
    kinds = {part.kind for part in getattr(encoding, "parts", [encoding])}
    for grid in GRIDS:
        n = grid[0] * grid[1]
        q, k = (x.to(device) for x in tokens(grid))
        rotated = encoding.rotate(q, k, grid, DEPTH - 1)
        for before, after in zip((q, k), rotated, strict=True):
            assert (after.shape, after.dtype, after.device) == (q.shape, q.dtype, q.device)
            assert torch.equal(before, after) == ("rotary" not in kinds or n == 1) or n == 1
        additive, bias = encoding.additive(grid), encoding.bias(grid, 0)
        assert (additive is not None) == ("additive" in kinds)
        assert (bias is not None) == ("bias" in kinds)
        if additive is not None:
            assert (additive.shape, additive.dtype) == ((n, DIM), torch.float32)
            assert additive.device == q.device
            assert torch.isfinite(additive).all()
        if bias is not None:
            assert (bias.shape, bias.dtype) == ((HEADS, n, n), torch.float32)
            assert torch.isfinite(bias).all()


@every_variant
def test_prefix_tokens_get_rows_or_nothing(name, options):
    encoding = small(name, **options)
    assert encoding.prefix(0) is None
    rows = [encoding.prefix(n) for n in (1, 3)]
    if rows[0] is not None:
        assert [row.shape for row in rows] == [(1, DIM), (3, DIM)]
        assert torch.equal(rows[1][:1], rows[0])
        assert not rows[1][1:].any()  # registers have no place


@every_variant
def test_every_learned_parameter_gets_a_finite_gradient(name, options):
    encoding = small(name, **options)
    learned = {key: p for key, p in encoding.named_parameters() if p.requires_grad}
    weights = torch.Generator().manual_seed(1)
    for layer in range(DEPTH):
        said = answers(encoding, (5, 8), layer)
        total = sum(
            (value * torch.randn(value.shape, generator=weights)).sum() for value in said.values()
        )
        if learned:
            total.backward()
    without = {key for key, p in learned.items() if p.grad is None}
    assert without == set()
    for key, parameter in learned.items():
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.any(), key


@every_variant
def test_state_dicts_hold_parameters_and_no_tables(name, options):
    encoding = small(name, **options).eval()
    before = {key: value.clone() for key, value in encoding.state_dict().items()}
    with torch.no_grad():
        for grid in GRIDS:
            answers(encoding, grid)
    after = encoding.state_dict()
    coefficients = {"sin_coefficients", "cos_coefficients"} if name == "fope" else set()
    assert set(after) == set(before) == dict(encoding.named_parameters()).keys() | coefficients
    assert all(torch.equal(after[key], before[key]) for key in before)
    other = small(name, seed=5, **options).eval()
    other.load_state_dict(before)
    with torch.no_grad():
        want, got = (answers(each, (5, 8)) for each in (encoding, other))
    assert want.keys() == got.keys()
    assert all(torch.equal(want[key], got[key]) for key in want)


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_say_what_the_encoding_takes_and_learns(name):
    options: dict[str, Any] = {"table": "fresh"} if name == "weierstrass_hybrid" else {}
    description = describe_encoding(name, **options)
    encoding = build_encoding(name, dim=192, depth=12, num_heads=3, grid=(14, 14), **options)
    learned = sum(p.numel() for p in encoding.parameters() if p.requires_grad)
    assert description.parameter_count == learned
    assert description.summary
    assert description.formula
    for each in description.options:
        assert each.meaning
        assert each.type
        # Every default may be given as an option.
        build_encoding(
            name, dim=192, depth=12, num_heads=3, grid=(2, 4), **options | {each.name: each.default}
        )


def test_only_projections_decay():
    kept = small("weierstrass", projection="mlp").no_weight_decay()
    assert "projection.0.weight" not in kept
    assert {"alpha_raw", "lattice_parameter.alpha_learn", "beta_pos", "class_encoding"} <= kept
    assert "projection.1.weight" in kept  # of a LayerNorm
    assert small("rope_mixed").no_weight_decay() == {"freqs"}
    assert "positions.patches" in small("learned").no_weight_decay()
    assert "weight" in small("weierstrass_relative").no_weight_decay()


# --- Adding one ----------------------------------------------------------------------------


@pytest.fixture
def _registry_is_left_alone(monkeypatch):
    monkeypatch.setattr(registry, "_ENCODINGS", dict(registry._ENCODINGS))


@pytest.mark.usefixtures("_registry_is_left_alone")
def test_an_encoding_is_added_in_a_few_lines():
    class ConstantOptions(EncodingOptions):
        value: float = option(1.0, "what is added")

    @encodings.register_encoding
    class Constant(AbstractEncoding):
        name, kind, summary, formula = "constant", "additive", "the same everywhere", "x_i + c"
        options_class = ConstantOptions

        def __init__(self, size, options):
            super().__init__(size)
            self.options = options

        def additive(self, grid):
            return torch.full((grid[0] * grid[1], self.size.dim), self.options.value)

    assert available_encodings()[-1] == "constant"
    assert (small("constant", value=3).additive((2, 2)) == 3.0).all()
    with pytest.raises(EncodingOptionError, match="its options: value"):
        small("constant", wrong=1)

    class Second(Constant):
        pass

    with pytest.raises(InputError, match="taken by Constant"):
        encodings.register_encoding(Second)


class ForeignOptions(EncodingOptions):
    rows: int = option(2, "rows that are added", at_least=1)
    mode: Literal["sum", "mean"] | None = option(None, "how")

    def check(self, size):
        if size.dim % self.rows:
            raise InputError(f"dim={size.dim} is not divisible by rows={self.rows}")


@pytest.mark.usefixtures("_registry_is_left_alone")
def test_options_of_others_are_checked_like_our_own():
    @encodings.register_encoding
    class Foreign(AbstractEncoding):
        name, kind, summary, formula = "foreign", "none", "of others", "x_i"

        def __init__(self, size, options):
            super().__init__(size)
            self.options = options

    assert registry.options_class_of("foreign") is encodings.NoOptions
    Foreign.options_class = ForeignOptions
    encodings.register_encoding(Foreign)
    made = small("foreign", rows=np.int64(4), mode="mean")
    assert type(made.options) is ForeignOptions
    assert (made.options.rows, made.options.mode) == (4, "mean")
    known = describe_encoding("foreign").options[:2]
    assert known == (
        encodings.OptionDescription("rows", "an integer", 2, "rows that are added"),
        encodings.OptionDescription("mode", "'sum' or 'mean' or unset", None, "how"),
    )
    for options, words in (
        ({"rows": 0}, "'rows' of encoding 'foreign' must be at least 1, got 0"),
        ({"rows": 2.0}, "'rows' of encoding 'foreign' must be an integer, got 2.0"),
        ({"mode": "max"}, "must be 'sum' or 'mean' or unset, got 'max'"),
        ({"rosw": 2}, "has no option 'rosw'; its options: rows, mode.*; did you mean rows"),
        ({"rows": 0, "mode": 1}, "at least 1, got 0; option 'mode' .* got 1"),
    ):
        with pytest.raises(EncodingOptionError, match=words):
            small("foreign", **options)
    with pytest.raises(InputError, match="rows=5"):
        small("foreign", rows=5)


@pytest.mark.parametrize(
    "value",
    [torch.tensor(0.3, requires_grad=True), np.True_, Decimal("0.5"), np.array(0.5)],
    ids=repr,
)
def test_what_only_can_become_a_number_is_no_number(value):
    """A tensor would lose its gradient without a word."""
    with pytest.raises(EncodingOptionError, match="'alpha_u' of encoding 'weierstrass' must be"):
        small("weierstrass", alpha_u=value)


@pytest.mark.usefixtures("_registry_is_left_alone")
def test_options_of_another_kind_are_refused():
    class Foreign(AbstractEncoding):
        name, kind, summary, formula = "foreign", "none", "of others", "x_i"
        options_class = dict

    with pytest.raises(InputError, match="dict does not derive from EncodingOptions"):
        encodings.register_encoding(Foreign)


@pytest.mark.parametrize("name", NAMES)
def test_the_registry_names_the_class_and_its_options(name):
    found = registry.encoding_class(name)
    assert found.name == name
    assert found.options_class is registry.options_class_of(name)


@pytest.mark.usefixtures("_registry_is_left_alone")
@pytest.mark.parametrize("thing", [torch.nn.Linear, "none", type("Bare", (AbstractEncoding,), {})])
def test_what_is_no_encoding_cannot_be_registered(thing):
    with pytest.raises(InputError, match=r"AbstractEncoding|no class attribute"):
        encodings.register_encoding(thing)


# --- Refusals ------------------------------------------------------------------------------

SIZE = {"dim": DIM, "depth": DEPTH, "num_heads": HEADS, "grid": (5, 8)}
REFUSALS = [
    ("nonsense", {}, UnknownEncodingError, "weierstrass_green"),
    ("weierstrass", {"colour": 1}, EncodingOptionError, "alpha_u"),
    ("none", {"colour": 1}, EncodingOptionError, "none"),
    ("weierstrass", {"fidelity": "exact"}, EncodingOptionError, "'corrected' or 'paper'"),
    ("weierstrass", {"features": 3}, EncodingOptionError, "4 or 2"),
    ("weierstrass", {"features": 4.0}, EncodingOptionError, "4 or 2"),
    ("weierstrass", {"learnable": 1}, EncodingOptionError, "true or false"),
    ("weierstrass", {"alpha_u": 0.0}, EncodingOptionError, "above 0"),
    ("weierstrass", {"alpha_u": float("nan")}, EncodingOptionError, "a number"),
    ("weierstrass", {"g2": 3.0, "g3": 1.0}, LatticeError, "discriminant"),
    ("weierstrass", {"g2": 3.0, "g3": 1.0, "fidelity": "paper"}, EncodingOptionError, "listing"),
    ("weierstrass", {"tau_min": 2.0}, LatticeError, "tau_min"),
    ("weierstrass", {"alpha_u": 16.0, "alpha_v": 10.0}, InputError, "pole"),
    ("weierstrass", {"backend": "numpy"}, EncodingOptionError, "learnable=false"),
    ("weierstrass", {"backend": "sage"}, EncodingOptionError, "mpmath"),
    ("weierstrass", {"fidelity": "paper", "lattice": "general"}, EncodingOptionError, "corrected"),
    (
        "weierstrass",
        {"fidelity": "authors", "learnable": False, "backend": "mpmath"},
        EncodingOptionError,
        "corrected",
    ),
    ("weierstrass", {"fidelity": "authors", "scale": 3.0}, EncodingOptionError, "clamp"),
    ("weierstrass", {"fidelity": "paper", "tau_min": 0.2}, EncodingOptionError, "corrected"),
    ("weierstrass", {"recipe": "dhvt"}, EncodingOptionError, "authors"),
    ("weierstrass", {"recipe": "swin", "fidelity": "authors"}, EncodingOptionError, "dhvt"),
    ("weierstrass", {"learnable": False, "lattice": "general"}, EncodingOptionError, "learnable"),
    (
        "weierstrass_green",
        {"learnable": False, "lattice": "general"},
        EncodingOptionError,
        "is false",
    ),
    ("weierstrass_fourier", {"fidelity": "paper", "tau_max": 4}, EncodingOptionError, "corrected"),
    ("weierstrass_fourier", {"recipe": "svhn"}, EncodingOptionError, "authors"),
    ("weierstrass_fourier", {"fidelity": "authors", "terms": 4}, EncodingOptionError, "recipe"),
    ("weierstrass_hybrid", {"wef_options": {"colour": 1}}, EncodingOptionError, "projection"),
    ("weierstrass_hybrid", {"wef_options": {"class_token": True}}, EncodingOptionError, "keeps"),
    ("weierstrass_relative", {"backend": "mpmath"}, EncodingOptionError, "learnable=false"),
    ("weierstrass_relative", {"alpha_u": 16.0, "alpha_v": 10.0}, InputError, "pole"),
    ("weierstrass_green", {"backend": "numpy"}, EncodingOptionError, "learnable=false"),
    ("learned", {"prefix_tokens": -1}, EncodingOptionError, "at least 0"),
    ("sincos2d", {"dim": 30}, InputError, "divisible by 4"),
    ("sincos2d", {"dim": 4, "convention": "big_vision"}, InputError, "at least 8"),
    ("rope1d", {"dim": 30}, InputError, "even head_dim"),
    ("rope_axial", {"dim": 36}, InputError, "divisible by 4"),
    ("rope_mixed", {"dim": 36}, InputError, "divisible by 4"),
    ("fope", {"dim": 36}, InputError, "divisible by 4"),
    ("fope", {"grid": (2, 3)}, InputError, "7 patches"),
    ("none", {"dim": 33}, InputError, "num_heads"),
    ("none", {"dim": 0}, InputError, "dim must be a positive"),
    ("none", {"depth": True}, InputError, "depth must be a positive"),
    ("none", {"num_heads": 1.0}, InputError, "num_heads must be a positive"),
    ("none", {"grid": (0, 4)}, InputError, "height"),
    ("none", {"grid": (4, -1)}, InputError, "width"),
    ("none", {"grid": (4.0, 4)}, InputError, "height"),
    ("none", {"grid": 14}, InputError, r"\(height, width\)"),
    ("none", {"grid": (1, 2, 3)}, InputError, r"\(height, width\)"),
]


@pytest.mark.parametrize(("name", "options", "error", "words"), REFUSALS)
def test_bad_sizes_and_options_are_refused_by_name(name, options, error, words):
    with pytest.raises(error, match=words) as caught:
        build_encoding(name, **SIZE | options)
    assert isinstance(caught.value, WefpeError)


@pytest.mark.parametrize("name", NAMES)
def test_bad_grids_layers_and_tokens_are_refused_at_a_call(name):
    encoding = small(name)
    q, k = tokens((5, 8))
    for grid in [(0, 8), (5, -8), (5.0, 8), 40, (5, 8, 1)]:
        for call in (
            lambda grid=grid: encoding.additive(grid),
            lambda grid=grid: encoding.bias(grid, 0),
            lambda grid=grid: encoding.rotate(q, k, grid, 0),
        ):
            with pytest.raises(InputError, match="grid"):
                call()
    for layer in (-1, DEPTH):
        with pytest.raises(InputError, match="layer"):
            encoding.rotate(q, k, (5, 8), layer)
        with pytest.raises(InputError, match="layer"):
            encoding.bias((5, 8), layer)
    with pytest.raises(InputError, match=re.escape("(2, 2, 40, 16)")):
        encoding.rotate(q, k, (5, 7), 0)  # 40 tokens are not 35
    with pytest.raises(InputError, match="head_dim"):
        encoding.rotate(q[..., : HEAD_DIM // 2], k, (5, 8), 0)
    with pytest.raises(InputError, match="prefix"):
        encoding.prefix(-1)


@pytest.mark.parametrize("name", NAMES)
def test_a_grid_may_be_any_pair_of_integers(name):
    encoding = small(name).eval()
    with torch.no_grad():
        want = answers(encoding, (5, 8))
        for grid in ([5, 8], torch.Size([5, 8]), tuple(np.array([5, 8]))):
            got = answers(encoding, grid)  # type: ignore[arg-type]
            assert all(torch.equal(got[key], want[key]) for key in want)


def test_a_hybrid_without_a_table_says_so_before_any_forward_pass():
    encoding = small("weierstrass_hybrid", table="pretrained")
    for call in (
        encoding.check_ready,
        lambda: encoding.additive((5, 8)),
        lambda: encoding.prefix(1),
    ):
        with pytest.raises(MissingTableError, match="load_table"):
            call()
    for name in NAMES:
        small(name).check_ready()


@pytest.mark.parametrize("name", NAMES)
def test_without_prefix_tokens_no_row_is_learned_for_them(name):
    options = {"convention": "wef_authors"} if name == "sincos2d" else {}
    rows = registry.token_options(name, 0) | options
    if name == "weierstrass_hybrid":
        rows |= {"table": "fresh"}
    encoding = build_encoding(name, dim=32, depth=2, num_heads=2, grid=(4, 4), **rows)
    prefix = encoding.prefix(1)
    assert prefix is None or not prefix.any()
    assert not [n for n, _ in encoding.named_parameters() if "class" in n or "tokens" in n]
