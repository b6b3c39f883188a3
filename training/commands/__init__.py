"""The commands of ``wefpe``: functions whose options are typer annotations.

A command returns its exit code, or None for 0, and raises a `wefpe_core.WefpeError` for what the
user can put right. The table of commands is `training.cli.COMMANDS`.
"""
