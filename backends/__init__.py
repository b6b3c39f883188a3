"""Evaluators of the Weierstrass functions, one library each; see `wefpe_core.get_backend`.

`kernel` is the series both array backends run, written once. Importing this package
imports no backend.
"""
