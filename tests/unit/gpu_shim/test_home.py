"""The files of Ballast that a container has mounted."""

from pathlib import Path

import pytest

from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.home import LIBRARIES, furnish


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    for name in LIBRARIES:
        (tmp_path / name).write_text(f"all of {name}")
    return tmp_path


def test_new_caps_are_seen_and_files_that_are_mounted_themselves_stay(libraries: Path) -> None:
    home = libraries / "home"
    furnish(home, libraries, [ContainerCard("GPU-a", 64)])
    mounted = (home / "ld.so.preload").stat().st_ino
    furnish(home, libraries, [ContainerCard("GPU-a", 128), ContainerCard("GPU-b", 1)])
    assert (home / "gpu.conf").read_text() == "card GPU-a 128\ncard GPU-b 1\n"
    assert (home / "ld.so.preload").stat().st_ino == mounted


def test_a_folder_that_was_left_half_made_is_made_whole(libraries: Path) -> None:
    home = libraries / "home"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / f"{LIBRARIES[0]}.new").write_text("a part")
    furnish(home, libraries, [ContainerCard("GPU-a", 64)])
    assert [(home / "lib" / name).read_text() for name in LIBRARIES] == [
        f"all of {name}" for name in LIBRARIES
    ]
    assert len((home / "ld.so.preload").read_text().splitlines()) == len(LIBRARIES)
