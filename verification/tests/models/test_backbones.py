"""Encodings in each model of timm and transformers that `attach` knows: the table of
docs/backbones.md, and exactness. `nox -s timm` and `nox -s transformers` run this."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

LIBRARIES = [name for name in ("timm", "transformers") if find_spec(name) is not None]
if not LIBRARIES:
    pytest.skip(
        "neither timm nor transformers is installed; `nox -s timm` and `nox -s transformers` have "
        "them",
        allow_module_level=True,
    )

import torch.nn.functional as F

from training.encodings import available_encodings, build_encoding
from training.models import attach, detach, load_attached
from verification.tests.model_doubles import CEILINGS, Double, error_in_eps, images
from verification.tests.models.backbones import (
    CASES,
    CHECKS,
    PLACES,
    SQUARE,
    attached,
    documented,
    outcome,
    small,
    tokens_of,
)
from wefpe_core import InputError

HERE = {name: case for name, case in CASES.items() if case.library in LIBRARIES}
SERVED = [name for name, case in HERE.items() if not case.refusal]
OF_TRANSFORMERS = [name for name in SERVED if CASES[name].library == "transformers"]
needs_transformers = pytest.mark.skipif(
    "transformers" not in LIBRARIES, reason="for transformers; `nox -s transformers` has it"
)
needs_timm = pytest.mark.skipif("timm" not in LIBRARIES, reason="for timm; `nox -s timm` has it")


# PEFT 0.21 asks for a name that transformers 5.23 has changed.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is dep:FutureWarning")
@pytest.mark.parametrize(
    "column", [pytest.param(c, marks=[pytest.mark.slow] * (c == "compile")) for c in CHECKS]
)
@pytest.mark.parametrize("name", HERE)
def test_the_table_of_the_documentation(name, column):
    assert outcome(HERE[name], column) == documented()[name][column]


def test_the_table_has_every_model_and_check():
    table = documented()
    assert list(table) == list(CASES)
    assert all(list(cells) == list(CHECKS) for cells in table.values())


# --- Exactness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SERVED if CASES[name].table])
def test_the_table_of_the_model_is_worth_as_much_as_an_encoding(name):
    """To the bit: position is added once, in the same place, to the same tokens."""
    case = HERE[name]
    model = case.make()
    if getattr(model, "rope", None) is not None:  # EVA-02 has both, and `attach` takes both out
        model.rope = None
    assert case.table is not None
    table = model.state_dict()[case.table].clone()
    table = table[0] if table.ndim == 3 else table
    n = case.n_prefix
    rows = {"prefix_tokens": n} if n != 1 else {}
    learned: Any = build_encoding("learned", dim=16, depth=2, num_heads=2, grid=SQUARE, **rows)
    learned.load_table(table[n:], SQUARE, table[:n] if n else None)
    want = tokens_of(case, model, images(SQUARE))
    assert torch.equal(tokens_of(case, attach(model, learned), images(SQUARE)), want)


def recorded(case, encoding, monkeypatch, grid=SQUARE, **options):
    """What enters the attention function of each layer, and the output."""
    model = case.make(attn_implementation="eager", **options)
    module = sys.modules[type(model).__module__]
    real, calls = module.eager_attention_forward, []

    def recording(part, query, key, value, mask, **rest):
        calls.append((query, key, mask))
        return real(part, query, key, value, mask, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(module, "eager_attention_forward", recording)
        out = tokens_of(case, attach(model, encoding), images(grid))
    assert len(calls) == 2
    return calls, out


def unshuffled(case, tokens, n_patches):
    """Tokens (batch, heads, n, d) in the order of the image: ViTMAE draws another."""
    if "MAE" not in case.make.args[0]:
        return tokens
    torch.manual_seed(0)
    order = torch.rand(tokens.shape[0], n_patches).argsort(dim=1).argsort(dim=1) + 1
    index = F.pad(order, (1, 0))[:, None, :, None].expand_as(tokens)
    return tokens.gather(2, index)


@needs_transformers
@pytest.mark.parametrize("grid", [SQUARE, (2, 5)], ids=str)
@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_rotation_and_bias_reach_the_attention_call(name, grid, monkeypatch):
    case, n = CASES[name], grid[0] * grid[1]
    encoding = Double("rotate", "bias")
    plain, _ = recorded(case, Double(), monkeypatch, grid)
    calls, _ = recorded(case, encoding, monkeypatch, grid)
    (q, k, mask), (q_plain, k_plain, no_mask) = calls[0], plain[0]
    assert no_mask is None
    n_prefix = q.shape[-2] - n
    in_order = [unshuffled(case, each, n) for each in (q, k, q_plain, k_plain)]
    q, k, q_plain, k_plain = (each[..., n_prefix:, :] for each in in_order)
    want = encoding.rotate(q_plain, k_plain, grid, 0)
    assert torch.equal(q, want[0])
    assert torch.equal(k, want[1])
    prefix = [each[..., :n_prefix, :] for each in (calls[0][0], plain[0][0])]
    assert torch.equal(*prefix)  # class tokens and registers are not rotated
    of_patches = encoding.bias(grid, 0)
    assert of_patches is not None
    bias = F.pad(of_patches, (n_prefix, 0, n_prefix, 0))[None]
    if len(mask) > 1:  # by image, in its order
        mask = unshuffled(case, unshuffled(case, mask, n).transpose(2, 3), n).transpose(2, 3)
    assert torch.equal(mask, bias.expand_as(mask))


@needs_transformers
@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_eager_and_sdpa_behave_alike(name):
    case = CASES[name]
    eager, sdpa = (
        tokens_of(
            case, attach(case.make(attn_implementation=kind), Double(*PLACES)), images((2, 5))
        )
        for kind in ("eager", "sdpa")
    )
    assert error_in_eps(sdpa, eager) <= CEILINGS["logits"]


@needs_transformers
@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_what_is_registered_as_flash_attention_gets_rotated_queries(name, monkeypatch):
    """There is no flash attention on a CPU: sdpa is registered under its name."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    case = CASES[name]
    model = attached(case, small("rope_axial"))
    want = tokens_of(case, model, images(SQUARE))
    sdpa, used = ALL_ATTENTION_FUNCTIONS["sdpa"], []

    def flash(*arguments, **options):
        used.append(arguments[0])
        return sdpa(*arguments, **options)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "flash_attention_2", flash)
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    assert error_in_eps(tokens_of(case, model, images(SQUARE)), want) <= CEILINGS["logits"]
    assert len(used) == 2
    with pytest.raises(InputError, match="eager or sdpa, not flash_attention_2"):
        detach(model), attach(model, small("weierstrass_green"))


def swapped(weight, head_dim=8):
    """Rows of a projection with the pairs of columns and of rows exchanged in every head."""
    quarter = head_dim // 4
    order = torch.arange(head_dim).reshape(2, 2, quarter).flip(1).flatten()
    return weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


@pytest.mark.parametrize("name", [name for name in ("DINOv3", "timm DINOv3") if name in HERE])
@pytest.mark.parametrize("grid", [SQUARE, (2, 5)], ids=str)
def test_the_rotation_of_dinov3_can_be_put_back(name, grid):
    """Its own rotation is out, and ours with its coordinates computes the same.

    The first pairs of channels are for rows there and for columns here, so they are exchanged.
    """
    case = HERE[name]
    model = case.make()
    want = tokens_of(case, model, images(grid))
    options = {"coordinates": "centred", "layout": "half", "base": 100.0}
    rope = build_encoding("rope_axial", dim=16, depth=2, num_heads=2, grid=SQUARE, **options)
    attach(model, rope)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            layer = path.rpartition(".")[0]
            if layer.endswith(("q_proj", "k_proj")):
                parameter.copy_(swapped(parameter))
            elif layer.endswith("qkv"):
                n = 2 * len(parameter) // 3  # the rest are values
                parameter[:n] = swapped(parameter[:n])
    assert error_in_eps(tokens_of(case, model, images(grid)), want) <= CEILINGS["logits"]
    without = attach(case.make(), Double())
    assert error_in_eps(tokens_of(case, without, images(grid)), want) > 1e4


class TopRows(Double):
    """What another encoding says of the first rows of a taller grid."""

    def __init__(self, inner, whole):
        super().__init__()
        self.inner, self.whole = inner, whole

    def additive(self, grid):
        return self.inner.additive(self.whole)[: grid[0] * grid[1]]

    def rotate(self, q, k, grid, layer):
        more = (0, 0, 0, self.whole[0] * self.whole[1] - grid[0] * grid[1])
        rotated = self.inner.rotate(F.pad(q, more), F.pad(k, more), self.whole, layer)
        return tuple(each[..., : grid[0] * grid[1], :] for each in rotated)

    def bias(self, grid, layer):
        n = grid[0] * grid[1]
        return self.inner.bias(self.whole, layer)[:, :n, :n]

    def prefix(self, n):
        return self.inner.prefix(n)


@needs_transformers
def test_patches_that_mae_drops_leave_the_others_where_they_were():
    case, grid = CASES["ViTMAE, all patches"], (4, 2)
    x = images(grid)
    masked = attach(case.make(mask_ratio=0.5), Double(*PLACES))
    first = torch.arange(8.0).expand(2, -1)
    got = masked(x, noise=first).last_hidden_state
    top = attach(case.make(), TopRows(Double(*PLACES), grid))
    want = top(x[:, :, :8], noise=first[:, :4]).last_hidden_state
    assert error_in_eps(got, want) <= CEILINGS["logits"]
    # Another order of the same patches gives the same tokens in that order.
    order = torch.tensor([2, 0, 3, 1])
    noise = first.clone()
    noise[:, order] = torch.arange(4.0)
    again = masked(x, noise=noise).last_hidden_state
    assert error_in_eps(again[:, 1:], got[:, 1:][:, order]) <= CEILINGS["logits"]


@needs_transformers
def test_mae_draws_the_patches_that_it_would_draw_without_an_encoding():
    case = CASES["ViTMAE, all patches"]
    plain = case.make(mask_ratio=0.5)
    torch.manual_seed(3)
    want = plain(images(SQUARE)).ids_restore
    torch.manual_seed(3)
    assert torch.equal(attach(plain, Double())(images(SQUARE)).ids_restore, want)


# --- Models around the backbone, saving, refusals ------------------------------------------------


@needs_transformers
def test_the_vision_tower_of_a_pair_is_changed_and_the_other_is_not(tmp_path):
    import transformers

    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    text = {**sizes, "vocab_size": 50, "eos_token_id": 49, "bos_token_id": 48, "pad_token_id": 1}
    vision = {**sizes, "image_size": 12, "patch_size": 4}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    torch.manual_seed(4)
    model = transformers.CLIPModel(config).eval()
    given = {"input_ids": torch.tensor([[48, 5, 49]]), "pixel_values": images((2, 5))}
    words = model.get_text_features(input_ids=given["input_ids"]).pooler_output
    attach(model, small("weierstrass_green"))
    assert model.vision_model.encoding.name == "weierstrass_green"
    assert torch.equal(model.get_text_features(input_ids=given["input_ids"]).pooler_output, words)
    want = model(**given).image_embeds
    model.save_pretrained(tmp_path)
    loaded = load_attached(transformers.CLIPModel, tmp_path).eval()
    assert torch.equal(loaded(**given).image_embeds, want)


@needs_transformers
@pytest.mark.parametrize("name", ["DINOv2", "DINOv2 with registers", "DINOv3"])
def test_the_backbones_for_detectors_have_the_features_of_the_models(name):
    import transformers

    case = CASES[name]
    model = case.make()
    backbone_class = getattr(transformers, type(model).__name__.replace("Model", "Backbone"))
    backbone = backbone_class(model.config).eval()
    backbone.load_state_dict(model.state_dict())
    attach(model, Double(*PLACES))
    attach(backbone, Double(*PLACES))
    want = tokens_of(case, model, images((2, 5)))[:, -10:].mT.unflatten(-1, (2, 5))
    assert torch.equal(backbone(images((2, 5))).feature_maps[-1], want)


def small_vit(**options):
    return CASES["ViT"].make(**options)


@needs_transformers
@pytest.mark.parametrize("name", available_encodings())
def test_every_encoding_is_saved_and_loaded(name, tmp_path):
    options: dict[str, Any] = {"table": "fresh"} if name == "weierstrass_hybrid" else {}
    numbers: dict[str, Any] = {"dim": 16, "depth": 2, "num_heads": 2, "grid": SQUARE}
    model = attach(small_vit().to(torch.bfloat16), build_encoding(name, **numbers, **options))
    x = images((2, 5)).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    loaded = load_attached(type(model), tmp_path).eval()
    assert torch.equal(loaded(x).last_hidden_state, model(x).last_hidden_state)


@needs_transformers
def test_a_model_with_a_head_is_saved_with_its_encoding(tmp_path):
    import transformers

    model = transformers.ViTForImageClassification(small_vit().config).eval()
    own = model(images(SQUARE)).logits
    attach(model, small("weierstrass"))
    want = model(images(SQUARE)).logits
    model.save_pretrained(tmp_path / "whole", max_shard_size="4KB")
    model.vit.save_pretrained(tmp_path / "core")
    whole = load_attached(transformers.AutoModelForImageClassification, tmp_path / "whole").eval()
    assert torch.equal(whole(images(SQUARE)).logits, want)
    core = load_attached(transformers.AutoModel, tmp_path / "core").eval()
    hidden = model.vit(images(SQUARE)).last_hidden_state
    assert torch.equal(core(images(SQUARE)).last_hidden_state, hidden)
    detach(whole)
    assert torch.equal(whole(images(SQUARE)).logits, own)
    # After `detach` it is saved as transformers saves it.
    detach(model)
    assert not any("save_pretrained" in vars(each) for each in model.modules())
    model.save_pretrained(tmp_path / "plain")
    plain = transformers.ViTForImageClassification.from_pretrained(tmp_path / "plain").eval()
    assert torch.equal(plain(images(SQUARE)).logits, own)


@needs_transformers
def test_the_weights_in_the_folder_are_those_of_the_attached_model(tmp_path):
    """So a Trainer that resumes, which reads them into the attached model, misses nothing."""
    from safetensors.torch import load_file

    model = attach(small_vit(), small("weierstrass"))
    model.save_pretrained(tmp_path)
    fresh = attach(small_vit(), small("weierstrass", seed=9))
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    encoding = {
        name: tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
        if name.startswith("encoding.")
    }
    missing = fresh.load_state_dict(encoding, strict=False).missing_keys
    assert not any(name.startswith("encoding.") for name in missing)
    assert torch.equal(fresh.encoding.beta_pos, model.encoding.beta_pos)


@needs_transformers
def test_what_cannot_be_saved_or_loaded_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    from training.models.saved_attachment import ENCODING_FILE

    model = attach(small_vit(), Double("additive"))
    with pytest.raises(InputError, match="Double cannot be saved by name"):
        model.save_pretrained(tmp_path / "double")
    assert not (tmp_path / "double").exists()
    small_vit().save_pretrained(tmp_path / "plain")
    with pytest.raises(InputError, match="no encoding was saved"):
        load_attached(type(model), tmp_path / "plain")
    model = attach(small_vit(), small("weierstrass"))
    with pytest.raises(InputError, match="upload the model before its encoding"):
        model.save_pretrained(tmp_path, push_to_hub=True)
    model.save_pretrained(tmp_path)
    file = tmp_path / ENCODING_FILE
    save_file(load_file(file), file, metadata={"wefpe": json.dumps({"format": 2})})
    with pytest.raises(InputError, match="has the format 2, this version reads 1"):
        load_attached(type(model), tmp_path)
    detach(model)
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"was saved after .*, without encoding"):
        load_attached(type(model), tmp_path)


@needs_transformers
def test_models_that_cannot_be_served_are_refused_by_name():
    with pytest.raises(
        InputError, match="ModuleList has ViTModel, Dinov2Model: attach to one of them"
    ):
        attach(torch.nn.ModuleList([small_vit(), CASES["DINOv2"].make()]), Double())
    with pytest.raises(InputError, match="hidden_dropout_prob of Dinov2Model"):
        attach(CASES["DINOv2"].make(hidden_dropout_prob=0.1), Double())
    model = small_vit()
    del model.embeddings.patch_embeddings
    with pytest.raises(InputError, match=r"it has no embeddings\.patch_embeddings\.projection"):
        attach(model, Double())


@needs_timm
def test_models_of_timm_with_their_own_rotation_that_cannot_be_served():
    case = CASES["timm DINOv3"]
    with pytest.raises(InputError, match="patch_drop_rate"):
        attach(case.make(patch_drop_rate=0.5), Double())
    grouped = {"attn_type": "rope", "qkv_fused": False, "num_kv_heads": 1}
    model = case.make(**grouped)
    names = sorted(model.state_dict())
    with pytest.raises(InputError, match="keys of Eva have fewer heads"):
        attach(model, Double())
    assert sorted(model.state_dict()) == names
    assert model.rope is not None


@needs_timm
def test_the_rotation_of_timm_follows_the_model():
    """To another dtype and another image size while it is out."""
    case = CASES["timm EVA-02"]
    model, plain = case.make(dynamic_img_size=False), case.make(dynamic_img_size=False)
    attach(model, Double(*PLACES))
    for each in (model, plain):
        each.set_input_size(img_size=(20, 12))
        each.double()
    detach(model)
    x = images((5, 3)).double()
    assert torch.equal(model(x), plain(x))
