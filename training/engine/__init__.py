"""The engine: one training loop, its optimiser, schedule, checkpoints, logs and evaluation."""
