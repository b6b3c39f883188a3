r"""Rigorous bounds on what a truncated series leaves out, for wp and wp'.

Pure functions of numbers, on the standard library alone. Three series have bounds:

- the lattice sum over a box or a disk (`lattice_sum`),
- the csc² + Lambert series in powers of the nome (`q_series`),
- the Laurent series at the origin (`laurent`).

Conventions. `omega1`, `omega3` are the HALF-periods of a *reduced* lattice
(``|Re tau| <= 1/2``, ``|tau| >= 1``, rounding allowed for); anything else raises
`LatticeError`. `z` is in the same units, and so are the bounds. Points where a bound does
not apply, and z that is NaN or infinite, get ``math.inf``: still a true bound.

Rounding. The functions compute in double precision and round outwards: ``z`` over the
radius of validity is enlarged by ``2**-43`` before use, the result by ``2**-36`` and by
``2**-900`` in units of the period, so a returned number is a bound and not merely close to
one. They bound truncation only; whoever sums the series in floating point adds rounding.
"""

from wefpe_core.bounds.lattice_sum import disk_paired_bound as disk_paired_bound
from wefpe_core.bounds.lattice_sum import disk_unpaired_bound as disk_unpaired_bound
from wefpe_core.bounds.lattice_sum import paired_sum_bound as paired_sum_bound
from wefpe_core.bounds.lattice_sum import signed_sum_bound as signed_sum_bound
from wefpe_core.bounds.lattice_sum import unpaired_sum_bound as unpaired_sum_bound
from wefpe_core.bounds.laurent import laurent_bound as laurent_bound
from wefpe_core.bounds.normalised_lattice import TruncationBound as TruncationBound
from wefpe_core.bounds.q_series import QSeriesTerms as QSeriesTerms
from wefpe_core.bounds.q_series import q_series_bound as q_series_bound
from wefpe_core.bounds.q_series import q_series_terms_needed as q_series_terms_needed
