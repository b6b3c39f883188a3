"""Whether what a run evaluates is verified here; asked before any work begins.

The key ``verification`` of the config says what becomes of a run without a valid receipt. This
package only reads receipts (`wefpe_core.receipts`). Who may measure, as ``wefpe train`` may, hands
in a function that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from backends.hardware import hardware_of
from training.config import Experiment
from training.encodings import AbstractEncoding
from training.encodings.encoding import working_dtype
from training.errors import RunError
from training.models.building import build_position_encoding
from wefpe_core.receipts import REFERENCE, Need, Standing, describe_worst, standing

# Measures what is needed of a backend on a device, and keeps the receipt.
Verifier = Callable[[str, str, Sequence[Need]], object]
# What a learned lattice needs besides the values: their derivatives.
_GRADIENTS = {"wp_and_prime": "gradient", "green": "green_gradient"}
_COMPLEX = {torch.float64: "complex128", torch.float32: "complex64"}


class Evaluator(NamedTuple):
    """A backend on a device, and what an encoding needs of it."""

    backend: str
    device: str
    needs: tuple[Need, ...]

    @property
    def title(self) -> str:
        functions = dict.fromkeys(need.function for need in self.needs)
        return f"{self.backend} on {self.device} ({', '.join(functions)})"

    def standing(self) -> Standing:
        hardware = hardware_of(self.backend, self.device)
        return standing(self.backend, self.device, self.needs, hardware=hardware)


def evaluators(encoding: nn.Module, device: str) -> list[Evaluator]:
    """Who evaluates the elliptic functions of an encoding that is trained on a device.

    A learned lattice is evaluated where the model is, a fixed one on the host in double precision.
    """
    found: dict[tuple[str, str], dict[Need, None]] = {}
    for module in encoding.modules():
        use = module.elliptic_use() if isinstance(module, AbstractEncoding) else None
        if use is None:
            continue
        place = device if use.is_learned else "cpu"
        dtype = _COMPLEX[working_dtype(torch.device(place))]
        functions = list(use.functions)
        if use.is_learned:
            functions += [_GRADIENTS[name] for name in use.functions if name in _GRADIENTS]
        form = "tensors" if use.is_learned else ""
        needs = found.setdefault((use.backend, place), {})
        needs.update((Need(function, dtype, form), None) for function in functions)
    return [Evaluator(*place, tuple(needs)) for place, needs in found.items()]


def evaluators_of(experiment: Experiment, device: str) -> list[Evaluator]:
    """The same for the encoding of a config."""
    with torch.random.fork_rng(devices=[]):
        return evaluators(build_position_encoding(experiment), device)


def consult(
    experiment: Experiment,
    device: str,
    *,
    verify: Verifier | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """What a run records about its verification, after the config's policy was carried out.

    Parameters
    ----------
    experiment
    device
        The type of the device the model is on, such as "cpu" or "cuda".
    verify
        Measures what has no valid receipt, if the config requires one.
    say
        Takes a line for the user.

    Raises
    ------
    RunError
        The config requires a receipt and there is none, or the backend failed. The message names
        the backend, the device and the functions.
    """
    found = evaluators_of(experiment, device)
    entries = [_entry(each, experiment.verification, verify, say) for each in found]
    states = {entry["status"] for entry in entries}
    order = ("failed", "never", "stale", "off", "verified", "reference")
    status = next((state for state in order if state in states), "not needed")
    return {"status": status, "policy": experiment.verification, "evaluators": entries}


def _entry(
    evaluator: Evaluator, policy: str, verify: Verifier | None, say: Callable[[str], None]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "backend": evaluator.backend,
        "device": evaluator.device,
        "dtype": evaluator.needs[0].dtype,
        "functions": list(dict.fromkeys(need.function for need in evaluator.needs)),
        "receipt": None,
        "worst_error": None,
    }
    if evaluator.backend == REFERENCE:
        return entry | {"status": "reference"}
    if policy == "off":
        return entry | {"status": "off"}
    found = evaluator.standing()
    for line in found.damaged:
        say(f"passed over: {line}")
    if policy == "require" and found.state in ("never", "stale") and verify is not None:
        say(f"{evaluator.title}: {found}; verifying it now")
        verify(evaluator.backend, evaluator.device, evaluator.needs)
        found = evaluator.standing()
    if found.state != "verified":
        problem = f"{evaluator.title}: {found}"
        if policy == "require":
            raise RunError(
                f"verification='require' and {problem}; `wefpe verify` measures it, and "
                "verification=warn trains all the same"
            )
        say(f"warning: {problem}; `wefpe verify --quick` measures it")
    return entry | _result(found)


def _result(found: Standing) -> dict[str, Any]:
    worst = found.worst
    known = found.receipt is not None and found.state != "stale" and worst is not None
    return {
        "status": found.state,
        "receipt": found.receipt.id if found.receipt is not None else None,
        "worst_error": worst.largest if known and worst is not None else None,
        "worst": describe_worst(worst) if known and worst is not None else None,
        "changed": list(found.changed),
    }


def describe(record: dict[str, Any] | None) -> str:
    """What a result recorded about its verification, in a line; results of older versions too."""
    if not record:
        return "not recorded"
    if record["status"] == "not needed":
        return "not needed: the encoding evaluates no elliptic function by a backend"
    parts = []
    for each in record["evaluators"]:
        text = f"{each['backend']} on {each['device']} in {each['dtype']}: {each['status']}"
        text += f", receipt {each['receipt']}" if each["receipt"] else ""
        text += f", {each['worst']}" if each.get("worst") else ""
        parts.append(text)
    return "; ".join(parts)
