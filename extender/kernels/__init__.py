"""The hot loops over flat arrays, compiled from Cython.

Compiled modules are required; their Python twins in `tests/twins` are for tests and for reading.
"""

try:
    from extender.kernels import appraisal as appraisal
    from extender.kernels import baselines as baselines
    from extender.kernels import choice as choice
    from extender.kernels import clearing as clearing
    from extender.kernels import fragments as fragments
    from extender.kernels import holds as holds
    from extender.kernels import nodes as nodes
    from extender.kernels import nodes_bulk as nodes_bulk
    from extender.kernels import published as published
    from extender.kernels import shares as shares
    from extender.kernels import sums as sums
    from extender.kernels import vacancy as vacancy
    from extender.kernels import victims as victims
except ModuleNotFoundError as error:
    raise ImportError(
        f"the compiled kernels are missing ({error.name}); build them with `make setup`"
    ) from error
