"""Container images as files: layers, and an archive that containerd, Docker and Podman import.

The archive is an OCI image layout in a tar file, with the `manifest.json` that `docker load` of
older releases looks for. The same input gives the same bytes: times, owners and order are set.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

GZIP_LEVEL: Final = 6
CHUNK: Final = 1 << 20
LAYER_TYPES: Final = {
    True: "application/vnd.oci.image.layer.v1.tar+gzip",
    False: "application/vnd.oci.image.layer.v1.tar",
}
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a layer: a folder, a file from memory or disk, or a symbolic link.

    `path` is relative to the image's root. A folder has neither `content` nor `link`.
    """

    path: str
    mode: int = 0o755
    content: bytes | Path | None = None
    link: str = ""


#: A member of another tar as it is, with its content.
Member = tuple[tarfile.TarInfo, bytes]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's file: `digest` and `size` of the file, `diff_id` of the tar inside."""

    path: Path
    digest: str
    diff_id: str
    size: int
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class Image:
    """What a runtime reads: the name, the layers from the bottom, and how to start it."""

    name: str
    layers: Sequence[Layer]
    architecture: str
    entrypoint: Sequence[str] = ()
    user: str = "65532:65532"
    environment: Sequence[str] = ("PATH=/usr/local/bin:/usr/bin:/bin",)
    labels: dict[str, str] = field(default_factory=dict)


def folder_entries(source: Path, under: str) -> Iterator[Entry]:
    """Everything below a folder on disk, as it is to lie below `under`; sorted by path."""
    for path in sorted(source.rglob("*")):
        target = f"{under}/{path.relative_to(source)}".strip("/")
        if path.is_symlink():
            yield Entry(target, link=str(path.readlink()))
        elif path.is_dir():
            yield Entry(target)
        else:
            is_program = bool(path.stat().st_mode & 0o100)
            yield Entry(target, 0o755 if is_program else 0o644, path)


def write_layer(
    target: Path, entries: Iterable[Entry | Member], epoch_s: int, *, is_compressed: bool = True
) -> Layer:
    """Write a layer. An `Entry` belongs to root and carries the time `epoch_s`."""
    with (
        _LayerFile(target, is_compressed) as file,
        tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            if isinstance(entry, Entry):
                _add(tar, entry, epoch_s)
            else:
                header, content = entry
                tar.addfile(header, io.BytesIO(content))
    return file.layer()


def write_archive(target: Path, image: Image, created: str) -> None:
    """Write one image as an archive; `created` is its time, RFC 3339."""
    blobs: dict[str, bytes | Path] = {each.digest: each.path for each in image.layers}
    config = _dump(_config(image, created))
    config_digest = hashlib.sha256(config).hexdigest()
    blobs[config_digest] = config
    manifest = _dump(_manifest(image, config_digest, len(config)))
    manifest_digest = hashlib.sha256(manifest).hexdigest()
    blobs[manifest_digest] = manifest
    files: dict[str, bytes | Path] = {
        "oci-layout": _dump({"imageLayoutVersion": "1.0.0"}),
        "index.json": _dump(_index(image, manifest_digest, len(manifest))),
        "manifest.json": _dump(_docker_manifest(image, config_digest)),
    }
    files |= {f"blobs/sha256/{digest}": content for digest, content in sorted(blobs.items())}
    with tarfile.open(target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            _add(tar, Entry(path, 0o644, content), 0)


def _config(image: Image, created: str) -> dict[str, object]:
    config: dict[str, object] = {"Env": list(image.environment), "WorkingDir": "/"}
    if image.entrypoint:
        config["Entrypoint"] = list(image.entrypoint)
    if image.user:
        config["User"] = image.user
    if image.labels:
        config["Labels"] = image.labels
    return {
        "architecture": image.architecture,
        "os": "linux",
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [_named(each.diff_id) for each in image.layers]},
        "history": [{"created": created, "created_by": "ballast"} for _ in image.layers],
    }


def _manifest(image: Image, config_digest: str, config_size: int) -> dict[str, object]:
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(CONFIG_TYPE, config_digest, config_size),
        "layers": [
            _descriptor(LAYER_TYPES[each.is_compressed], each.digest, each.size)
            for each in image.layers
        ],
    }


def _index(image: Image, digest: str, size: int) -> dict[str, object]:
    entry = _descriptor(MANIFEST_TYPE, digest, size)
    entry["platform"] = {"architecture": image.architecture, "os": "linux"}
    entry["annotations"] = {
        # containerd takes the whole name from the first, others the tag from the second.
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
    }
    return {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry]}


def _docker_manifest(image: Image, config_digest: str) -> list[dict[str, object]]:
    layers = [f"blobs/sha256/{each.digest}" for each in image.layers]
    config = f"blobs/sha256/{config_digest}"
    return [{"Config": config, "RepoTags": [image.name], "Layers": layers}]


def _descriptor(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": kind, "digest": _named(digest), "size": size}


def _named(digest: str) -> str:
    return f"sha256:{digest}"


def _dump(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _add(tar: tarfile.TarFile, entry: Entry, epoch_s: int) -> None:
    member = tarfile.TarInfo(entry.path)
    member.mtime = epoch_s
    member.mode = entry.mode
    if entry.link:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.link, 0o777
        tar.addfile(member)
    elif entry.content is None:
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif isinstance(entry.content, bytes):
        member.size = len(entry.content)
        tar.addfile(member, io.BytesIO(entry.content))
    else:
        member.size = entry.content.stat().st_size
        with entry.content.open("rb") as file:
            tar.addfile(member, file)


class _LayerFile(io.RawIOBase):
    """A file to write a tar to, compressed or not, that knows both digests when it is closed."""

    def __init__(self, target: Path, is_compressed: bool) -> None:
        self._target = target
        self._is_compressed = is_compressed
        self._file = target.open("wb")
        # No name and no time in the header, so that the bytes depend on the content only.
        self._packed = (
            gzip.GzipFile("", "wb", GZIP_LEVEL, self._file, mtime=0) if is_compressed else None
        )
        self._plain = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, chunk: bytes) -> int:  # type: ignore[override]
        self._plain.update(chunk)
        (self._packed or self._file).write(chunk)
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            if self._packed is not None:
                self._packed.close()
            self._file.close()
        super().close()

    def layer(self) -> Layer:
        """The finished layer."""
        packed, size = hashlib.sha256(), 0
        with self._target.open("rb") as file:
            while chunk := file.read(CHUNK):
                packed.update(chunk)
                size += len(chunk)
        return Layer(
            self._target, packed.hexdigest(), self._plain.hexdigest(), size, self._is_compressed
        )
