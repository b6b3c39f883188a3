"""``python -m verification`` is ``wefpe verify``."""

import sys

from training.cli import main

raise SystemExit(main(["verify", *sys.argv[1:]]))
