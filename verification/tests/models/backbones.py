"""What works with an encoding attached, for each model of timm and transformers: small models of
every kind, one check for each column of the table in docs/backbones.md, and that table.

`python -m verification.tests.models.backbones transformers` writes the rows of a library, or of
the models named; test_backbones.py runs each check and compares it with the cell.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.encodings import build_encoding
from training.models import attach, detach, load_attached
from verification.tests.model_doubles import CEILINGS, Double, error_in_eps, images
from wefpe_core import InputError

SQUARE = (3, 3)
PAGE = Path(__file__).parents[3] / "docs" / "backbones.md"
PLACES = ("additive", "prefix", "rotate", "bias")

# --- The models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A kind of model: how to make a small one, and what its outputs are."""

    library: str
    make: Callable[..., Any]
    tokens: Callable[[Any, Tensor], Tensor]
    projections: tuple[str, str] | None = ("q_proj", "k_proj")  # that LoRA adapts
    n_prefix: int = 1  # tokens that the model's own table has rows for
    table: str | None = None  # of the model, in its state dict
    refusal: str = ""  # a part of the message, if `attach` refuses


def _weights_that_matter(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def _of_transformers(config: str, model: str, **options: Any) -> nn.Module:
    import transformers

    sizes = {
        "image_size": 12,
        "patch_size": 4,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    torch.manual_seed(4)
    made = getattr(transformers, model)(getattr(transformers, config)(**{**sizes, **options}))
    return _weights_that_matter(made)


def _of_timm(module: str, name: str, **options: Any) -> nn.Module:
    from training.models.timm_import import import_timm

    sizes = {"img_size": 12, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    torch.manual_seed(4)
    models = getattr(import_timm().models, module)
    options = {"dynamic_img_size": True, **options}
    return _weights_that_matter(getattr(models, name)(**{**sizes, "num_classes": 5, **options}))


def _hidden_state(model: Any, x: Tensor) -> Tensor:
    return model(x).last_hidden_state


def _called(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


def _hugging(config: str, model: str, table: str | None, **rest: Any) -> Case:
    options = rest.pop("options", {})
    make = partial(_of_transformers, config, model, **options)
    return Case("transformers", make, _hidden_state, table=table, **rest)


def _timm(module: str, name: str, table: str | None = "pos_embed", **rest: Any) -> Case:
    make = partial(_of_timm, module, name, **rest.pop("options", {}))
    return Case("timm", make, _called, table=table, **rest)


_EMBEDDING = "embeddings.position_embedding.weight"
_PARAMETER = "embeddings.position_embeddings"
_SWIGLU = {"use_rot_pos_emb": True, "swiglu_mlp": True}

CASES: dict[str, Case] = {
    "ViT": _hugging("ViTConfig", "ViTModel", _PARAMETER),
    "DeiT": _hugging("DeiTConfig", "DeiTModel", _PARAMETER, n_prefix=2),
    "DINOv2": _hugging("Dinov2Config", "Dinov2Model", _PARAMETER),
    "DINOv2 with registers": _hugging(
        "Dinov2WithRegistersConfig", "Dinov2WithRegistersModel", _PARAMETER
    ),
    "DINOv3": _hugging(
        "DINOv3ViTConfig", "DINOv3ViTModel", None, options={"num_register_tokens": 4}
    ),
    "CLIP vision": _hugging("CLIPVisionConfig", "CLIPVisionModel", _EMBEDDING),
    "SigLIP vision": _hugging("SiglipVisionConfig", "SiglipVisionModel", _EMBEDDING, n_prefix=0),
    "ViTMAE, all patches": _hugging(
        "ViTMAEConfig", "ViTMAEModel", _PARAMETER, options={"mask_ratio": 0.0}
    ),
    "VideoMAE": _hugging("VideoMAEConfig", "VideoMAEModel", None, refusal="not time"),
    "Siglip2 vision": _hugging(
        "Siglip2VisionConfig", "Siglip2VisionModel", None, refusal="different grids"
    ),
    "timm ViT": _timm("vision_transformer", "VisionTransformer", projections=None),
    "timm DINOv2 with registers": _timm(
        "vision_transformer",
        "VisionTransformer",
        projections=None,
        n_prefix=0,
        options={"reg_tokens": 4, "init_values": 1.0, "no_embed_class": True},
    ),
    "timm EVA-02": _timm("eva", "Eva", options={**_SWIGLU, "qkv_fused": False}),
    "timm DINOv3": _timm(
        "eva",
        "Eva",
        None,
        projections=None,
        options={
            "use_rot_pos_emb": True,
            "use_abs_pos_emb": False,
            "rope_type": "dinov3",
            "rope_temperature": 100.0,
            "rope_rotate_half": True,
            "num_reg_tokens": 4,
            "qkv_bias": False,
            "init_values": 1.0,
        },
    ),
    "timm ViT, RoPE mixed": _timm(
        "eva",
        "Eva",
        None,
        projections=None,
        options={
            "use_rot_pos_emb": True,
            "use_abs_pos_emb": False,
            "rope_type": "mixed",
            "attn_type": "rope",
        },
    ),
}


def attached(case: Case, encoding: Any = None) -> Any:
    return attach(case.make(), Double(*PLACES) if encoding is None else encoding)


def tokens_of(case: Case, model: Any, x: Tensor) -> Tensor:
    torch.manual_seed(0)  # ViTMAE draws the order of its patches
    return case.tokens(model, x)


def close(got: Tensor, want: Tensor) -> None:
    assert error_in_eps(got, want) <= CEILINGS["logits"]


# --- One check for each column -------------------------------------------------------------------


def check_attach(case: Case) -> None:
    """The encoding acts in every place, and `detach` gives the model back to the bit."""
    model = case.make()
    want, names = tokens_of(case, model, images(SQUARE)), sorted(model.state_dict())
    seen = []
    for places in (*((place,) for place in PLACES), PLACES):
        attach(model, Double(*places))
        seen.append(tokens_of(case, model, images(SQUARE)))
        detach(model)
        assert torch.equal(tokens_of(case, model, images(SQUARE)), want)
    assert sorted(model.state_dict()) == names
    for index, one in enumerate(seen):
        # Without prefix tokens the rows for them are nobody's.
        is_same = PLACES[index] == "prefix" if index < len(PLACES) else False
        if not (is_same and _has_no_prefix(case)):
            assert not any(torch.equal(one, other) for other in (*seen[:index], want))


def _has_no_prefix(case: Case) -> bool:
    return case.n_prefix == 0 and case.library == "transformers"


def check_non_square(case: Case) -> None:
    """Rectangles of any size, and each has its own grid."""
    model = attached(case)
    a, b = (tokens_of(case, model, images(grid)) for grid in ((2, 6), (6, 2)))
    assert a.shape == b.shape
    # The same pixels as other grids of as many patches: only the grid tells them apart.
    patches = images((2, 6)).unfold(2, 4, 4).unfold(3, 4, 4).flatten(2, 3)  # (b, c, n, 4, 4)
    other = patches.unflatten(2, (6, 2)).permute(0, 1, 2, 4, 3, 5).reshape(2, 3, 24, 8)
    rope = attached(case, small("rope_axial"))
    assert not torch.equal(tokens_of(case, rope, images((2, 6))), tokens_of(case, rope, other))


def check_compile(case: Case) -> None:
    """One graph without a break computes what the model computes."""
    model = attached(case, small("weierstrass"))
    x = images(SQUARE)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    try:
        close(tokens_of(case, compiled, x), tokens_of(case, model, x))
    finally:
        torch.compiler.reset()


def check_checkpointing(case: Case) -> None:
    """The gradients are those without checkpointing, for two grids in one backward pass."""

    def gradients(enable: bool) -> list[Tensor]:
        model = attached(case, small("rope_mixed")).train()
        if enable and case.library == "timm":
            model.set_grad_checkpointing()
        elif enable:
            model.activation_checkpointing_enable({"use_reentrant": False})
        losses = [tokens_of(case, model, images(g)).square().sum() for g in ((2, 6), (4, 3))]
        torch.stack(losses).sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    for got, want in zip(gradients(True), gradients(False), strict=True):
        close(got, want)


def check_lora(case: Case) -> None:
    """Adapters of the queries and keys are rotated: merged, the model computes the same."""
    model = attached(case, small("rope_axial"))
    before = tokens_of(case, model, images(SQUARE))
    model = _with_low_rank(model, case.projections or ("qkv",), case.library)
    got = tokens_of(case, model, images(SQUARE))
    assert error_in_eps(got, before) > 1e4  # the adapters do something
    merged = attached(case, small("rope_axial"))
    with torch.no_grad():
        for name, parameter in merged.named_parameters():
            delta = _delta(parameter) if _is_adapted(name, case.projections or ("qkv",)) else 0.0
            parameter.add_(delta)
    close(got, tokens_of(case, merged, images(SQUARE)))


def _is_adapted(name: str, projections: tuple[str, ...]) -> bool:
    return name.rpartition(".")[2] == "weight" and name.split(".")[-2] in projections


def _low_rank(weight: Tensor) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    sizes = (2, weight.shape[1]), (weight.shape[0], 2)
    a, b = (0.3 * torch.randn(size, generator=generator) for size in sizes)
    return a, b


def _delta(weight: Tensor) -> Tensor:
    a, b = _low_rank(weight)
    return b @ a


class LowRank(nn.Module):
    """A linear layer and a product of two matrices beside it, as PEFT's LoRA computes them."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.a, self.b = (nn.Parameter(each) for each in _low_rank(linear.weight))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + (x @ self.a.T) @ self.b.T


def _with_low_rank(model: Any, projections: tuple[str, ...], library: str) -> Any:
    """PEFT's LoRA; for timm, beside which PEFT does not load, the same layers made here."""
    if library == "transformers":
        import peft

        wanted: dict[str, Any] = {"r": 2, "lora_alpha": 2, "target_modules": list(projections)}
        wrapped: Any = peft.get_peft_model(model, peft.LoraConfig(**wanted)).eval()
        with torch.no_grad():
            for module in wrapped.modules():
                if hasattr(module, "lora_A") and module.lora_A:
                    a, b = _low_rank(module.base_layer.weight)
                    module.lora_A["default"].weight.copy_(a)
                    module.lora_B["default"].weight.copy_(b)
        return wrapped
    for block in model.blocks:
        for name in projections:
            setattr(block.attn, name, LowRank(getattr(block.attn, name)))
    return model


def check_save(case: Case) -> None:
    """Saved and loaded, the model has its encoding, and its own table after `detach`."""
    own = tokens_of(case, case.make(), images(SQUARE))
    for name in ("weierstrass", "rope_axial"):  # with tensors of its own, and without
        model = attached(case, small(name))
        want = tokens_of(case, model, images(SQUARE))
        if case.library == "timm":  # its way is the state dict
            fresh = attached(case, small(name, seed=7))
            fresh.load_state_dict(copy.deepcopy(model.state_dict()))
        else:
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                with pytest.raises(ValueError, match=r"wefpe\.load_attached"):
                    type(model).from_pretrained(folder)
                fresh = load_attached(type(model), folder)
        assert torch.equal(tokens_of(case, fresh.eval(), images(SQUARE)), want)
        detach(fresh)
        assert torch.equal(tokens_of(case, fresh, images(SQUARE)), own)


def small(name: str, seed: int = 6) -> Any:
    torch.manual_seed(seed)
    encoding = build_encoding(name, dim=16, depth=2, num_heads=2, grid=SQUARE)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return encoding


CHECKS: dict[str, Callable[[Case], None]] = {
    "attach": check_attach,
    "non-square": check_non_square,
    "compile": check_compile,
    "checkpointing": check_checkpointing,
    "LoRA": check_lora,
    "save/load": check_save,
}

# --- The table -----------------------------------------------------------------------------------


def outcome(case: Case, column: str) -> str:
    """The cell of a table: "yes" if the check passes, "refused" if `attach` refuses the model."""
    if not case.refusal:
        CHECKS[column](case)
        return "yes"
    with pytest.raises(InputError, match=case.refusal):
        attach(case.make(), Double())
    return "refused"


def documented() -> dict[str, dict[str, str]]:
    """The cells of the table in the documentation, by model and column."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    header = table[0][1:]
    return {cells[0]: dict(zip(header, cells[1:], strict=True)) for cells in table[2:]}


def write(asked: list[str]) -> None:
    """Run every check for some models, or all of a library, and put their rows into the page."""
    for name, case in CASES.items():
        if name in asked or case.library in asked:
            cells = {column: outcome(case, column) for column in CHECKS}
            _write_table(documented() | {name: cells})


def _write_table(table: dict[str, dict[str, str]]) -> None:
    rows = [["model", *CHECKS], ["---"] * (len(CHECKS) + 1)]
    rows += [[name, *table[name].values()] for name in CASES if name in table]
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- table -->\n")
    after = rest.partition("<!-- end -->")[2]
    PAGE.write_text(f"{before}<!-- table -->\n{lines}\n<!-- end -->{after}", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])
