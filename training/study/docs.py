"""Copy what docs/analyses.md shows from written analyses; pictures in the size of a screen."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

# Pages and pictures by the names they have in the documentation.
PAGES = {"decay": "decay/decay.md", "attention-init": "attention-init/attention-init.md"}
PICTURES = {
    "surface": "surface/surface.png",
    "structure": "structure/structure.png",
    "decay": "decay/decay_compared.png",
    "decay-weierstrass": "decay/decay_1_weierstrass.png",
    "attention-init": "attention-init/statistics.png",
    "relative": "relative/relative.png",
}
_WIDTH, _COLOURS = 1000, 255


def copy_for_docs(analyses: Path, docs: Path) -> None:
    from PIL import Image

    docs.mkdir(parents=True, exist_ok=True)
    for name, source in PAGES.items():
        shutil.copyfile(analyses / source, docs / f"{name}.md")
    for name, source in PICTURES.items():
        with Image.open(analyses / source) as picture:
            height = round(picture.height * _WIDTH / picture.width)
            small = picture.convert("RGB").resize((_WIDTH, height), Image.Resampling.LANCZOS)
        # Few colours: a tenth of the size, and nobody sees it.
        small.quantize(_COLOURS).save(docs / f"{name}.png", optimize=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.study.docs", description=__doc__)
    parser.add_argument(
        "analyses", type=Path, help="where wefpe analyse wrote them, one folder each"
    )
    parser.add_argument("docs", type=Path, help="the folder of the documentation")
    options = parser.parse_args(arguments)
    try:
        copy_for_docs(options.analyses, options.docs)
    except OSError as error:
        print(f"python -m training.study.docs: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
