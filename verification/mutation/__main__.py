"""``python -m verification.mutation`` runs the mutants."""

import typer

from verification.mutation.run import mutants

if __name__ == "__main__":
    typer.run(mutants)
