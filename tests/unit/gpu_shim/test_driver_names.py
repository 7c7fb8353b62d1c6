"""Our libraries export every function that the real drivers of several branches export."""

import pytest

from gpu_shim.native.build import HERE
from tests.support.drivers import BRANCHES, committed

NAMES = {"libcuda": "names_cuda.txt", "libnvidia-ml": "names_nvml.txt"}


@pytest.mark.parametrize("library", NAMES)
@pytest.mark.parametrize("version", BRANCHES)
def test_every_function_of_a_real_driver_is_one_of_ours(library: str, version: str) -> None:
    listed = set((HERE / NAMES[library]).read_text().split())
    exported = committed(library)[version]
    assert len(exported) > 300
    assert {name for name, kind in exported.items() if kind == "T"} - listed == set()


@pytest.mark.parametrize("version", BRANCHES)
def test_data_of_a_real_driver_is_what_a_debugger_reads_and_nothing_else(version: str) -> None:
    """A trampoline would be in the place of a variable; dlsym finds the driver's."""
    data = {name for name, kind in committed("libcuda")[version].items() if kind != "T"}
    assert {name for name in data if not name.startswith("cudbg")} == set()
    assert set(committed("libnvidia-ml")[version].values()) == {"T"}
