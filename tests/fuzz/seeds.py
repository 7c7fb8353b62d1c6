"""Seeds: valid inputs of each kind, which the fuzzer damages."""

import json
from typing import Any, Final

from extender.api.usage_kinds import HOURS
from tests.support.admission import PodDocument, pod, review_body

Tree = dict[str, Any]


def encoded(*trees: Any) -> list[bytes]:
    """The trees as JSON."""
    return [json.dumps(tree).encode() for tree in trees]


def pods() -> list[PodDocument]:
    """Pods with all kinds of requests, and with all fields that are read."""
    gang = {"ballast.dev/min-member": "9", "ballast.dev/sub-groups": "driver=1,workers=8"}
    near = {
        "ballast.dev/topology": "dc",
        "ballast.dev/topology-required-level": "zone",
        "kai.scheduler/topology-preferred-placement": "rack",
    }
    return [
        pod().noted({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
        pod().noted({"gpu-memory": "8192", "gpu-compute-request": "0.25"} | near),
        pod().asking("nvidia.com/gpu", "2").asking("cpu", "500m").asking("memory", "8Gi"),
        pod().asking("ballast.dev/gpu-milli", "500").noted({"ballast.dev/node-pools": "a,b"}),
        pod().asking("nvidia.com/mig-1g.10gb", "1").owned_by("Job"),
        pod()
        .noted({"gpu-fraction": "0.25"} | gang)
        .labelled({
            "ballast.dev/pod-group": "g",
            "ballast.dev/sub-group": "workers",
            "ballast.dev/user": "alice",
            "kai.scheduler/queue": "vision",
            "ballast.dev/workload-kind": "training",
            "ballast.dev/preemptibility": "preemptible",
        }),
        pod()
        .noted({"ballast.dev/plan": "7 n1", "ballast.dev/revoked": "n1 6 1700000000"})
        .noted({"ballast.dev/cards": "0:500:8192", "gpu-fraction": "0.5"})
        .with_spec(
            nodeName="n1",
            overhead={"cpu": "1m"},
            tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
            nodeSelector={"a": "b"},
            affinity=AFFINITY,
            topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z"}],
        ),
    ]  # fmt: skip


AFFINITY: Final[Tree] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["5"]}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                }
            ]
        }
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
                },
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    },
}


def live_pods() -> list[Tree]:
    """The same pods as the API server returns them."""
    found = []
    for ix, each in enumerate(pods()):
        body = each.body
        body["metadata"] |= {
            "uid": f"uid-{ix}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        body["status"] = {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}
        found.append(body)
    return found


def reviews() -> list[bytes]:
    """Reviews of the pods."""
    return [review_body(each.body) for each in pods()]


def calls() -> dict[str, list[bytes]]:
    """Bodies of the extender's verbs."""
    listed = [{"Pod": each, "NodeNames": ["n1", "n2"]} for each in live_pods()]
    whole = [
        {"Pod": each, "Nodes": {"items": [{"metadata": {"name": "n1"}}, {"metadata": {}}]}}
        for each in live_pods()[:2]
    ]
    victims = {"n1": {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 0}}
    preempt = [{"Pod": each, "NodeNameToMetaVictims": victims} for each in live_pods()]
    bind = {"PodName": "a", "PodNamespace": "team-a", "PodUID": "uid-a", "Node": "n1"}
    return {
        "filter": encoded(*listed, *whole),
        "prioritize": encoded(*listed, *whole),
        "preempt": encoded(*preempt),
        "bind": encoded(bind),
    }


_FIGURES: Final[list[Tree]] = [
    {
        "name": "default",
        "gpu": {"quota": 4, "limit": "8.5", "overQuotaWeight": 2},
        "cpu": {"quota": "100", "limit": "200"},
        "memory": {"quota": "1Ti"},
    }
]
_ROW: Final[Tree] = {
    "uid": "uid-1",
    "namespace": "team-a",
    "name": "a",
    "project": "vision",
    "group": "g",
    "cards": [{"index": 0, "milli": 500, "memoryMiB": 8192}],
    "computeRequestMilli": 500,
    "computeLimitMilli": 1000,
    "state": "nominated",
    "epoch": 7,
    "reservedAt": 1700000000,
    "counted": {"nvidia.com/mig-1g.10gb": 1},
    "move": {"owner": "o", "cpuMilli": 1, "memoryMiB": 1},
}


def objects() -> dict[str, list[Tree]]:
    """Our own kinds, by kind."""

    def made(kind: str, **parts: Any) -> Tree:
        meta = {"name": "x", "uid": "uid-x", "resourceVersion": "7", "namespace": "team-a"}
        return {"apiVersion": "ballast.dev/v1alpha1", "kind": kind, "metadata": meta, **parts}

    devices = [{"index": ix, "memoryMiB": 16384, "uuid": f"GPU-{ix}"} for ix in range(2)]
    nearness = {"topology": "dc", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "r"}
    sub_groups = [
        {"name": "a", "minMember": 1},
        {"name": "b", "parent": "a", "minMember": 2, "topologyConstraint": nearness},
        {"name": "c", "minSubGroup": 1},
    ]
    return {
        "GpuDepartment": [made("GpuDepartment", spec={"nodePools": _FIGURES})],
        "GpuProject": [
            made("GpuProject", spec={
                "department": "research",
                "namespaces": ["team-a"],
                "nodePools": _FIGURES,
                "defaultNodePools": ["default"],
                "allowedPriorityClasses": ["ballast-training"],
                "nodeAffinity": [{"workloadKind": "training", "matchLabels": {"a": "b"}}],
                "minRuntime": {"reclaimSeconds": 600, "preemptSeconds": 60},
            }),
        ],
        "GpuNodePool": [
            made("GpuNodePool", spec={
                "nodeSelector": {"a": "b"},
                "placement": {"gpu": "Spread", "cpu": "BinPack"},
                "policy": "FairShare",
                "timeBasedFairShare": {"weightPercent": 50, "halfLifeSeconds": 3600},
                "timeSlicing": {"mode": "Fair", "leaseMilliseconds": 250, "precisionPercent": 5},
            }),
        ],
        "GpuTopology": [
            made("GpuTopology", spec={"levels": [{"nodeLabel": "z"}, {"nodeLabel": "r"}]})
        ],
        "GpuPodGroup": [
            made("GpuPodGroup", spec={
                "minMember": 4,
                "minSubGroup": 2,
                "subGroups": sub_groups,
                "topologyConstraint": nearness,
                "project": "vision",
                "nodePools": ["default"],
                "priorityClassName": "ballast-training",
                "expectedRunSeconds": 60,
                "stalenessGraceSeconds": -1,
            }),
        ],
        "GpuNode": [made("GpuNode", spec={"rows": [_ROW]}, status={"devices": devices})],
        "GpuUsage": [
            made("GpuUsage", spec={
                "account": "Project",
                "name": "vision",
                "day": "2026-10-01",
                "countedTo": 7,
                "lines": [
                    {
                        "user": "ann", "nodePool": "default", "model": "A100",
                        "held": [1] * HOURS, "lost": [0] * HOURS,
                    },
                ],
                "overQuota": [{"nodePool": "default", "held": [1] * HOURS}],
            }),
        ],
    }  # fmt: skip


def nodes() -> list[Tree]:
    """Nodes as feature discovery labels them."""
    labels = {
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.memory": "16384",
        "nvidia.com/gpu.product": "A100",
        "nvidia.com/mig.strategy": "mixed",
    }
    capacity = {"cpu": "96", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "2"}
    return [
        {
            "metadata": {"name": "n1", "uid": "uid-n1", "resourceVersion": "7", "labels": labels},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": False},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    ]
