"""Texts from users: quantities, annotations, files, addresses."""

import asyncio
import gzip
import json
import os
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from extender.api import units
from extender.api.units import UnitError
from extender.api.workload import read_min_member, read_sub_groups, write_sub_groups
from extender.http.server import Address, ListenError
from extender.http.tls import TlsError, TlsFiles
from extender.kube.client import Client
from extender.kube.errors import Misconfigured
from extender.lab.openb import data as openb_data
from extender.lab.philly import trace as philly_trace
from extender.scenario.load import load
from gpu_shim.agent.inventory_file import InventoryError, read_inventory
from gpu_shim.cases.load import load as load_time_slicing
from tests.fuzz.mutation import SHORT_BYTES, TEXTS, fuzz, told
from tests.support.controlplane.certificates import Authority

PARSERS: Final[dict[str, tuple[Callable[[str], int], int, int]]] = {
    "fraction": (units.parse_fraction, 1, 999),
    "share": (units.parse_share, 0, 1000),
    "milli": (units.parse_milli, 0, 1000),
    "positive": (lambda text: units.parse_positive(text, "x"), 1, 999_999_999),
    "GPUs": (units.parse_gpus, 0, 10**9),
    "CPU": (units.parse_cpu, 0, 10**120),
    "memory": (units.parse_memory, 0, 10**120),
    "whole": (lambda text: units.parse_whole(text, "x"), 0, 10**120),
    "min-member": (lambda text: read_min_member({"ballast.dev/min-member": text}, None), 0, 10**9),
}  # fmt: skip
NUMBERS: Final = [
    *(text.encode() for text in ("0.5", "0.001", "1", "999", "8192", "2.5", "500m", "8Gi", "1e3")),
    *(text.encode(errors="surrogatepass") for text in TEXTS),
]


@fuzz(NUMBERS, of_trees=False)
def test_a_number_is_read_exactly_or_said_to_be_none(body: bytes) -> None:
    text = body.decode(errors="replace")
    for parse, least, most in PARSERS.values():
        try:
            found = parse(text)
        except UnitError as error:
            told(" is not " in str(error))
            told(len(str(error)) < 400)
            continue
        assert isinstance(found, int)
        assert least <= found <= most
        assert text.isascii()


@fuzz([b"driver=1,workers=8", b"a=0", b"a=1,b=2,c=3", b"x" * 63 + b"=999999"], of_trees=False)
def test_sub_groups_are_read_as_they_are_written(body: bytes) -> None:
    text = body.decode(errors="replace")
    try:
        found = read_sub_groups({"ballast.dev/sub-groups": text}, 0)
    except UnitError as error:
        told("sub-groups" in str(error))
        return
    assert write_sub_groups(found) == text


@fuzz([b"127.0.0.1:8888", b"[::1]:8888", b":8888", b"host:0"], of_trees=False)
def test_an_address_is_read_or_said_to_be_none(body: bytes) -> None:
    try:
        address = Address.parse(body.decode(errors="replace"))
    except ListenError as error:
        told("such as 127.0.0.1:8888" in str(error))
        return
    assert 0 <= address.port < 65536
    assert address.is_loopback in (True, False)


SCENARIO: Final[bytes] = b"""\
scenario: one
id: a
queues: [{name: root, quota: 4}, {name: team, parent: root, quota: 2, weight: 1}]
nodes: [{name: n1, gpus: 2, cpu: "8", memory: 16Gi, labels: {zone: a}}]
jobs:
- {name: j, queue: team, priority: 50, tasks: [{name: t, gpus: 1, cpu: "1", memory: 1Gi}]}
x-note: 2026-01-01
"""


#: A folder in memory: overwriting a file takes 0.03 ms, on a disk 2 ms.
MEMORY: Final = "/dev/shm"
FOLDER: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _folder() -> Iterator[None]:
    """One folder for the files of all inputs; each overwrites the last."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ballast-fuzz-", dir=where) as folder:
        FOLDER[:] = [Path(folder)]
        yield


def _cases() -> list[bytes]:
    folder = Path(__file__).parents[1] / "scenarios" / "cases"
    found = sorted(folder.rglob("*.yaml"), key=lambda path: path.stat().st_size)
    return [SCENARIO, *(path.read_bytes() for path in found[:12])]


@fuzz(_cases(), of_trees=False)
def test_a_scenario_is_read_or_said_to_be_broken(body: bytes) -> None:
    path = FOLDER[0] / "case.yaml"
    path.write_bytes(body)
    _check_loaded(path)


@fuzz([json.dumps({"scenario": 1, "id": "a", "jobs": [], "queues": [{"name": "q"}]}).encode()])
def test_a_scenario_in_json_is_read_or_said_to_be_broken(body: bytes) -> None:
    for name in ("case.json", "case.jsonl"):
        path = FOLDER[0] / name
        path.write_bytes(body)
        _check_loaded(path)


def _check_loaded(path: Path) -> None:
    for broken in load([path]).broken:
        assert str(path) in broken.why
        assert len(broken.why) > len(str(path)) + 10


TIME_SLICING: Final[bytes] = b"""\
- {id: one, mode: strict, lease: "0.25", precision: "0.05", plan: "5", window: "9",
   workloads: [{name: a, asks: {gpu-fraction: "0.25"}, request: "1/4", limit: "1/4", busy: true},
               {name: b, asks: {gpu-memory: "4096"}, memory: "1/4", busy: [["0", "2.5"]]}],
   expect: {share: {a: "1/4"}, leases: {a: [5, 5]}, refused: b}}
"""


@fuzz([TIME_SLICING], of_trees=False)
def test_cases_of_time_slicing_are_read_or_said_to_be_broken(body: bytes) -> None:
    path = FOLDER[0] / "time-slicing.yaml"
    path.write_bytes(body)
    loaded = load_time_slicing([path])
    for broken in loaded.broken:
        assert str(path) in broken.why
        assert len(broken.why) > len(str(path)) + 10
    for case in loaded.cases:
        case.claims()


OPENB_NODES: Final = (
    b"sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,A100\nn2,8000,1024,1,T4\n"
)
OPENB_PODS: Final = (
    b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    b"p0,1000,1024,1,500,A100|T4\np1,1000,1024,2,1000,\np2,1,1,0,0,\n"
)


@fuzz([OPENB_NODES, OPENB_PODS], of_trees=False)
def test_the_openb_trace_is_read_or_said_to_be_wrong(body: bytes) -> None:
    is_nodes = body.startswith(b"sn")
    folder = FOLDER[0]
    (folder / openb_data.NODES).write_bytes(body if is_nodes else OPENB_NODES)
    (folder / openb_data.PODS.format("x")).write_bytes(OPENB_PODS if is_nodes else body)
    try:
        cluster = openb_data.load_cluster(folder)
        trace = openb_data.load_trace(folder, "x", cluster)
    except openb_data.DataError as error:
        told(str(folder) in str(error))
        return
    assert trace.pods


PHILLY: Final = (
    b"timestamp,duration,num_gpus,gpu_time,cluster\n"
    b"2017-10-03 05:00:00,3600,1,3600,vc-a\n2017-10-04T05:00:00,60.5,8,480,vc-b\n"
)


@fuzz([PHILLY], of_trees=False)
def test_the_philly_trace_is_read_or_said_to_be_wrong(body: bytes) -> None:
    _read_philly(gzip.compress(body, compresslevel=1))


@fuzz([gzip.compress(PHILLY), gzip.compress(PHILLY * 40)], of_trees=False)
def test_a_broken_archive_is_said_to_be_one(body: bytes) -> None:
    _read_philly(body)
    folder = FOLDER[0]
    archive = folder / (openb_data.NODES + ".gz")
    archive.write_bytes(body)
    try:
        openb_data.load_cluster(folder)
    except openb_data.DataError as error:
        told(str(folder) in str(error))
    finally:
        archive.unlink()


def _read_philly(body: bytes) -> None:
    folder = FOLDER[0]
    (folder / philly_trace.JOBS_FILE).write_bytes(body)
    try:
        trace = philly_trace.load_trace(folder, 8)
    except philly_trace.TraceError as error:
        told(len(str(error)) > 20)
        return
    assert trace.jobs


INVENTORY: Final = (
    b"devices:\n- {index: 0, uuid: GPU-a, memoryMiB: 81920, model: H100}\n"
    b"- {index: 1, uuid: GPU-b, memoryMiB: 81920}\n"
)


@fuzz([INVENTORY], of_trees=False)
def test_an_inventory_is_read_or_said_to_be_wrong(body: bytes) -> None:
    path = FOLDER[0] / "inventory.yaml"
    path.write_bytes(body)
    try:
        devices = read_inventory(path)
    except InventoryError as error:
        told(str(path) in str(error))
        return
    assert all(device.uuid for device in devices)


PAIR: Final = Authority().serving(("localhost",), ("127.0.0.1",))
KUBECONFIG: Final = (
    b"apiVersion: v1\nkind: Config\ncurrent-context: c\n"
    b"contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    b"clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    b"users: [{name: u, user: {token: none}}]\n"
)
KUBECONFIG_TLS: Final = (
    b"apiVersion: v1\nkind: Config\ncurrent-context: c\n"
    b"contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    b"clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1',"
    b" certificate-authority-data: " + b64encode(PAIR.certificate) + b"}}]\n"
    b"users: [{name: u, user: {client-certificate-data: " + b64encode(PAIR.certificate) + b","
    b" client-key-data: " + b64encode(PAIR.key) + b"}}]\n"
)


@pytest.fixture(scope="module")
def _one_authority() -> Iterator[None]:
    """One CA instead of the system's, which OpenSSL needs 40 ms to read."""
    authority = FOLDER[0] / "authority"
    authority.write_bytes(PAIR.certificate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority))
        yield


@pytest.mark.usefixtures("_one_authority")
@fuzz([KUBECONFIG, KUBECONFIG_TLS], of_trees=False, pieces=SHORT_BYTES)
def test_a_kubeconfig_is_used_or_said_to_be_wrong(body: bytes) -> None:
    path = FOLDER[0] / "kubeconfig"
    path.write_bytes(body)

    async def connect() -> None:
        try:
            client = await Client.connect(str(path))
        except Misconfigured as error:
            told(len(str(error)) > 20)
            return
        await client.close()

    asyncio.run(connect())


@fuzz([PAIR.certificate, PAIR.key], of_trees=False)
def test_pem_files_are_used_or_said_to_be_wrong(body: bytes) -> None:
    folder = FOLDER[0]
    is_key = b"PRIVATE" in body
    contents = {"crt": PAIR.certificate, "key": PAIR.key, "ca": PAIR.certificate}
    contents["key" if is_key else "crt"] = body
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    try:
        TlsFiles(*(str(folder / name) for name in contents)).context()
    except TlsError as error:
        told(str(folder) in str(error))
