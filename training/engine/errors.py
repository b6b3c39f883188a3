"""What can go wrong in a run."""

from __future__ import annotations

from wefpe_core.errors import WefpeError


class RunError(WefpeError, RuntimeError):
    """A run cannot be started, resumed or finished as asked."""


class NonFiniteError(RunError):
    """The loss or a weight became infinite or not a number."""


class DamagedCheckpointError(RunError):
    """The files of a checkpoint are not those that were written."""
