"""`python -m manifests.release`: write everything that a release consists of into one folder."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import yaml

from manifests.image.requirements import runtime_requirements
from manifests.release.chart import NAME, OVERLAYS, ChartError, write_chart

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "manifests"
OUTPUT: Final = ROOT / "build" / "release"
#: Every entry of an archive has it, so that the same tree makes the same bytes.
EPOCH_S: Final = 0


class ReleaseError(Exception):
    """A part of the release could not be made."""


@click.command()
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=OUTPUT)
@click.option("--kubectl", default="kubectl", show_default=True, help="Renders the overlays.")
@click.option("--without-image", is_flag=True, help="Leave out the image archive.")
def main(output: Path, kubectl: str, *, without_image: bool) -> None:
    """Make the release of the version in pyproject.toml."""
    version = read_version()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    try:
        write_manifests(output, kubectl)
        make_chart(output, kubectl, version)
        _make_wheel(output)
        _make_bill(output, version)
        if not without_image:
            _call(
                [sys.executable, "-m", "manifests.image", "--output", output / "ballast-image.tar"]
            )
    except (ReleaseError, ChartError) as error:
        raise click.ClickException(str(error)) from None
    shutil.copy(ROOT / "CHANGELOG.md", output)
    _write_checksums(output)
    for file in sorted(output.iterdir()):
        click.echo(f"{file.stat().st_size / (1 << 20):8.2f} MiB  {file.name}")


def read_version() -> str:
    """The version that pyproject.toml states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version: str = project["version"]
    return version


def write_manifests(output: Path, kubectl: str) -> None:
    """`install.yaml`, and every overlay as one file."""
    shutil.copy(MANIFESTS / "install.yaml", output)
    folder = output / "overlays"
    folder.mkdir()
    for each in sorted(MANIFESTS.glob("overlays/*/kustomization.yaml")):
        overlay = each.parent.name
        (folder / f"{overlay}.yaml").write_text(_rendered(kubectl, overlay), "utf-8")
    _pack(output / "overlays.tar.gz", folder, "overlays")
    shutil.rmtree(folder)


def make_chart(output: Path, kubectl: str, version: str) -> Path:
    """The chart as Helm packs it, in `output`; returns its path."""
    rendered: dict[str, list[dict[str, Any]]] = {
        overlay: list(yaml.load_all(_rendered(kubectl, overlay), Loader=yaml.CSafeLoader))
        for overlay in OVERLAYS
    }
    path = output / f"{NAME}-{version}.tgz"
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / NAME
        chart.mkdir()
        write_chart(chart, rendered, version)
        _pack(path, chart, NAME)
    return path


def _rendered(kubectl: str, overlay: str) -> str:
    return _call([kubectl, "kustomize", MANIFESTS / "overlays" / overlay])


def _make_wheel(output: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    _call([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", output, ROOT])


def _make_bill(output: Path, version: str) -> None:
    """A CycloneDX bill of what the image's programs are made of besides Debian and ourselves."""
    with tempfile.TemporaryDirectory() as folder:
        locked = Path(folder) / "requirements.txt"
        locked.write_text(
            runtime_requirements(ROOT / "pyproject.toml", ROOT / "requirements.lock"), "utf-8"
        )
        program = Path(sys.executable).with_name("cyclonedx-py")
        text = _call([program, "requirements", locked, "--output-reproducible", "--of", "JSON"])
    bill = json.loads(text)
    for each in bill["components"]:
        del each["description"]  # the line of the lock file once more, with every hash
    bill["metadata"]["component"] = {"type": "application", "name": NAME, "version": version}
    (output / f"{NAME}-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", "utf-8")


def _write_checksums(output: Path) -> None:
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(output.iterdir())
    ]
    (output / "SHA256SUMS").write_text("".join(lines), "utf-8")


def _pack(path: Path, folder: Path, name: str) -> None:
    with (
        gzip.GzipFile(path, "wb", mtime=EPOCH_S) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        archive.add(folder, name, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry without times, owners and the maker's file modes."""
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = EPOCH_S, 0, 0, "", ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def _call(command: Sequence[str | os.PathLike[str]]) -> str:
    """What the program prints; ReleaseError with its own words if it fails or is not there."""
    try:
        done = subprocess.run(  # noqa: S603  # kubectl, pip and our own programs
            command, cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"{command[0]} is not there: {error}") from error
    if done.returncode != 0:
        words = " ".join(str(each) for each in command)
        raise ReleaseError(f"`{words}` failed:\n{done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
