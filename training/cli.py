"""The command line ``wefpe``: one application, whose commands are imported when they are called.

Every command parses its options and fails in the same way: a mistake that the user can put right
is one line on standard error and exit code 2, without a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from typer.core import TyperGroup

from training.errors import PREEMPTED, PreemptedError
from wefpe_core import __version__
from wefpe_core.errors import WefpeError, did_you_mean, foreign_package, install_command

INTERRUPTED = 130  # the exit code that typer gives to Ctrl-C
USER_ERROR = 2
_PACKAGES = ("wefpe_core", "backends", "training", "verification")


class Command(NamedTuple):
    target: str  # "module:attribute", a function with typer's annotations or a typer.Typer
    summary: str


COMMANDS = {
    "train": Command(
        "training.commands.train:train", "Train a model from a config, or resume it; test it once."
    ),
    "evaluate": Command("training.commands.evaluate:evaluate", "Evaluate a finished run again."),
    "score": Command(
        "training.commands.score:score", "Score published weights with their own head."
    ),
    "compare": Command(
        "training.commands.compare:compare", "Train encodings x seeds, with paired statistics."
    ),
    "analyse": Command(
        "training.commands.analyse:app", "Draw figures of encodings and of finished runs."
    ),
    "publish": Command(
        "training.commands.publish:publish", "Copy the rows and configs of a comparison."
    ),
    "results": Command(
        "training.commands.results:results", "Make tables and figures from published rows."
    ),
    "explore": Command(
        "training.commands.explore:explore", "Write a page to play with a lattice and its wp."
    ),
    "encodings": Command(
        "training.commands.encodings:encodings", "List the positional encodings and their options."
    ),
    "backends": Command(
        "training.commands.backends:backends",
        "List the backends, how they work and stand here.",
    ),
    "verify": Command(
        "training.commands.verify:verify",
        "Measure every backend or a finished run.",
    ),
    "gpu": Command(
        "training.commands.gpu:app", "Run the code for GPUs on a device that is emulated."
    ),
    "claims": Command("training.commands.claims:claims", "Check the statements of the paper."),
    "bench": Command(
        "training.commands.bench:app", "Time the backends, the models and the training engine."
    ),
    "mutants": Command(
        "verification.mutation.mutants:mutants", "Damage the kernel; does the verifier notice?"
    ),
    "docs": Command(
        "training.commands.docs:app", "Write generated tables and figures into README.md and docs."
    ),
}


class NamedCommands(TyperGroup):
    """A group that says which commands it has to whoever asks for another."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args[0] not in known:
            end = did_you_mean(args[0], known) or f"; there are {', '.join(known)}"
            ctx.fail(f"unknown command {args[0]!r}{end}")
        return super().resolve_command(ctx, args)


class LazyGroup(NamedCommands):
    """Commands that are imported when they are called: those of `COMMANDS`."""

    def summaries(self) -> dict[str, str]:
        """The names of the commands and a line about each; this imports none of them."""
        return {name: command.summary for name, command in COMMANDS.items()}

    def load(self, name: str) -> Any:
        """A function with typer's annotations, or a typer.Typer."""
        module, _, attribute = COMMANDS[name].target.partition(":")
        return getattr(import_module(module), attribute)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.summaries())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.summaries():
            return None
        found = self.load(cmd_name)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
            found.command(cmd_name)(function)
        return typer.main.get_command(found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries().items()))


_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    context_settings=_HELP, cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"wefpe {__version__}")
        raise typer.Exit


@app.callback(epilog="wefpe COMMAND --help lists the options of a command.")
def wefpe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Weierstrass elliptic functions of verified precision, and vision transformers with them."""


def _is_ours(package: str) -> bool:
    """Whether a package lies beside this one, so that it is not another of the same name."""
    spec = find_spec(package)
    here = Path(__file__).parents[1]
    return spec is not None and spec.origin is not None and Path(spec.origin).parents[1] == here


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``wefpe`` with these words, those of the process by default; the exit code.

    It is 0, or 2 for a mistake that the user can put right, or 75 for a training that was asked to
    stop and can be resumed, or what the command returns.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    program = f"wefpe {words[0]}" if words and words[0] in COMMANDS else "wefpe"
    try:
        code = app(words or ["--help"], prog_name="wefpe", standalone_mode=False)
    except PreemptedError as error:
        errors.print(f"{program}: {error}")
        return PREEMPTED
    except (WefpeError, OSError) as error:  # OSError: a folder that cannot be written, a full disk
        errors.print(f"{program}: {error}")
        return USER_ERROR
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package in _PACKAGES and not _is_ours(package):
            errors.print(f"{program}: {foreign_package(package)}")
            return USER_ERROR
        if not isinstance(error, ModuleNotFoundError) or package in ("", *_PACKAGES):
            raise
        install = install_command(package, "training,report")
        errors.print(f"{program}: {package} is not installed; all that commands need: {install}")
        return USER_ERROR
    except MemoryError as error:
        errors.print(f"{program}: not enough memory: {error}")
        return USER_ERROR
    except Exception as error:
        # What typer raises for a mistake on the command line has a message and an exit code.
        if not hasattr(error, "exit_code") or not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        if message.startswith("No such option: --") and words[0] in ("train", "compare"):
            message += "; keys of the config are words without dashes, as in training.epochs=3"
        # A group that is called without a command gives its whole help as the message.
        errors.print(message if message.startswith("Usage") else f"{program}: {message}")
        return int(error.exit_code)
    if not words:
        return USER_ERROR
    if code == INTERRUPTED:
        errors.print(f"{program}: interrupted")
    return code if isinstance(code, int) else 0


if __name__ == "__main__":  # for launchers: accelerate launch -m training.cli train ...
    raise SystemExit(main())
