"""Requests to stop a training: the signals of a machine that is taken away, and a parent's end.

A cluster that preempts a job sends it a signal some time before it is killed. The request is noted
here; the trainer asks for it after every step, saves a checkpoint and raises `PreemptedError`,
which the command line turns into the exit code `PREEMPTED`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from accelerate import Accelerator

# SIGTERM is what clusters and machines that shut down send, SIGUSR1 is asked for by many scripts
# for Slurm, and SIGUSR2 is submitit's. Windows knows the first only.
SIGNALS = ("SIGTERM", "SIGUSR1", "SIGUSR2")
PARENT = "WEFPE_PARENT"  # environment: the process with which a run is to end
_SECONDS_BETWEEN_LOOKS = 0.5


class StopRequest:
    """Whether this run was asked to stop, and by what.

    Used as a context manager it notes signals; the handlers that were there before come back at
    the end. Only the main thread of a process gets signals, so elsewhere none are noted. A process
    whose environment names its parent (`PARENT`) is also asked to stop when the parent has ended.
    """

    def __init__(self) -> None:
        self.reason = ""  # "" as long as nobody asked
        self._handlers: dict[int, Any] = {}
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in SIGNALS:
                number = getattr(signal, name, None)
                if number is not None:
                    self._handlers[number] = signal.signal(number, self._note)
        parent = os.environ.get(PARENT, "")
        if parent.isdigit():
            threading.Thread(target=self._watch, args=(int(parent),), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.reason = self.reason or signal.Signals(number).name

    def _watch(self, parent: int) -> None:
        while os.getppid() == parent:
            if self._ended.wait(_SECONDS_BETWEEN_LOOKS):
                return
        self.reason = self.reason or "the end of the command that started it"


class Agreement:
    """What any process of a run says, all of them know.

    The processes exchange a few bits in the main memory of their machines, so that no GPU has to
    be waited for.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._group = None
        if accelerator.num_processes > 1:
            self._group = torch.distributed.new_group(backend="gloo")

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set in any process; all of them must call this."""
        if self._group is None:
            return list(flags)
        bits = torch.tensor(flags, dtype=torch.int32)
        torch.distributed.all_reduce(bits, torch.distributed.ReduceOp.MAX, group=self._group)
        return [bool(bit) for bit in bits.tolist()]
