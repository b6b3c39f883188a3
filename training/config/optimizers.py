"""The optimisers that a config can name; importing this imports no torch."""

from __future__ import annotations

from wefpe_core.errors import did_you_mean

TIMM = "timm:"  # before the name of an optimiser of timm
# Those of torch.optim that take matrices and vectors alike and need no closure.
TORCH_OPTIMIZERS = {
    name.lower(): name
    for name in (
        "AdamW",
        "Adam",
        "SGD",
        "RMSprop",
        "NAdam",
        "RAdam",
        "Adagrad",
        "Adadelta",
        "Adamax",
        "ASGD",
        "Adafactor",
    )
}


def name_problem(name: str) -> str | None:
    """What is wrong with the name of an optimiser; timm's are looked up when a run starts."""
    if name in TORCH_OPTIMIZERS or (name.startswith(TIMM) and name != TIMM):
        return None
    if name == "muon":
        return "torch's takes matrices only; say timm:muon, which has another rule for the rest"
    known = [*TORCH_OPTIMIZERS, f"{TIMM}lamb", f"{TIMM}lion", f"{TIMM}muon"]
    listed = f"there are {', '.join(TORCH_OPTIMIZERS)}, and with timm {TIMM}NAME"
    return f"there is no such optimiser; {listed}{did_you_mean(name, known)}"
