"""The command line ``wefpe``: one word for each command, its own help behind it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from wefpe_core.errors import did_you_mean


class Command(NamedTuple):
    module: str  # has a function main(arguments) -> exit code
    does: str


# Modules by name: importing this file imports none of them, and nothing depends on them.
COMMANDS = {
    "train": Command("training.commands.train", "train a model from a config, resume, test once"),
    "evaluate": Command("training.commands.evaluate", "evaluate a finished run again"),
    "compare": Command("training.commands.compare", "encodings x seeds with paired statistics"),
    "analyse": Command("training.commands.analyse", "figures of encodings and of runs"),
    "verify": Command("verification.__main__", "measure every backend against the oracle"),
    "claims": Command("verification.claims.__main__", "check the statements of the paper"),
    "encodings": Command("training.list_encodings", "list the positional encodings"),
    "backends": Command("training.list_backends", "list the backends and whether they work here"),
    "bench": Command("verification.bench", "time the backends beside their peers"),
    "bench-models": Command("training.bench_models", "time training steps with each encoding"),
    "bench-training": Command("training.bench_training", "time the engine beside a plain loop"),
}


def usage() -> str:
    lines = [f"  {name:<15} {command.does}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: wefpe COMMAND [options]", "", *lines, "", _HINT])


_HINT = "wefpe COMMAND --help lists the options of a command."


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] not in COMMANDS:
        end = did_you_mean(words[0], COMMANDS) or f"; there are {', '.join(COMMANDS)}"
        print(f"wefpe: unknown command {words[0]!r}{end}", file=sys.stderr)
        return 2
    try:
        command = import_module(COMMANDS[words[0]].module)
    except ModuleNotFoundError as error:
        extra = "pip install 'wefpe[training,report]' brings all that commands need"
        print(f"wefpe {words[0]}: {error.name} is not installed; {extra}", file=sys.stderr)
        return 2
    exit_code: int = command.main(words[1:])
    return exit_code


if __name__ == "__main__":  # for launchers: accelerate launch -m training.cli train ...
    raise SystemExit(main())
