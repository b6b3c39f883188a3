"""Tables and pictures of a published study, from its rows alone.

    python -m training.comparison.results docs/results

Every folder in it is a part of the study. One with a ``runs.csv``, as ``wefpe compare`` writes it,
gets a table ``PART.md`` and a picture ``PART.png`` beside it; so does one with a ``scores.csv`` of
``wefpe analyse resolution``. The encoding of the first row is the reference. The tables of
``contrasts.toml``, if there is one, go to ``NAME.md``. Where configs lie beside the rows,
``starts.md`` says how strong their position tables are before training, and ``learned.md``, of runs
in a ``learned.csv``, from where to where the numbers of WEF-PE went.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from pathlib import Path
from typing import TypeVar

from training.comparison.arms import parse_arm
from training.comparison.contrasts import contrasts_markdown, read_contrasts
from training.comparison.figure import draw_comparison
from training.comparison.learned import LEARNED, Learned, learned_markdown, read_learned
from training.comparison.sizes import draw_sizes, scores_of_csv, sizes_markdown
from training.comparison.starts import start_of, starts_markdown
from training.comparison.statistics import Accuracies, summarise
from training.comparison.tables import RUNS, accuracies_of_csv, summary_markdown
from training.configuration import Experiment, hash_without_seed, load_config
from training.engine.run_folder import write_whole
from wefpe_core.errors import InputError

Rows = TypeVar("Rows", bound=Sized)

Place = tuple[str, str]  # a part of the study and an encoding in it

SIZES, CONTRASTS = "scores.csv", "contrasts.toml"


def write_results(folder: Path, output: Path) -> list[Path]:
    """Write what the rows in `folder` say into `output`; returns the tables written."""
    written: list[Path] = []

    def write(name: str, text: str) -> None:
        write_whole(output / f"{name}.md", text)
        written.append(output / f"{name}.md")

    parts: dict[str, Accuracies] = {}
    configs: dict[Place, Experiment] = {}
    for path in sorted(folder.glob(f"*/{RUNS}")):
        name = path.parent.name
        parts[name] = accuracies = _read(path, accuracies_of_csv)
        reference = next(iter(accuracies))
        summaries = summarise(accuracies, reference)
        write(name, summary_markdown(summaries, reference))
        draw_comparison(output / f"{name}.png", summaries, accuracies, reference)
        for label in accuracies:
            config = path.parent / "configs" / f"{parse_arm(label).folder_name}.toml"
            if config.exists():
                configs[name, label] = load_config(str(config))
    for path in sorted(folder.glob(f"*/{SIZES}")):
        found = _read(path, scores_of_csv)
        write(path.parent.name, sizes_markdown(found))
        draw_sizes(output / f"{path.parent.name}.png", found)
    if not written:
        raise InputError(f"no folder with {RUNS} or {SIZES} in {folder}")
    if (folder / CONTRASTS).exists():
        for name, contrasts in read_contrasts(folder / CONTRASTS).items():
            write(name, contrasts_markdown(contrasts, parts))
    names = names_of(configs)
    named = {names[place]: config for place, config in configs.items()}
    starts = [start_of(name, config) for name, config in named.items()]
    if any(starts):
        write("starts", starts_markdown([start for start in starts if start is not None]))
    learned = _all_learned(folder, names)
    if learned:
        write("learned", learned_markdown(learned, named))
    return written


def names_of(configs: Mapping[Place, Experiment]) -> dict[Place, str]:
    """What to call an encoding: its label, and the part if that of another is trained otherwise."""
    kinds: dict[str, set[str]] = {}
    for (_, label), config in configs.items():
        kinds.setdefault(label, set()).add(hash_without_seed(config))
    return {
        (part, label): label if len(kinds[label]) == 1 else f"{label} ({part})"
        for part, label in configs
    }


def _all_learned(folder: Path, names: Mapping[Place, str]) -> list[Learned]:
    """What the runs of all parts learned, under those names; a run in several parts once."""
    learned: dict[tuple[str, int, int], Learned] = {}
    for path in sorted(folder.glob(f"*/{LEARNED}")):
        for run in read_learned(path):
            place = (path.parent.name, run.label)
            if place not in names:
                raise InputError(
                    f"{path} has {run.label!r}, of which there is no row with a config"
                )
            run = run._replace(label=names[place])
            learned.setdefault((run.label, run.seed, run.part), run)
    return list(learned.values())


def _read(path: Path, read: Callable[[str], Rows]) -> Rows:
    try:
        rows = read(path.read_text(encoding="utf-8"))
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if not rows:
        raise InputError(f"{path} has no rows")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training.comparison.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the folders with rows are")
    options = parser.parse_args(arguments)
    try:
        for path in write_results(options.folder, options.folder):
            print(path)
    except InputError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
