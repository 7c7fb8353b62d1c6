"""The configuration reader of `kubernetes_asyncio`, without the client that it comes with.

Importing the whole package loads a class for each Kubernetes kind, which costs each program half a
second of CPU and some 38 MiB, and none of them is used here. The `config` modules need only
`Configuration`, so they are loaded beside a `client` package with just that. An
`import kubernetes_asyncio` elsewhere still gets the whole package.

Certificates and keys embedded in a kubeconfig become files in memory: OpenSSL reads a client
certificate only from a file, and one on disk would stay there when the program is killed.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_NAME = "kubernetes_asyncio"


def load() -> ModuleType:
    """The package's `config` module, which also gets the attribute `Configuration`.

    Raises ImportError if the package is not installed.
    """
    spec = find_spec(_NAME)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"the package {_NAME} is not installed")
    before = _unload()
    try:
        package = _package(_NAME, list(spec.submodule_search_locations))
        client = _package(f"{_NAME}.client", [f"{path}/client" for path in package.__path__])
        # Used only by functions that make a client, which are not called here.
        client.ApiClient = None
        client.Configuration = import_module(f"{_NAME}.client.configuration").Configuration
        config: Any = import_module(f"{_NAME}.config")
        config.Configuration = client.Configuration
        if hasattr(os, "memfd_create"):  # Linux has it
            config.kube_config.FileOrData._create_temp_file_with_content = _in_memory
    finally:
        _unload()
        sys.modules.update(before)
    found: ModuleType = config
    return found


class _MemoryFile(str):
    """The path of a file in memory, which lives as long as the configuration that names it."""

    __slots__ = ("fd",)
    fd: int

    def __del__(self) -> None:
        os.close(self.fd)


def _in_memory(_of: object, content: str | bytes) -> str:
    """The path of a file with this content, which only this process can open."""
    fd = os.memfd_create("kubeconfig")
    path = _MemoryFile(f"/proc/self/fd/{fd}")
    path.fd = fd
    with open(fd, "wb", closefd=False) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


def _package(name: str, path: list[str]) -> Any:
    """An empty package at these folders, so that its modules can be imported."""
    package: Any = ModuleType(name)
    package.__path__ = path
    sys.modules[name] = package
    return package


def _unload() -> dict[str, ModuleType]:
    """Remove the package's loaded modules from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]
    return {name: sys.modules.pop(name) for name in names}
