"""A tour in sixty lines: evaluate, check, differentiate, encode, analyse."""

import mpmath
import numpy as np
import torch

from training.encodings import build_encoding
from training.study import pair_statistics as statistics
from training.study.decay_measures import interaction_matrix
from wefpe_core import Lattice, get_backend

# %% A lattice is two half-periods. This one is square, with invariants g2 = 1 and g3 = 0.
lattice = Lattice.lemniscatic(g2=1.0)
print(f"half-periods {lattice.omega1:.10f} and {lattice.omega3:.10f}")

# %% The reference evaluator: as many digits as you like, and it says so if it cannot reach them.
reference = get_backend("mpmath", dps=30)
z = mpmath.mpc("0.4", "0.3")
p, dp = reference.wp_and_prime(z, lattice)
print("wp(0.4+0.3i) =", mpmath.nstr(p, 25))

# %% It satisfies its differential equation to the last digit.
g2, g3 = reference.invariants(lattice)
with mpmath.workdps(30):
    print("wp'^2 - 4 wp^3 + g2 wp + g3 =", mpmath.nstr(dp**2 - 4 * p**3 + g2 * p + g3, 3))

# %% The NumPy backend: a million points at once, within 4 eps of the reference everywhere.
points = np.random.default_rng(0).uniform(-2, 2, (1_000_000, 2)).view(complex)[:, 0]
values = get_backend("numpy").wp(points, lattice)
want = complex(reference.wp(mpmath.mpc(points[0]), lattice))
print(
    f"{len(values):,} values, the first within {abs(values[0] - want) / abs(want):.1e} of mpmath's"
)

# %% The torch backend: gradients, also in the lattice itself.
omega3 = torch.tensor(1.8j, dtype=torch.complex128, requires_grad=True)
here = torch.tensor([0.4 + 0.3j], dtype=torch.complex128)
get_backend("torch").wp(here, Lattice(1.8, omega3)).abs().sum().backward()
print(f"d|wp|/d omega3 = {omega3.grad:.6f}")

# %% A positional encoding made of it, for a ViT-Ti/16 at 224 x 224, and any other grid.
torch.manual_seed(0)
encoding = build_encoding("weierstrass", dim=192, depth=12, num_heads=3, grid=(14, 14))
print("table for 14 x 14 patches:", tuple(encoding.additive((14, 14)).shape))
print("table for  9 x 16 patches:", tuple(encoding.additive((9, 16)).shape))

# %% Does similarity decay with distance, as the paper says? Over all pairs, beside a control.
pairs = statistics.patch_pairs((14, 14))
distance = np.sqrt(pairs.squared)
for name in ("weierstrass", "sincos2d", "learned"):
    encoding = build_encoding(name, dim=192, depth=12, num_heads=3, grid=(14, 14))
    similarity = interaction_matrix(encoding, (14, 14))
    each = similarity[pairs.first, pairs.second]
    means = statistics.mean_by_distance(similarity, pairs)
    all_pairs, ranks = statistics.pearson(distance, each), statistics.spearman(distance, each)
    by_distance = statistics.pearson(pairs.distances, means)
    print(f"{name:>12}: all pairs {all_pairs:+.2f}, means per distance {by_distance:+.2f}", end="")
    print(f", ranks {ranks:+.2f}")

# %% Means per distance hide how much pairs differ: `wefpe analyse decay` shows both, with nulls.
