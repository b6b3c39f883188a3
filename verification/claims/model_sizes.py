"""F42: parameters and operations that the paper prints for its second model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.claims.claim import Claim, Finding, judge_parts
from wefpe_core.errors import import_optional

if TYPE_CHECKING:
    from verification.bench.count_work import ModelWork

PRINTED_PARAMETERS, PRINTED_GIGA = 5.5, 1.6  # millions, 10^9
CLASSES, SIZE = 100, 224


def printed(work: ModelWork) -> tuple[float, float]:
    """Millions of parameters and 10^9 multiply-additions, as rounded as in the table."""
    return round(work.parameters / 1e6, 1), round(work.macs / 1e9, 1)


def second_model() -> ModelWork:
    """DHVT-Ti with WEF-PE for 224 pixels and 100 classes."""
    from training.models import build_dhvt
    from verification.bench.count_work import work_of

    model = build_dhvt(
        encoding="weierstrass",
        patch_size=16,
        image_size=SIZE,
        num_classes=CLASSES,
        encoding_options={"fidelity": "authors", "recipe": "dhvt"},
    )
    return work_of(model, 3, SIZE)


def first_model() -> ModelWork:
    """ViT-Ti/16 with WEF-PE, as in the authors' script."""
    from training.models import build_vit
    from verification.bench.count_work import work_of

    model = build_vit(
        "tiny",
        encoding="weierstrass",
        encoding_options={"fidelity": "authors"},
        num_classes=CLASSES,
        patch_norm=True,
    )
    return work_of(model, 3, SIZE)


def size_of_the_second_model() -> Finding:
    """F42: whose numbers are those of the row WEF-T."""
    import_optional("torch", purpose="the size of a model", extra="training")
    second, first = second_model(), first_model()
    figures = {
        "DHVT-Ti with WEF-PE, parameters": float(second.parameters),
        "DHVT-Ti with WEF-PE, multiply-additions": float(second.macs),
        "ViT-Ti with WEF-PE, parameters": float(first.parameters),
        "ViT-Ti with WEF-PE, multiply-additions": float(first.macs),
    }
    evidence = (
        f"DHVT-Ti with WEF-PE has {second.parameters:,} parameters and {second.macs / 1e9:.3f} "
        f"giga-MAC, ViT-Ti/16 with WEF-PE {first.parameters:,} and {first.macs / 1e9:.3f}"
    )
    found = printed(second)
    return Finding(
        judge_parts(found[0] == PRINTED_PARAMETERS, found[1] == PRINTED_GIGA), evidence, figures
    )


CLAIMS = (
    Claim(
        "F42",
        "L459, table 224_resolution_results",
        "DHVT-Ti with WEF-PE (WEF-T) has 5.5 million parameters, half a million less than DHVT-T "
        "without it, and takes 1.6 GFLOPs.",
        "An encoding adds parameters, it removes none. 5.5 million is the size of ViT-Ti/16 with "
        "WEF-PE; neither model takes 1.6 giga-MAC.",
        size_of_the_second_model,
    ),
)
