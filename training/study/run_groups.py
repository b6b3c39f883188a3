"""Runs as an analysis sees them: their configs, their logs, and which differ only in the seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.config import Experiment, config_hash, differing_keys, hash_without_seed
from training.data import DATASETS
from training.engine.finished_run import config_of_finished_run, config_of_run
from training.engine.run_folder import RunFolder, training_rows
from training.errors import RunError
from wefpe_core.errors import InputError

_MOST_CURVES = 28  # as many can be told apart


@dataclass(frozen=True)
class Training:
    """The log of a run, or of one part of a run in two."""

    path: Path  # of the run
    part: str  # "" if the run has one part
    experiment: Experiment
    rows: Sequence[Mapping[str, Any]]


def check_runs(paths: Sequence[Path], *, finished: bool) -> dict[Path, Experiment]:
    """The configs of some runs; what is no run, or not finished, is refused before any work."""
    unique = list(dict.fromkeys(Path(path) for path in paths))
    if not unique:
        raise InputError("no run is named")
    read = config_of_finished_run if finished else config_of_run
    runs = {path: read(path) for path in unique}
    refuse_repeated(runs)
    curves = len({hash_without_seed(experiment) for experiment in runs.values()})
    if curves > _MOST_CURVES:
        raise InputError(f"{curves} experiments are more than a figure can show ({_MOST_CURVES})")
    return runs


def refuse_repeated(runs: Mapping[Path, Experiment]) -> None:
    """Refuse two runs of one experiment and seed: they would pass for two seeds."""
    seen: dict[str, Path] = {}
    for path, experiment in runs.items():
        other = seen.setdefault(config_hash(experiment), path)
        if other != path:
            raise InputError(
                f"{other} and {path} are runs of one experiment with the same seed "
                f"({experiment.seed}); name one of them"
            )


def read_trainings(paths: Sequence[Path]) -> list[Training]:
    """The logs of some runs, which may still be going on."""
    trainings = []
    for path, experiment in check_runs(paths, finished=False).items():
        begun = [
            Training(path, part, experiment, training_rows(folder.log))
            for part, folder in RunFolder(path).trainings().items()
        ]
        shown = [each for each in begun if any(row["kind"] == "epoch" for row in each.rows)]
        if not shown:
            raise RunError(f"{path} has no finished epoch yet")
        trainings += shown
    return trainings


def encoding_label(experiment: Experiment) -> str:
    """The encoding of a run as users type it."""
    section = experiment.position_encoding
    options: dict[str, Any] = dict(section.options)
    if section.scale_match is not None:
        options["scale_match"] = section.scale_match
    typed = ",".join(f"{key}={_typed(value)}" for key, value in options.items())
    return f"{section.name}:{typed}" if typed else section.name


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def labels_of(runs: Mapping[Path, Experiment]) -> dict[Path, str]:
    """A name for every run; those that differ only in the seed share one.

    The encoding is the name, if the runs differ in nothing else but the seed. Otherwise the data
    set and the folder of the first run of a group stand behind it.
    """
    refuse_repeated(runs)
    groups: dict[str, list[Path]] = {}
    for path, experiment in runs.items():
        groups.setdefault(hash_without_seed(experiment), []).append(path)
    are_alike = not other_differences(runs.values())
    names = {key: encoding_label(runs[paths[0]]) for key, paths in groups.items()}
    folders = [paths[0].name for paths in groups.values()]
    labels: dict[Path, str] = {}
    for key, paths in groups.items():
        first = paths[0]
        folder = first.name if folders.count(first.name) == 1 else str(first)
        if not are_alike:
            label = f"{names[key]} ({data_label(runs[first])}, {folder})"
        elif list(names.values()).count(names[key]) > 1:  # as with another backend
            label = f"{names[key]} ({folder})"
        else:
            label = names[key]
        labels |= dict.fromkeys(paths, label)
    return {path: labels[path] for path in runs}


def other_differences(experiments: Iterable[Experiment]) -> list[str]:
    """The keys some experiments differ in, besides the encoding, the seed, and what has no effect.

    Encodings alone are compared by runs that differ in nothing else.
    """
    listed = list(experiments)
    keys = dict.fromkeys(key for other in listed[1:] for key in differing_keys(listed[0], other))
    return [key for key in keys if key != "seed" and not key.startswith("position_encoding.")]


def data_label(experiment: Experiment) -> str:
    """The data set of a run; of a folder of images the folder."""
    data = experiment.data
    is_folder = DATASETS[data.name].needs == "folder"
    return f"{data.name} {Path(data.path).name}" if is_folder else data.name


def runs_text(groups: Mapping[str, Sequence[Experiment]]) -> str:
    """The data, what the runs differ in, and the seeds behind each label, for a caption."""
    experiments = [experiment for group in groups.values() for experiment in group]
    data = " and ".join(dict.fromkeys(map(data_label, experiments)))
    keys = other_differences(experiments)
    warning = f" Besides encoding and seed the runs differ in {', '.join(keys)}." if keys else ""
    parts = []
    for label, group in groups.items():
        seeds = sorted({experiment.seed for experiment in group})
        word = "seed" if len(seeds) == 1 else "seeds"
        parts.append(f"{label}: {word} {', '.join(map(str, seeds))}")
    return f"Data: {data}.{warning} {'; '.join(parts)}."


def grouped(trainings: Iterable[Training]) -> dict[str, list[Training]]:
    """Trainings by label: those in one list differ only in the seed."""
    trainings = list(trainings)
    labels = labels_of({each.path: each.experiment for each in trainings})
    groups: dict[str, list[Training]] = {}
    for each in trainings:
        suffix = f", {each.part}" if each.part else ""
        groups.setdefault(labels[each.path] + suffix, []).append(each)
    return groups
