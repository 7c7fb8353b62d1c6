"""`python -m manifests.image`: make Ballast's container image as a file, without any registry."""

import datetime
import fcntl
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Final

import click

from manifests.image.archive import Image, write_archive
from manifests.image.debian import ImageError
from manifests.image.layers import EPOCH_S, ROOT, LayerCache, make_layers
from manifests.image.python import MACHINES, check_python

NAME: Final = "localhost/ballast:0.1.0"
OUTPUT: Final = ROOT / "build" / "image" / "ballast.tar"
LABELS: Final = {
    "org.opencontainers.image.title": "ballast",
    "org.opencontainers.image.version": "0.1.0",
    "org.opencontainers.image.licenses": "Apache-2.0",
}
#: Nothing is written beside the modules, and programs say at once what they print.
ENVIRONMENT: Final = (
    "PATH=/usr/local/bin:/usr/bin",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONUNBUFFERED=1",
)
MIB: Final = 1 << 20


@click.command()
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=OUTPUT)
@click.option("--fresh", is_flag=True, help="Take nothing from the cache.")
def main(output: Path, *, fresh: bool) -> None:
    """Write the image as an archive for containerd, Docker and Podman."""
    started = time.monotonic()
    try:
        check_python()
        architecture = MACHINES.get(platform.machine())
        if architecture is None:
            raise ImageError(f"no image for {platform.machine()}: x86_64 and aarch64 only")
        image = build(architecture, is_fresh=fresh)
    except ImageError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(".partial")
    write_archive(partial, image, _created())
    shutil.move(partial, output)
    parts = ", ".join(
        f"{kind} {layer.size / MIB:.1f}"
        for kind, layer in zip(("Debian", "packages", "ballast"), image.layers, strict=True)
    )
    size = output.stat().st_size / MIB
    took_s = time.monotonic() - started
    click.echo(f"{NAME}: {size:.1f} MiB compressed ({parts}), {took_s:.0f} s")
    click.echo(f"{output}")


def build(architecture: str, *, is_fresh: bool = False) -> Image:
    """The image, its layers from the cache where nothing changed; one builder at a time."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "ballast" / "image"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        layers = make_layers(LayerCache(folder, is_fresh=is_fresh), architecture)
    return Image(NAME, layers, architecture, environment=ENVIRONMENT, labels=LABELS)


def _created() -> str:
    return datetime.datetime.fromtimestamp(EPOCH_S, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main()
