"""The command line ``wefpe``: its table of commands, its messages, and what it imports."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import typer

from training import cli
from wefpe_core import WefpeError, __version__


def test_the_command_line_knows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert name in text
        assert cli.main([name, "--help"]) == 0
        assert "usage:" in capsys.readouterr().out.lower()
    assert cli.main([]) == 2
    capsys.readouterr()
    assert cli.main(["prove"]) == 2
    streams = capsys.readouterr()
    assert "'prove'" in streams.err
    assert "verify" in streams.err


def test_a_command_without_its_libraries_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "train", cli.Command("no_such_library:train", ""))
    assert cli.main(["train", "digits"]) == 2
    message = capsys.readouterr().err
    assert "no_such_library" in message
    assert "wefpe[training" in message


def test_backends_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["backends"]) == 0
    text = capsys.readouterr().out
    for name in ("mpmath", "numpy", "torch", "flint"):
        assert name in text


def test_encodings_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="the torch extra is not installed")
    from training.encodings import available_encodings, describe_encoding

    assert cli.main(["encodings"]) == 0
    text = capsys.readouterr().out
    for name in available_encodings():
        assert name in text
    assert cli.main(["encodings", "weierstrass"]) == 0
    text = capsys.readouterr().out
    for item in describe_encoding("weierstrass").options:
        assert item.name in text
    assert cli.main(["encodings", "rotor"]) == 2
    error = capsys.readouterr().err
    assert "'rotor'" in error
    assert "rope_axial" in error


def test_help_has_a_short_form(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-h"], ["verify", "-h"], ["analyse", "decay", "-h"]):
        assert cli.main(words) == 0
        assert "Usage" in capsys.readouterr().out


def test_every_command_and_the_commands_of_groups_have_one_style_of_help() -> None:
    """A sentence about what it does, and about every option; no boxes and no markup."""
    waiting: list[tuple[str, Any]] = [("wefpe", typer.main.get_command(cli.app))]
    seen: list[str] = []
    while waiting:
        name, command = waiting.pop()
        seen.append(name)
        context = typer.Context(command, info_name=name)
        text = command.get_help(context)
        assert text.startswith("Usage: "), name
        assert not set("╭│╰") & set(text), name
        assert (command.help or "").split("\n\n")[0].rstrip().endswith("."), name
        for each in command.params:
            if each.param_type_name == "option":
                assert (each.help or "").rstrip().endswith("."), f"{name} {each.opts[0]}"
                for kind in ("<str>", "<path>", "<int", "<float", "<list"):  # Python's words
                    assert f"{each.opts[-1]} {kind}" not in text, f"{name} {each.opts[0]}"
        names: list[str] = getattr(command, "list_commands", lambda _: [])(context)
        waiting += [(f"{name} {each}", command.get_command(context, each)) for each in names]
    assert len(seen) > 25


def test_the_shell_completes_commands() -> None:
    environment = os.environ | {"_WEFPE_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": "wefpe ver", "COMP_CWORD": "1"}
    program = "from training.cli import main; raise SystemExit(main([]))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["verify"]


def test_a_module_of_a_command_is_no_program() -> None:
    command = [sys.executable, "-m", "training.commands.train", "digits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "training.cli train" in done.stderr


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"wefpe {__version__}\n"


def test_a_module_of_the_project_that_is_missing_is_no_missing_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "train", cli.Command("training.no_such_module:train", ""))
    with pytest.raises(ModuleNotFoundError):
        cli.main(["train", "digits"])


@pytest.mark.parametrize(
    ("words", "libraries"),
    [
        (["--help"], ["torch", "numpy", "pandas", "matplotlib"]),
        (["train", "--help"], ["torch", "pandas", "matplotlib"]),
        (["train", "--list"], ["torch", "pandas", "matplotlib"]),
        (["train", "digits", "--show"], ["torch", "pandas", "matplotlib"]),
        (["analyse", "--help"], ["torch", "pandas", "matplotlib"]),
        (["verify", "--help"], ["torch", "pandas", "matplotlib"]),
    ],
    ids=" ".join,
)
def test_a_command_imports_no_more_than_it_needs(words: list[str], libraries: list[str]) -> None:
    code = (
        "import sys; from training.cli import main; code = main(sys.argv[1:]); "
        f"print([m for m in {libraries} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["bench", "modles"], "unknown command 'modles'; did you mean models?"),
        (["bench", "foo"], "unknown command 'foo'; there are backends, models, training, data"),
        (["docs", "readmee"], "unknown command 'readmee'; did you mean readme?"),
        (["analyse", "decy"], "unknown command 'decy'; did you mean decay?"),
        (["train", "digits", "--epochs", "3"], "without dashes, as in training.epochs=3"),
        (["train", "digits", "epochs=3"], "did you mean training.epochs?"),
        (["explore", "--tau", "1"], "Im(tau) must be positive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_slip_of_the_pen_is_one_line_that_says_what_was_meant(words, said, capsys) -> None:
    pytest.importorskip("pydantic", reason="configs need it")
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_what_is_missing_stands_below_the_table_of_backends(monkeypatch, capsys) -> None:
    from training.commands import backends

    def absent(name: str) -> Any:
        raise WefpeError(f"{name} needs a library; run: pip install something")

    monkeypatch.setattr(backends, "get_backend", absent)
    assert cli.main(["backends"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "torch needs a library; run: pip install something" in lines
