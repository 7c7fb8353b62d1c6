"""Files of the shadow libcuda use files of lower layers only, by the symbols that they link."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu_shim.native import generate
from gpu_shim.native.build import CUDA_LAYERS, CUDA_SOURCES, FLAGS, HERE

LAYER_OF = {name: at for at, names in enumerate(CUDA_LAYERS) for name in names}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Every source of the library, compiled alone."""
    folder = tmp_path_factory.mktemp("objects")
    files = [str(HERE / name) for name in CUDA_SOURCES]
    names = str(HERE / "names_cuda.txt"), str(folder / "names.c"), str(folder / "names.h")
    generate.main([*names, *files])
    flags = [flag for flag in FLAGS if flag != "-shared" and not flag.startswith("-Wl")]
    for name in CUDA_SOURCES:
        where = (f"-I{folder}", f"-I{HERE}", "-include", "oldest.h")
        made = folder / f"{name}.o"
        subprocess.run(["gcc", "-c", *flags, "-O0", *where, "-o", made, HERE / name], check=True)
    return {name: folder / f"{name}.o" for name in CUDA_SOURCES}


def symbols(path: Path, kind: str) -> set[str]:
    listed = subprocess.run(
        ["nm", f"--{kind}-only", "--extern-only", "--format=posix", path],
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.split()[0] for line in listed.stdout.splitlines()}


def test_a_file_links_symbols_of_lower_layers_only(objects: Mapping[str, Path]) -> None:
    owner = {each: name for name, made in objects.items() for each in symbols(made, "defined")}
    used = {
        (name, owner[each])
        for name, made in objects.items()
        for each in symbols(made, "undefined")
        if each in owner
    }
    assert ("gate.c", "drain.c") in used
    assert {(one, other) for one, other in used if LAYER_OF[one] <= LAYER_OF[other]} == set()


def test_a_file_includes_headers_of_lower_layers_only() -> None:
    included = {
        (name, f"{header}.c")
        for name in CUDA_SOURCES
        for header in re.findall(r'#include "(\w+)\.h"', (HERE / name).read_text("utf-8"))
    }
    assert ("gate.c", "drain.c") in included
    others = {(one, other) for one, other in included if one != other and other in LAYER_OF}
    assert {(one, other) for one, other in others if LAYER_OF[one] <= LAYER_OF[other]} - {
        # It says which library is shadowed, in the terms of driver.h.
        ("kind_cuda.c", "driver.c")
    } == set()
