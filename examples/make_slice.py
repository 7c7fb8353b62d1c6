"""Makes openb-slice-nodes.csv and openb-slice-pods.csv from the openb trace.

    python examples/make_slice.py ../shared/traces/openb

Every choice is a rule over the trace in its own order, so that the same input gives the same bytes:

- nodes: 64 of the 1,213 GPU nodes, evenly spaced in the published order.
- pods: of the 7,064 GPU pods in order of creation, by size (1 to 999 milli of one GPU; one, two,
  four and eight GPUs) as many of each as `PODS` says, evenly spaced. CPU, memory, GPUs and
  milli-GPU are the trace's own. Together they ask for about 130 % of the nodes' GPUs.
- gangs: the trace has none. Pods of whole GPUs and of one shape (CPU, memory, GPUs), in order of
  creation, are cut into runs of 8 (one GPU), 4 (two GPUs) or 2 (four or eight GPUs); every second
  run of a shape, and the last one if it has at least two pods, is a gang, but none of one pod. A
  gang is created with its first pod.
- kind: sharing pods that the trace calls latency-sensitive (qos LS) are inference, which is not
  preemptible; all others are training.
- projects: workloads in order of creation go to the project that has the smallest part of what
  `WEIGHTS` gives it, in GPUs asked for.
- at_ms: the trace spans five months; here a project's workloads arrive evenly spaced within 20 s.
"""

import csv
import gzip
import io
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
N_NODES = 64
#: Pods by their size in the trace: (GPUs, whether whole) -> how many.
PODS = {(1, False): 206, (1, True): 168, (2, True): 10, (4, True): 8, (8, True): 8}
#: What a project asks for, in percent of the nodes' GPUs.
WEIGHTS = {"vision": 42, "language": 34, "ads": 28, "search": 26}
RUN_OF = {1: 8, 2: 4, 4: 2, 8: 2}
ARRIVE_MS = 20_000
NODE_FIELDS = ("name", "cpu_milli", "memory_mib", "gpu", "model")
POD_FIELDS = (
    "name",
    "at_ms",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "kind",
    "gang",
    "project",
)
ATTRIBUTION = """\
# A slice of the Alibaba GPU cluster trace 2023 (cluster-trace-gpu-v2023, "openb"), changed as
# examples/make_slice.py says. The trace's CSV files are part of the Apache-2.0 licensed repository
# hkust-adsl/kubernetes-scheduler-simulator. Paper: Weng et al., "Beware of Fragmentation:
# Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023.
"""

Record = dict[str, str]


@dataclass
class Workload:
    """A pod, or a gang of alike pods, created together."""

    pods: list[Record] = field(default_factory=list)
    gang: str = ""

    @property
    def milli(self) -> int:
        """Milli-GPU asked for, over all pods."""
        return sum(int(pod["num_gpu"]) * int(pod["gpu_milli"]) for pod in self.pods)

    @property
    def created_s(self) -> int:
        """When the trace created the first pod."""
        return min(int(pod["creation_time"]) for pod in self.pods)


def read(path: Path) -> list[Record]:
    """The rows of a gzipped CSV file."""
    with gzip.open(path, "rt", encoding="ascii", newline="") as file:
        return list(csv.DictReader(file))


def spaced(rows: Sequence[Record], count: int) -> list[Record]:
    """`count` of the rows, evenly spaced."""
    return [rows[ix * len(rows) // count] for ix in range(count)]


def choose_pods(trace: Iterable[Record]) -> list[Record]:
    """The slice's pods in order of creation."""
    by_size: dict[tuple[int, bool], list[Record]] = defaultdict(list)
    ordered = sorted(trace, key=lambda pod: (int(pod["creation_time"]), pod["name"]))
    for pod in ordered:
        by_size[int(pod["num_gpu"]), pod["gpu_milli"] == "1000"].append(pod)
    chosen = [pod for size, count in PODS.items() for pod in spaced(by_size[size], count)]
    return sorted(chosen, key=lambda pod: (int(pod["creation_time"]), pod["name"]))


def form_workloads(pods: Iterable[Record]) -> list[Workload]:
    """Gangs and single pods in order of creation."""
    shapes: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    singles = []
    for pod in pods:
        if pod["gpu_milli"] == "1000":
            shapes[pod["num_gpu"], pod["cpu_milli"], pod["memory_mib"]].append(pod)
        else:
            singles.append(Workload([pod]))
    workloads = singles
    for (gpus, _, _), alike in shapes.items():
        size = RUN_OF[int(gpus)]
        runs = [alike[start : start + size] for start in range(0, len(alike), size)]
        for number, run in enumerate(runs):
            is_gang = len(run) > 1 and (number % 2 == 0 or number == len(runs) - 1)
            workloads += [Workload(run, "yes")] if is_gang else [Workload([pod]) for pod in run]
    workloads.sort(key=lambda each: (each.created_s, each.pods[0]["name"]))
    for number, gang in enumerate((each for each in workloads if each.gang), start=1):
        gang.gang = f"gang-{number:02d}"
    return workloads


def deal(workloads: Iterable[Workload]) -> dict[str, list[Workload]]:
    """The projects' workloads."""
    dealt: dict[str, list[Workload]] = {name: [] for name in WEIGHTS}
    asked = dict.fromkeys(WEIGHTS, 0)
    for workload in workloads:
        name = min(WEIGHTS, key=lambda each: (asked[each] / WEIGHTS[each], each))
        asked[name] += workload.milli
        dealt[name].append(workload)
    return dealt


def pod_rows(dealt: dict[str, list[Workload]]) -> list[tuple[object, ...]]:
    """Rows of the pods file, by arrival."""
    rows: list[tuple[object, ...]] = []
    for project, workloads in dealt.items():
        for number, workload in enumerate(workloads):
            at_ms = number * ARRIVE_MS // len(workloads)
            for pod in workload.pods:
                is_served = pod["qos"] == "LS" and pod["gpu_milli"] != "1000"
                shape = (pod["cpu_milli"], pod["memory_mib"], pod["num_gpu"], pod["gpu_milli"])
                kind = "inference" if is_served else "training"
                rows.append((pod["name"], at_ms, *shape, kind, workload.gang, project))
    return sorted(rows, key=lambda row: (row[1], row[0]))  # type: ignore[arg-type, return-value]


def render(fields: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV file with the attribution above it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(fields)
    writer.writerows(rows)
    return ATTRIBUTION + text.getvalue()


def make(trace: Path) -> dict[str, str]:
    """File name -> content, from the folder with the trace."""
    nodes = spaced(read(trace / "openb_node_list_gpu_node.csv.gz"), N_NODES)
    pods = choose_pods(
        pod for pod in read(trace / "openb_pod_list_default.csv.gz") if int(pod["num_gpu"]) > 0
    )
    node_rows = [
        (each["sn"], each["cpu_milli"], each["memory_mib"], each["gpu"], each["model"])
        for each in nodes
    ]
    return {
        "openb-slice-nodes.csv": render(NODE_FIELDS, node_rows),
        "openb-slice-pods.csv": render(POD_FIELDS, pod_rows(deal(form_workloads(pods)))),
    }


def main() -> None:
    """Write the files beside this script."""
    for name, content in make(Path(sys.argv[1])).items():
        (HERE / name).write_text(content, encoding="ascii")


if __name__ == "__main__":
    main()
