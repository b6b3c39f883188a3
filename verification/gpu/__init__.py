"""A CUDA device that is emulated on the host, so that the code for GPUs runs where there is none.

Nothing here is imported by the library. docs/gpu.md says what the emulation can tell, and what
only a GPU can.
"""
