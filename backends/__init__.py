"""Evaluators of the Weierstrass functions, one for each library (`wefpe_core.get_backend`).

NumPy and torch run the same series, `kernel`. Importing this package imports no backend.
"""
