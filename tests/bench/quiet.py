"""Cost of a cycle with few changes: 5,000 nodes, 40,000 running pods.

In memory, without an API server: the time to apply 200 changed pods, take the snapshot and decide.
The CPU time of the same cycle does not depend on other load of the machine. Growth is measured with
the same number of changes at a quarter and half of the nodes.
"""

import gc
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from extender.api import names
from extender.api.events import Synced, Upserted
from extender.api.kinds import (
    CardShare,
    Elastic,
    ElasticNode,
    GpuDepartment,
    GpuNodePool,
    GpuProject,
)
from extender.api.objects import Node, Pod
from extender.policy.decide import decide
from extender.policy.plan import ALL_STAGES, Settings
from extender.state.cluster import ClusterState
from tests.bench.figures import Figure, percentile
from tests.bench.shapes import GROWTH, growth
from tests.support.builders import department, gpu_node, node, pod, pool, project, row

N_NODES: Final = 5_000
PODS_A_NODE: Final = 8
N_PROJECTS: Final = 20
N_CHANGES: Final = 200
N_CYCLES: Final = 20
CARD_MIB: Final = 81_920
NOW_S: Final = 1_000_000


#: The bar for the whole cycle, in milliseconds.
BAR_MS: Final = 100


def measure() -> list[Figure]:
    """The figures of cycles with few changes, and their growth."""
    by_size = [_took(N_NODES * factor // GROWTH[-1]) for factor in GROWTH]
    took = by_size[-1]
    n_pods = N_NODES * PODS_A_NODE
    shape = f"{N_NODES:,} nodes, {n_pods:,} running pods, {N_CHANGES} changed"
    whole = f"nothing new: {shape}, median of {N_CYCLES}"
    return [
        Figure(whole, round(percentile(took["all"], 50), 1), "ms", BAR_MS),
        *(
            Figure(f"  of it {name}", round(percentile(took[name], 50), 1), "ms")
            for name in ("changes", "snapshot", "decide")
        ),
        Figure("  CPU time", round(percentile(took["cpu"], 50), 1), "ms"),
        Figure("  slowest", round(max(took["all"]), 1), "ms"),
        growth("nothing new", [percentile(each["cpu"], 50) for each in by_size]),
        *_looks(),
    ]


def _took(n_nodes: int) -> dict[str, list[float]]:
    """Milliseconds of all cycles with a model of this size, by part."""
    state, running = _filled(n_nodes, PODS_A_NODE)
    decide(state.snapshot(NOW_S))
    gc.collect()
    gc.freeze()
    took: dict[str, list[float]] = {
        name: [] for name in ("changes", "snapshot", "decide", "all", "cpu")
    }
    for number in range(N_CYCLES):
        changed = [
            _touched(running[(number * N_CHANGES + at * 37) % len(running)], number)
            for at in range(N_CHANGES)
        ]
        began_s = time.process_time()
        parts = _parts(state, changed)
        cpu_ms = 1000 * (time.process_time() - began_s)
        for name, took_ms in zip(took, (*parts, sum(parts), cpu_ms), strict=True):
            took[name].append(took_ms)
    gc.unfreeze()
    return took


def _parts(state: ClusterState, changed: Iterable[Pod]) -> tuple[float, float, float]:
    """Milliseconds of applying changes, of the snapshot, and of deciding."""

    def fold() -> None:
        for obj in changed:
            state.apply(Upserted(obj))

    fold_ms, _ = _timed(fold)
    snapshot_ms, snapshot = _timed(lambda: state.snapshot(NOW_S))
    decide_ms, plan = _timed(lambda: decide(snapshot))
    assert not plan.admissions
    assert not plan.evictions
    return fold_ms, snapshot_ms, decide_ms


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return 1000 * (time.perf_counter() - started), result


def _looks() -> list[Figure]:
    """Cost of the search for a node to empty, if all nodes are full, and if the pods of each node
    fit on others."""
    figures = []
    for n_pods, what in ((PODS_A_NODE, "none"), (PODS_A_NODE // 2, "one")):
        state, _ = _filled(N_NODES, n_pods, consolidate_after_minutes=60)
        took = [_look_ms(state, n_moved=0 if what == "none" else n_pods) for _ in range(5)]
        name = f"a look for a node to empty, {N_NODES * n_pods:,} pods, finds {what}: CPU time"
        figures.append(Figure(name, round(percentile(took, 50), 1), "ms"))
    return figures


def _look_ms(state: ClusterState, n_moved: int) -> float:
    """CPU time of a decision with the stage `empty-nodes` minus that of one without."""
    took = []
    for stages in (ALL_STAGES, ALL_STAGES[:-1]):
        snapshot = state.snapshot(NOW_S)
        began_s = time.process_time()
        plan = decide(snapshot, Settings(stages=stages))
        took.append(1000 * (time.process_time() - began_s))
        assert len(plan.moves) == (n_moved if stages is ALL_STAGES else 0)
    return took[0] - took[1]


def _filled(
    n_nodes: int, n_pods: int, consolidate_after_minutes: int = 0
) -> tuple[ClusterState, list[Pod]]:
    """The model with `n_pods` on each node, and the pods."""
    state = ClusterState()
    described = pool("default").build()
    size = ElasticNode(gpus=PODS_A_NODE, cpu=192, memory_gib=2048)
    elastic = Elastic(
        max_nodes=n_nodes, node=size, consolidate_after_minutes=consolidate_after_minutes
    )
    state.apply(Upserted(replace(described, spec=replace(described.spec, elastic=elastic))))
    quota = n_nodes * PODS_A_NODE
    state.apply(Upserted(department("bench").quota(quota).build()))
    for number in range(N_PROJECTS):
        built = project(f"p-{number}").of("bench").namespaces(f"p-{number}")
        state.apply(Upserted(built.quota(quota // N_PROJECTS).build()))
    running: list[Pod] = []
    for number in range(n_nodes):
        name = f"node-{number:04}"
        host = node(name).host("192", "2Ti").gpus(PODS_A_NODE, CARD_MIB).gpu_milli(8000)
        pods = [_pod(name, number * PODS_A_NODE + card) for card in range(n_pods)]
        rows = [
            row(each, [CardShare(card, 1000, CARD_MIB)], "bound") for card, each in enumerate(pods)
        ]
        state.apply(Upserted(host.build()))
        state.apply(Upserted(gpu_node(name).cards(PODS_A_NODE, CARD_MIB).holds(*rows).build()))
        for each in pods:
            state.apply(Upserted(each))
        running += pods
    for kind in (Pod, Node, GpuDepartment, GpuProject, GpuNodePool):
        state.apply(Synced(kind))
    return state, running


def _pod(on: str, number: int) -> Pod:
    namespace = f"p-{number % N_PROJECTS}"
    built = pod(f"pod-{number}").of(namespace).needs(1000).host("8", "64Gi")
    labels = {names.LABEL_PROJECT: namespace, "job-name": f"job-{number}", "app": "bench"}
    return built.labels(labels).bound(on, started=NOW_S - 3600).build()


def _touched(held: Pod, number: int) -> Pod:
    """The pod as after an update of its status."""
    meta = replace(held.metadata, resource_version=str(1000 + number))
    return replace(held, metadata=meta)
