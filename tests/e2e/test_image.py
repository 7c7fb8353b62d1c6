"""The image's file: the same input gives the same bytes, and nothing is in it that need not be."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from manifests.image.archive import Entry, Image, write_archive, write_layer
from manifests.image.requirements import build_requirements, runtime_requirements
from tests.e2e.conftest import IMAGE
from tests.e2e.site import ROOT, Site

CREATED = "2026-01-01T00:00:00Z"
ENTRIES = [Entry("bin"), Entry("bin/tool", 0o755, b"tool"), Entry("bin/other", link="tool")]
REQUIREMENTS = ROOT / "pyproject.toml", ROOT / "requirements.lock"


def test_the_same_input_gives_the_same_archive(tmp_path: Path) -> None:
    archives = [_write(tmp_path / name) for name in ("first", "second")]

    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_every_part_of_an_archive_is_named_by_its_content(tmp_path: Path) -> None:
    with tarfile.open(_write(tmp_path / "made")) as tar:
        blobs = [each for each in tar if each.name.startswith("blobs/sha256/")]
        digests = {each.name: hashlib.sha256(_read(tar, each.name)).hexdigest() for each in blobs}
        index = json.loads(_read(tar, "index.json"))

    assert all(name == f"blobs/sha256/{digest}" for name, digest in digests.items())
    assert f"blobs/sha256/{index['manifests'][0]['digest'].partition(':')[2]}" in digests


def test_what_only_developers_need_is_left_out_of_the_image() -> None:
    text = runtime_requirements(*REQUIREMENTS)

    assert "aiohttp==" in text
    assert "yarl==" in text
    assert "pytest==" not in text
    assert text.count("--hash=sha256:") > text.count("==")


def test_what_compiles_our_wheel_is_locked_too() -> None:
    assert "cython==" in build_requirements(*REQUIREMENTS)


def test_the_image_has_no_shell_and_runs_as_nobody(site: Site) -> None:
    if site.plane is None:
        pytest.skip("the image of a given cluster may be another")
    with tarfile.open(IMAGE) as tar:
        (manifest,) = json.loads(_read(tar, "manifest.json"))
        config = json.loads(_read(tar, manifest["Config"]))
        names = [name for layer in manifest["Layers"] for name in _names(tar, layer)]

    assert config["config"]["User"] == "65532:65532"
    assert {"usr/local/bin/ballast", "usr/local/bin/ballast-webhooks"} <= set(names)
    assert [each for each in names if each.endswith(("/sh", "/bash", "/dash", "/apt"))] == []


def _write(folder: Path) -> Path:
    folder.mkdir()
    layer = write_layer(folder / "layer", ENTRIES, 0)
    write_archive(folder / "archive", Image("example.com/tool:1", (layer,), "amd64"), CREATED)
    return folder / "archive"


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _names(tar: tarfile.TarFile, layer: str) -> list[str]:
    with tarfile.open(fileobj=tar.extractfile(layer)) as inner:
        return inner.getnames()
