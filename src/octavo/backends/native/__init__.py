"""The CPU backend in C++: the kernels of `csrc/`, one build for each instruction set."""
