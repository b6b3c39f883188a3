"""Configs and options of encodings are judged without torch; what needs it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

pytest.importorskip("pydantic", reason="the training extra is not installed")

ROOT = Path(__file__).parents[3]
REPORT = "\nimport sys; print('torch' in sys.modules)"
# As if torch were not installed.
WITHOUT_TORCH = """
    import sys

    class Hidden:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "torch":
                raise ModuleNotFoundError("No module named 'torch'", name="torch")

    sys.meta_path.insert(0, Hidden())
    import importlib.util
    real = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "torch" else real(name, *rest)
"""


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        "import training.config",
        "from training.config import load_config; load_config('cifar100_cpu', ['seed=3'])",
        (
            "import training.config as c\n"
            "for name in c.available_configs(): c.config_hash(c.load_config(name))"
        ),
        "import training.encodings",
        (
            "from training.encodings import EncodingOptions, available_encodings, option\n"
            "assert len(available_encodings()) == 19"
        ),
        (
            "from training.config import ConfigError, load_config\n"
            "try: load_config('digits', ['position_encoding.options.alpha_u=-1'])\n"
            "except ConfigError as error: assert 'above 0' in str(error)"
        ),
    ],
)
def test_torch_is_not_imported(statement):
    assert run_python(statement + REPORT) == "False"


@pytest.mark.parametrize(
    "statement", ["from training.encodings import AbstractEncoding", "import training.models"]
)
def test_the_check_for_torch_can_fail(statement):
    pytest.importorskip("torch")
    assert run_python(statement + REPORT) == "True"


@pytest.mark.parametrize(
    ("use", "named"),
    [
        ("encodings.AbstractEncoding", "training.encodings.AbstractEncoding"),
        (
            "encodings.build_encoding('learned', dim=8, depth=1, num_heads=1, grid=(2, 2))",
            "the encoding 'learned'",
        ),
        ("encodings.describe_encoding('none')", "the encoding 'none'"),
    ],
)
def test_without_torch_what_needs_it_names_the_extra(use, named):
    code = dedent(WITHOUT_TORCH) + dedent(
        f"""
        from training import encodings
        from training.config import load_config
        from wefpe_core import WefpeError
        load_config("digits")
        assert "weierstrass" in encodings.available_encodings()
        try:
            {use}
        except WefpeError as error:
            assert isinstance(error, ImportError)
            print(error)
        """
    )
    message = run_python(code)
    assert named in message
    assert "pip install 'wefpe[encodings]'" in message
