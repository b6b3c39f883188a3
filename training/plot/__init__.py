"""Pictures from Python: every function returns a matplotlib figure, and no window is opened.

>>> from wefpe import Lattice, plot
>>> figure = plot.domain_colouring("wp", Lattice(1.0, 0.3 + 0.9j))
>>> figure.savefig("wp.png")  # doctest: +SKIP

Functions and period cells need NumPy and matplotlib; tables, biases and attention need torch, from
which the encoding or the model comes. `wefpe analyse` and `wefpe encodings --draw` use these.
"""

from __future__ import annotations

from training.plot.encodings import attention as attention
from training.plot.encodings import encoding_bias as encoding_bias
from training.plot.encodings import encoding_rotation as encoding_rotation
from training.plot.encodings import encoding_table as encoding_table
from training.plot.functions import domain_colouring as domain_colouring
from training.plot.functions import period_cell as period_cell
from training.plot.functions import surface as surface
