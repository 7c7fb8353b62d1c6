"""The hot loops over flat arrays, compiled from Cython.

Compiled modules are required; their Python twins in `tests/twins` are for tests and for readers.
"""

from importlib import import_module
from pathlib import Path


def load_all(package: str, folder: Path) -> None:
    """Import every compiled module of a package that has a stub beside it.

    If one is missing, raises ImportError with the command that builds them.
    """
    for stub in sorted(folder.glob("*.pyi")):
        try:
            import_module(f"{package}.{stub.stem}")
        except ModuleNotFoundError as error:
            raise ImportError(
                f"the compiled kernels are missing ({error.name}); build them with `make setup`"
            ) from error


load_all(__name__, Path(__file__).parent)
