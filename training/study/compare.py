"""Train every encoding with every seed, each run in its own process; finished runs are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import IO, Any

import torch
from rich.console import Console

from training.config import ConfigError, Experiment, change_config, dump_toml
from training.config.errors import Problem
from training.data import DATASETS, open_data
from training.encodings.registry import parse_encoding_label
from training.engine.preemption import PARENT, SIGNALS
from training.engine.run import check_folder, check_machine
from training.engine.run_folder import RunFolder, same_config, write_whole
from training.engine.submission import Cluster, TrainingJob, failure, submit
from training.errors import PREEMPTED, PreemptedError, RunError
from training.metrics import metric_of
from training.models.building import build_position_encoding, check_before_run
from training.study.comparison_page import PICTURE, changed_keys, comparison_page
from training.study.statistics import (
    RUNS,
    Summary,
    draw_comparison,
    runs_csv,
    summarise,
)
from wefpe_core.errors import InputError

_SECONDS_TO_SAVE = 60.0  # for runs that are stopped together
_SECONDS_BETWEEN_LOOKS: dict[Cluster, float] = {"slurm": 30.0, "local": 0.2}

# --- Arms ----------------------------------------------------------------------------------

_SECTION = "position_encoding"
# The keys of an arm that are keys of the config and not options of the encoding. ``positions``
# says what becomes of the learned positions of pretrained weights.
_OF_THE_CONFIG = {
    "scale_match": f"{_SECTION}.scale_match",
    "backend": f"{_SECTION}.backend",
    "positions": "model.positions",
}


@dataclass(frozen=True)
class Arm:
    """One encoding of a comparison, with options as in ``weierstrass:fidelity=authors,g3=0.4``.

    Options in the config for the same encoding stay; another encoding starts from its defaults.
    """

    label: str  # as typed
    overrides: tuple[str, ...]  # the keys that it changes in the config

    @property
    def folder_name(self) -> str:
        kept = (c if c.isalnum() or c in "._-=" else "_" for c in self.label)
        return "".join(kept)


def parse_arm(text: str) -> Arm:
    """An arm from ``name`` or ``name:option=value,option=value``."""
    label = parse_encoding_label(text)
    overrides = [f"{_SECTION}.name={label.name}"]
    for key, value in label.assignments.items():
        overrides.append(f"{_OF_THE_CONFIG.get(key, f'{_SECTION}.options.{key}')}={value}")
    return Arm(label.text, tuple(overrides))


def is_of_an_arm(key: str) -> bool:
    """Whether arms of a comparison may differ in this key of the config."""
    return key.startswith(f"{_SECTION}.") or key in _OF_THE_CONFIG.values()


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The arms in order; what is wrong with their names is said at once, also one named twice."""
    arms, wrong = [], []
    for text in texts:
        try:
            arms.append(parse_arm(text))
        except InputError as error:
            wrong.append(str(error))
    if wrong:
        first, *others = wrong
        lines = "\n  - ".join(("several encodings are wrong:", *wrong))
        raise InputError(lines if others else first)
    labels = [arm.label for arm in arms]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"the encoding {label!r} is named twice")
    return arms


def control_arms(base: Experiment) -> list[Arm]:
    """Encodings that share a property with WEF-PE, which it has to beat as well.

    Its table starts at a scale many times that of a learned one, which alone may matter, so there
    are learned and sincos2d at that scale. It is also a smooth function of the place with few
    parameters, so there are the same layers on the coordinates z and z^2 in place of wp' and wp.
    """
    reference = change_config(base, parse_arm("weierstrass").overrides)
    encoding = build_position_encoding(reference)
    table = encoding.additive(encoding.size.grid)
    assert table is not None
    scale = f"{float(table.detach().square().mean().sqrt()):.3g}"
    texts = [f"{name}:scale_match={scale}" for name in ("learned", "sincos2d")]
    return parse_arms([*texts, "weierstrass:function=powers"])


# --- Runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    arm: Arm
    seed: int
    experiment: Experiment
    folder: RunFolder

    @property
    def title(self) -> str:
        return f"{self.arm.label}, seed {self.seed}"


@dataclass
class Sweep:
    """Arms times seeds on one config."""

    base: Experiment
    arms: Sequence[Arm]
    seeds: Sequence[int]
    path: Path
    reference: str = ""  # the label of an arm; the first by default
    planned: list[PlannedRun] = field(init=False)

    def __post_init__(self) -> None:
        self.metric = DATASETS[self.base.data.name].metric
        self.reference = self.reference or self.arms[0].label
        if self.reference not in [arm.label for arm in self.arms]:
            labels = ", ".join(arm.label for arm in self.arms)
            raise InputError(f"the reference {self.reference!r} is not among {labels}")
        configs = _configs(self.base, self.arms)
        # Seeds are in the outer loop, so that a comparison that is stopped has whole pairs.
        self.planned = [
            PlannedRun(
                arm,
                seed,
                change_config(configs[arm.label], [f"seed={seed}"]),
                RunFolder(self.path / f"{arm.folder_name}-seed{seed}"),
            )
            for seed in self.seeds
            for arm in self.arms
        ]
        if RunFolder(self.path).config.exists():
            raise RunError(f"{self.path} is the folder of a single run; choose another --folder")
        for each in self.planned:
            self._check_folder(each)

    def _check_folder(self, planned: PlannedRun) -> None:
        done = planned.folder.read_result()
        if done is not None and not same_config(planned.folder, planned.experiment):
            raise RunError(
                f"{planned.folder.path} holds a finished run of another config; "
                "give the comparison another --folder"
            )

    def unfinished(self) -> list[PlannedRun]:
        return [each for each in self.planned if each.folder.read_result() is None]

    def check(self, *, here: bool = True) -> None:
        """Raise the first mistake that would end every run, or every run of an arm, at its start.

        The data are opened once: runs differ in encoding and seed. `here` says that the runs will
        train on this machine, so that it must have what they need.
        """
        waiting = self.unfinished()
        for each in {each.arm.label: each for each in waiting}.values():
            check_before_run(each.experiment)
        for each in waiting[:1]:
            if here:
                check_machine(each.experiment)
            open_data(each.experiment.data, each.experiment.seed)
        for each in waiting:
            check_folder(each.folder, each.experiment, resume=True)

    def train(self, *, jobs: int, console: Console, devices: Sequence[str] = ()) -> None:
        """Train the unfinished runs, `jobs` at a time; a failure does not stop the others.

        Parameters
        ----------
        jobs
            How many runs train at a time.
        console
            Where the outcome of each run is told.
        devices
            The GPUs, by the names that CUDA_VISIBLE_DEVICES takes. Each run sees one of them, and
            no two runs the same as long as there are as many GPUs as jobs.
        """
        waiting = self._begin(console)
        places: SimpleQueue[str] = SimpleQueue()
        for number in range(jobs):
            places.put(devices[number % len(devices)] if devices else "")
        children = Children()

        def train_one(planned: PlannedRun) -> str | None:
            place = places.get()
            try:
                return _train_apart(planned, jobs, place, children)
            finally:
                places.put(place)

        with _stopped_by_signals(), ThreadPoolExecutor(jobs) as pool:
            try:
                running = {pool.submit(train_one, each): each for each in waiting}
                for future in as_completed(running):
                    self._tell(console, running[future], future.result())
            except BaseException:  # Ctrl-C, a signal: no others begin, and those under way stop
                pool.shutdown(wait=False, cancel_futures=True)
                children.stop()
                raise

    def train_on_cluster(
        self, *, options: Mapping[str, Any], console: Console, cluster: Cluster = "slurm"
    ) -> None:
        """Submit every unfinished run as a job of its own, and wait for them.

        Jobs that were submitted go on if this process is stopped.
        """
        import submitit

        waiting = self._begin(console)
        planned = {f"{self.path.name}-{each.folder.path.name}": each for each in waiting}
        trained = {
            name: TrainingJob(str(_write_config(each).absolute()), str(each.folder.path.absolute()))
            for name, each in planned.items()
        }
        submitted = submit(trained, (self.path / "jobs").absolute(), options, cluster)
        names = {job.job_id: name for name, job in submitted.items()}
        console.print(f"jobs {', '.join(names)}; what they print is in {self.path / 'jobs'}")
        wait = _SECONDS_BETWEEN_LOOKS[cluster]
        for job in submitit.helpers.as_completed(list(submitted.values()), poll_frequency=wait):
            self._tell(console, planned[names[job.job_id]], failure(job))

    def _begin(self, console: Console) -> list[PlannedRun]:
        waiting = self.unfinished()
        self._told = len(self.planned) - len(waiting)
        console.print(f"{len(self.planned)} runs, {self._told} finished already", highlight=False)
        return waiting

    def _tell(self, console: Console, planned: PlannedRun, problem: str | None) -> None:
        self._told += 1
        outcome = _outcome(planned, problem)
        console.print(f"{self._told}/{len(self.planned)} {outcome}", highlight=False)

    def finished_rows(self) -> list[dict[str, Any]]:
        """The results of the finished runs, each under the label of its arm."""
        results = ((each, each.folder.read_result()) for each in self.planned)
        return [found | {"encoding": each.arm.label} for each, found in results if found]

    def write_tables(self) -> list[Summary]:
        """Write CSV, Markdown and picture of the finished runs."""
        rows = self.finished_rows()
        accuracies: dict[str, dict[int, float]] = {}
        for row in rows:
            found = accuracies.setdefault(row["encoding"], {})
            found[row["seed"]] = row[f"test_{self.metric.name}"]
        if self.reference not in accuracies:
            raise RunError(f"no run of the reference {self.reference!r} is finished in {self.path}")
        summaries = summarise(accuracies, self.reference)
        write_whole(self.path / RUNS, runs_csv(rows))
        keys = {k: v for k, v in changed_keys(self.base).items() if not is_of_an_arm(k)}
        page = comparison_page(summaries, self.reference, rows, self.base, keys, self.metric)
        write_whole(self.path / "comparison.md", page)
        draw_comparison(self.path / PICTURE, summaries, accuracies, self.reference, self.metric)
        return summaries


def _configs(base: Experiment, arms: Sequence[Arm]) -> dict[str, Experiment]:
    """The config of each arm; what is wrong with them is said together, before the first run."""
    configs = {}
    problems: dict[str, Problem] = {}  # by text: what is wrong with every arm is said once
    for arm in arms:
        try:
            configs[arm.label] = change_config(base, arm.overrides)
        except ConfigError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise ConfigError(problems.values())
    return configs


def _outcome(planned: PlannedRun, problem: str | None) -> str:
    if problem is not None:
        return f"{planned.title}: FAILED: {problem}"
    result = planned.folder.read_result() or {}
    metric = metric_of(result, "test_")
    return f"{planned.title}: test {metric.title} {result[f'test_{metric.name}']:.2%}"


# --- Processes -----------------------------------------------------------------------------


class Children:
    """The processes under way, so that they can be stopped together."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_open = True

    def run(self, command: Sequence[str], output: IO[str], environment: Mapping[str, str]) -> int:
        """Run a command to its end; returns its exit code."""
        with self._lock:
            if not self._is_open:
                return PREEMPTED
            child = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
            self._running.add(child)
        try:
            return child.wait()
        finally:
            self._running.discard(child)

    def stop(self) -> None:
        """Let every process save a checkpoint and end; kill those that take too long."""
        with self._lock:
            self._is_open = False
            children = list(self._running)
        for child in children:
            child.terminate()
        deadline = time.monotonic() + _SECONDS_TO_SAVE
        for child in children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise `PreemptedError` in the main thread when a signal asks to stop."""

    def stop(number: int, frame: FrameType | None) -> None:
        reason = signal.Signals(number).name
        raise PreemptedError(
            f"stopped by {reason}, and the runs under way with it; the same command goes on", reason
        )

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        handlers = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def visible_gpus() -> list[str]:
    """The GPUs of this machine that runs may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    if named is None:
        return [str(number) for number in range(count)]
    return [name.strip() for name in named.split(",")][:count]


def _write_config(planned: PlannedRun) -> Path:
    path = planned.folder.path
    config = path.parent / "configs" / f"{path.name}.toml"
    write_whole(config, dump_toml(planned.experiment))
    return config


def _train_apart(planned: PlannedRun, jobs: int, device: str, children: Children) -> str | None:
    """Run ``wefpe train`` in its own process; it returns None, or the last line of a failure.

    `device` is the GPU that it sees, or "" for what this process sees.
    """
    path = planned.folder.path
    command = [sys.executable, "-m", "training.cli", "train", str(_write_config(planned))]
    command += ["--folder", str(path), "--resume"]
    if jobs > 1 and not planned.experiment.training.threads:
        command.append("training.threads=1")  # more threads would slow the other jobs
    # A run that is left alone, because this process was killed, stops by itself.
    environment = os.environ | {PARENT: str(os.getpid())}
    if device:
        environment["CUDA_VISIBLE_DEVICES"] = device
    output = path.parent / "output" / f"{path.name}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", encoding="utf-8") as file:
        code = children.run(command, file, environment)
    if code == 0:
        return None
    said = output.read_text(encoding="utf-8").strip().splitlines()
    return f"exit code {code}: {said[-1] if said else 'nothing was said'} (all of it: {output})"
