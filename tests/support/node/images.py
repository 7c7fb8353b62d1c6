"""Images that a node needs besides ours: the sandbox image, and one per program of the tests."""

import platform
import subprocess
from pathlib import Path

from manifests.image.archive import Entry, Image, write_archive, write_layer

SOURCE = Path(__file__).with_name("pause.c")
SANDBOX_IMAGE = "ballast.dev/sandbox:0.1.0"
EPOCH_S = 0
CREATED = "1970-01-01T00:00:00Z"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FLAGS = ("-Os", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-s")


def write_sandbox_image(folder: Path) -> Path:
    """Write the image of `pause.c` into a folder; returns the archive's path."""
    return write_pause_image(folder, SANDBOX_IMAGE)


def write_pause_image(folder: Path, name: str) -> Path:
    """Write the image of `pause.c` under another name; returns the archive's path."""
    program = folder / "pause"
    subprocess.run(["gcc", *FLAGS, "-o", str(program), str(SOURCE)], check=True, timeout=60)
    return write_program_image(folder, name, program, "pause")


def write_program_image(folder: Path, name: str, program: Path, command: str) -> Path:
    """Write an image with one program as /usr/local/bin/`command`; returns the archive.

    The program must be statically linked. The layer is not compressed, since it stays on this
    machine.
    """
    stem = "".join(c if c.isalnum() else "-" for c in name)
    entries = [Entry(f"usr/local/bin/{command}", 0o755, program)]
    layer = write_layer(folder / f"{stem}.layer", entries, EPOCH_S, is_compressed=False)
    path = f"/usr/local/bin/{command}"
    image = Image(name, (layer,), ARCHITECTURES[platform.machine()], (path,))
    archive = folder / f"{stem}.tar"
    write_archive(archive, image, CREATED)
    layer.path.unlink()
    return archive
