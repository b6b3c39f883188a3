"""``python -m verification.claims`` is ``wefpe claims``."""

import sys

from training.cli import main

raise SystemExit(main(["claims", *sys.argv[1:]]))
