"""Runs as analyses see them: their configs, their logs, and which differ only in the seed."""

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

_MOST_CURVES = 28  # more cannot be told apart in a figure


@dataclass(frozen=True)
class TrainingLog:
    """The log of a run, or of one part of a run in two."""

    path: Path  # of the run
    part: str  # "" if the run has one part
    experiment: Experiment
    rows: Sequence[Mapping[str, Any]]


def check_runs(paths: Sequence[Path], *, finished: bool) -> dict[Path, Experiment]:
    """The configs of runs; a folder without a run, or without a finished one, is refused."""
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
    """Refuse two runs of one experiment and seed, which would be taken for two seeds."""
    seen: dict[str, Path] = {}
    for path, experiment in runs.items():
        other = seen.setdefault(config_hash(experiment), path)
        if other != path:
            raise InputError(
                f"{other} and {path} are runs of one experiment with the same seed "
                f"({experiment.seed}); name one of them"
            )


def read_trainings(paths: Sequence[Path]) -> list[TrainingLog]:
    """The logs of runs, which may still be going on."""
    trainings = []
    for path, experiment in check_runs(paths, finished=False).items():
        begun = [
            TrainingLog(path, part, experiment, training_rows(folder.log))
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
    texts = (
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in options.items()
    )
    typed = ",".join(texts)
    return f"{section.name}:{typed}" if typed else section.name


def label_runs(runs: Mapping[Path, Experiment]) -> dict[Path, str]:
    """A name for every run; runs that differ only in the seed share one.

    The encoding is the name, if the runs differ in nothing else but the seed. Otherwise the data
    set and the folder of the first run of a group are added to it.
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
        elif list(names.values()).count(names[key]) > 1:  # as with two backends
            label = f"{names[key]} ({folder})"
        else:
            label = names[key]
        labels |= dict.fromkeys(paths, label)
    return {path: labels[path] for path in runs}


def other_differences(experiments: Iterable[Experiment]) -> list[str]:
    """The keys with an effect in which experiments differ, besides the encoding and the seed.

    Runs compare encodings alone if there are none.
    """
    listed = list(experiments)
    keys = dict.fromkeys(key for other in listed[1:] for key in differing_keys(listed[0], other))
    return [key for key in keys if key != "seed" and not key.startswith("position_encoding.")]


def data_label(experiment: Experiment) -> str:
    """The data set of a run, with the name of the folder if it is a folder of images."""
    data = experiment.data
    is_folder = DATASETS[data.name].needs == "folder"
    return f"{data.name} {Path(data.path).name}" if is_folder else data.name


def runs_text(labelled: Iterable[tuple[str, Experiment]]) -> str:
    """For a caption: the data, the keys in which runs differ, and the seeds of each label."""
    seeds: dict[str, set[int]] = {}
    experiments = []
    for label, experiment in labelled:
        seeds.setdefault(label, set()).add(experiment.seed)
        experiments.append(experiment)
    data = " and ".join(dict.fromkeys(map(data_label, experiments)))
    keys = other_differences(experiments)
    warning = f" Besides encoding and seed the runs differ in {', '.join(keys)}." if keys else ""
    parts = (
        f"{label}: {'seed' if len(found) == 1 else 'seeds'} {', '.join(map(str, sorted(found)))}"
        for label, found in seeds.items()
    )
    return f"Data: {data}.{warning} {'; '.join(parts)}."


def group_trainings(trainings: Iterable[TrainingLog]) -> dict[str, list[TrainingLog]]:
    """Trainings by label: those in one list differ only in the seed."""
    trainings = list(trainings)
    labels = label_runs({each.path: each.experiment for each in trainings})
    groups: dict[str, list[TrainingLog]] = {}
    for each in trainings:
        suffix = f", {each.part}" if each.part else ""
        groups.setdefault(labels[each.path] + suffix, []).append(each)
    return groups
