"""The commands of ``wefpe`` that train: each module has `main(arguments) -> exit code`."""
