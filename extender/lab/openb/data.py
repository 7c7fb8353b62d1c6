"""Reads the openb trace (Alibaba, cluster-trace-gpu-v2023) from a folder: nodes, pods, references.

Files are CSV, plain or gzipped: `openb_node_list_gpu_node.csv`, `openb_pod_list_<trace>.csv` and,
optionally, `reference_alloc_by_seed.csv` with the published results. Cite Weng et al., "Beware of
Fragmentation", USENIX ATC 2023. Input is checked; an invalid line raises a `DataError` that names
the file and the line.
"""

import csv
import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extender.api.demand import MAX_DEVICES, Demand
from extender.api.kinds import Device, GpuNode, GpuNodeStatus
from extender.api.objects import ObjectMeta
from extender.api.units import MILLI_PER_GPU
from extender.kernels.typical import ALL_MODELS, MOST_MODELS, TypicalPod
from extender.state.nodes import NodeFacts, NodeTable

NODES: Final = "openb_node_list_gpu_node.csv"
PODS: Final = "openb_pod_list_{}.csv"
REFERENCE: Final = "reference_alloc_by_seed.csv"
#: Percent of the cluster's GPUs that are requested when a replay ends.
LAST_PERCENT: Final = 130
#: Maximum pods per node in the reference simulator.
_PODS_PER_NODE: Final = 1001
#: Largest accepted amount of CPU (milli) and memory (MiB).
_MOST: Final = 10**8
#: Typical pods are the most frequent kinds that together are this percentage of all pods.
_TYPICAL_PERCENT: Final = 95


class DataError(Exception):
    """The folder lacks required data; the message says where, and what is accepted."""


@dataclass(frozen=True, slots=True)
class PodKind:
    """A kind of pod: its requests, and the card models it may use, as bits."""

    demand: Demand
    models: int


@dataclass(slots=True)
class OpenbCluster:
    """The nodes before any arrival; `model_ix` (int32[n]) numbers their card models."""

    nodes: NodeTable
    model_ix: "array[int]"
    model_names: dict[str, int]
    total_milli: int

    def models_named(self, spec: str) -> int:
        """The models of `A|B` as bits, all models for ""; unknown names add none."""
        if not spec:
            return ALL_MODELS
        numbers = (self.model_names.get(name) for name in spec.split("|"))
        return sum({1 << number for number in numbers if number is not None})


@dataclass(slots=True)
class OpenbTrace:
    """A pod list: `pods` are indices into `shapes` in the order of the pods' names.

    `typical` are the expected kinds of pods.
    """

    name: str
    shapes: list[PodKind]
    pods: list[int]
    typical: list[TypicalPod]


def trace_names(folder: Path) -> list[str]:
    """The names of all pod lists in the folder, in alphabetic order."""
    head, tail = PODS.split("{}")
    files = (file.name.removesuffix(".gz") for file in folder.glob(f"{head}*{tail}*"))
    return sorted({name[len(head) : -len(tail)] for name in files if name.endswith(tail)})


def load_cluster(folder: Path) -> OpenbCluster:
    """The GPU nodes, with all cards free."""
    nodes, model_names = NodeTable(), dict[str, int]()
    model_ix, total = array("i"), 0
    for row in _rows(folder, NODES, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        gpus = row.number("gpu", MAX_DEVICES)
        facts = NodeFacts(
            row["sn"],
            free_cpu_milli=row.number("cpu_milli"),
            free_memory_mib=row.number("memory_mib"),
            free_pods=_PODS_PER_NODE,
        )
        if facts.name in nodes.cards.ix:
            raise row.error("sn", "a name that no other node has")
        nodes.set_node(facts)
        devices = [Device(index=at, memory_mib=0, model=row["model"]) for at in range(gpus)]
        nodes.set_cards(
            GpuNode(metadata=ObjectMeta(name=facts.name), status=GpuNodeStatus(devices=devices))
        )
        model_ix.append(model_names.setdefault(row["model"], len(model_names)))
        if len(model_names) > MOST_MODELS:
            raise row.error("model", f"at most {MOST_MODELS} different models")
        total += gpus * MILLI_PER_GPU
    if not total:
        raise DataError(f"{folder / NODES}: no node has a GPU")
    return OpenbCluster(nodes, model_ix, model_names, total)


def load_trace(folder: Path, name: str, cluster: OpenbCluster) -> OpenbTrace:
    """The pods of one list; card models are numbered as in the cluster."""
    names = trace_names(folder)
    if name not in names:
        known = ", ".join(names) or f"none; files are named {PODS.format('<trace>')}[.gz]"
        raise DataError(f"{folder}: no trace {name!r}; there are: {known}")
    shapes: dict[PodKind, int] = {}
    kinds: Counter[tuple[int, int, int, str]] = Counter()
    pods: list[tuple[str, int]] = []
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    for row in _rows(folder, PODS.format(name), columns):
        devices = row.number("num_gpu", MAX_DEVICES)
        milli = row.number("gpu_milli", MILLI_PER_GPU)
        if (devices == 0) != (milli == 0) or (devices > 1 and milli < MILLI_PER_GPU):
            raise row.error("gpu_milli", "0 without GPUs, 1000 with several, 1 to 1000 with one")
        cpu, spec = row.number("cpu_milli"), row.get("gpu_spec")
        demand = Demand(devices, milli, 0, cpu, row.number("memory_mib"))
        shape = PodKind(demand, cluster.models_named(spec))
        pods.append((row["name"], shapes.setdefault(shape, len(shapes))))
        kinds[cpu, milli, devices, spec] += 1
    if not pods:
        raise DataError(f"{folder / PODS.format(name)}: no pods")
    return OpenbTrace(name, list(shapes), [at for _, at in sorted(pods)], _typical(kinds, cluster))


def load_reference(folder: Path) -> dict[tuple[str, str], dict[int, list[float]]]:
    """Published curves by (trace, policy in lower case) and seed; empty if the file is absent.

    Entry k of a curve, k = 0 to 130, is the allocation in % of all GPUs when k % of them had been
    requested.
    """
    if _find(folder, REFERENCE) is None:
        return {}
    head = PODS.split("{}", maxsplit=1)[0]
    curves: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in _rows(folder, REFERENCE, ("workload", "sc_policy", "seed", str(LAST_PERCENT))):
        try:
            curve = [float(row[str(percent)]) for percent in range(LAST_PERCENT + 1)]
        except (KeyError, ValueError):
            raise row.error("0", f"a number in each column 0 to {LAST_PERCENT}") from None
        policy = row["sc_policy"].rpartition("-")[2].lower()
        by_seed = curves.setdefault((row["workload"].removeprefix(head), policy), {})
        by_seed[row.number("seed")] = curve
    return curves


def _typical(
    kinds: Mapping[tuple[int, int, int, str], int], cluster: OpenbCluster
) -> list[TypicalPod]:
    """The most frequent kinds, until they cover 95 % of the pods; ties: the larger first."""
    ranked = sorted(kinds.items(), key=lambda each: (each[1], each[0]), reverse=True)
    enough = _TYPICAL_PERCENT * sum(kinds.values())
    typical: list[TypicalPod] = []
    held = 0
    for (cpu, milli, devices, spec), count in ranked:
        typical.append(TypicalPod(cpu, devices, milli, count, cluster.models_named(spec)))
        held += count
        if 100 * held >= enough:
            break
    return typical


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a file, with its position."""

    file: Path
    line: int
    fields: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.fields[column]

    def get(self, column: str) -> str:
        return self.fields.get(column) or ""

    def number(self, column: str, most: int = _MOST) -> int:
        text = self.get(column)
        if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= most):
            raise self.error(column, f"a whole number from 0 to {most}")
        return int(text)

    def error(self, column: str, accepted: str) -> DataError:
        return DataError(
            f"{self.file}, line {self.line}: {column} is {self.get(column)!r:.80}; "
            f"accepted is {accepted}"
        )


def _find(folder: Path, name: str) -> Path | None:
    return next((file for end in (".gz", "") if (file := folder / (name + end)).is_file()), None)


def _rows(folder: Path, name: str, columns: Sequence[str]) -> Iterator[_Row]:
    """The lines of the file; raises DataError if it is missing, broken or lacks a column."""
    file = _find(folder, name)
    if file is None:
        raise DataError(f"{folder}: no {name} or {name}.gz in this folder")
    opened = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{file}: no column {', '.join(missing)}")
            for fields in reader:
                row = _Row(file, reader.line_num, fields)
                if any(fields[name] is None for name in columns):
                    raise DataError(f"{file}, line {reader.line_num}: fields are missing")
                yield row
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise DataError(f"{file}: {error}") from error
