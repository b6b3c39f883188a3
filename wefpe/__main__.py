"""The command ``wefpe``, also as ``python -m wefpe``: the door to `training.cli`."""

from __future__ import annotations

import sys

from wefpe_core.errors import MissingDependencyError, import_own


def main() -> int:
    """Run the command line; a foreign package called training is named, not run."""
    try:
        command_line = import_own("training.cli")
    except MissingDependencyError as error:
        print(f"wefpe: {error}", file=sys.stderr)
        return 2
    code: int = command_line.main()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
