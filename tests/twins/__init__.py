"""The Python twins of the compiled kernels: the same results from code that is easy to read.

Every test of a kernel also runs on its twin.
"""
