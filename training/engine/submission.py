"""Runs as jobs of a cluster, submitted through submitit: one job a run, requeued when preempted.

A job that is told to make room (submitit's signal, by default SIGUSR2, also some time before the
limit of the job) saves a checkpoint, puts itself back into the queue and goes on from there. After
SIGTERM it saves a checkpoint and ends: Slurm sends it to a job that is cancelled, and requeues one
that it preempts by itself.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from training.errors import PREEMPTED, PreemptedError, RunError
from training.parsing import toml_value
from wefpe_core.errors import InputError

Cluster = Literal["slurm", "local"]  # local: processes of this machine, for tests of what is above
_MOST_TIMEOUTS = 1000  # how often a job may be requeued because its time was over


@dataclass(frozen=True)
class TrainingJob:
    """Trains the config in a file in a folder, from the checkpoint that is there.

    With several tasks (``tasks_per_node``) each is one process of the same training.
    """

    config: str
    folder: str

    def __call__(self) -> None:
        import submitit

        from training.commands.train import verify_now
        from training.config import load_config
        from training.engine.run import run

        environment = submitit.JobEnvironment()
        if environment.num_tasks > 1:
            distributed = submitit.helpers.TorchDistributedEnvironment()
            distributed.export(set_cuda_visible_devices=False, overwrite=True)
        try:
            run(load_config(self.config), Path(self.folder), resume=True, verify=verify_now)
        except PreemptedError as stopped:
            print(stopped, flush=True)
            asks_to_requeue = f"SIG{environment.USR_SIG}"
            if stopped.reason == asks_to_requeue:
                # submitit's handler, which the run had replaced, is back. In the first task it
                # requeues the job and does not return.
                signal.raise_signal(signal.Signals[asks_to_requeue])
            # Not an error, which would be recorded as the outcome of a job that may start again.
            raise SystemExit(PREEMPTED) from None

    def checkpoint(self) -> Any:
        """What submitit puts into the queue: the same job, since the run has its checkpoints."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def check_cluster(cluster: Cluster) -> None:
    """Raise `RunError` unless jobs can be submitted from here."""
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError as error:
        raise RunError("--slurm needs submitit: pip install 'wefpe[slurm]'") from error
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise RunError("--slurm: there is no sbatch here; submit from a machine of the cluster")


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Options of the jobs from ``partition=gpu``: values as in TOML, text also without quotes."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals or not value:
            raise InputError(f"an option of jobs is name=value, as in partition=gpu, got {text!r}")
        options[name] = toml_value(value)
    return options


def submit(
    jobs: Mapping[str, TrainingJob],
    logs: Path,
    options: Mapping[str, Any],
    cluster: Cluster = "slurm",
) -> dict[str, Any]:
    """Submit jobs by name; returns submitit's object for each, under the same name.

    Parameters
    ----------
    jobs
        By name, which the cluster shows.
    logs
        The folder for what jobs print, and for submitit's own files, one subfolder a job.
    options
        Of every job, by submitit's names: timeout_min, gpus_per_node, cpus_per_task, mem_gb, nodes
        and tasks_per_node, and those of Slurm, as partition or account.
    cluster
        Where to.

    Raises
    ------
    RunError
        There is no cluster, or it refused a job.
    InputError
        submitit does not know an option, or not with this value.
    """
    check_cluster(cluster)
    import submitit

    limits = {f"{name}_max_num_timeout": _MOST_TIMEOUTS for name in ("slurm", "local")}
    executor = submitit.AutoExecutor(logs / "%j", cluster=cluster, **limits)
    shared = executor._typed_parameters()
    named = {key if key in shared else f"slurm_{key}": each for key, each in options.items()}
    submitted = {}
    for name, job in jobs.items():
        try:
            executor.update_parameters(
                # After a preemption by Slurm itself the job comes back by this flag.
                **{"slurm_additional_parameters": {"requeue": True}, **named, "name": name}
            )
        except (NameError, ValueError, AssertionError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"--slurm-option: {reason}") from error
        try:
            submitted[name] = executor.submit(job)
        except submitit.core.utils.FailedJobError as error:
            reason = " ".join(str(error).split())
            raise RunError(f"the cluster refused the job {name!r}: {reason}") from error
    return submitted


def failure(job: Any) -> str | None:
    """Why a job that is over has failed, in a line; None if it has not."""
    error = job.exception()
    if error is None:
        return None
    said = [line for line in str(error).splitlines() if line.strip(" -")]
    # After the traceback submitit says where the logs are.
    raised = [line for line in said if not line.startswith((" ", "You can check"))]
    return f"{raised[-1].strip()} (all of it: {job.paths.stderr})"
